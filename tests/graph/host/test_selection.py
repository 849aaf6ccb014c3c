"""Unique elements and non-maximum suppression."""

from __future__ import annotations

import numpy as np

from luban.graph.host import host_function
from luban.graph.host.selection import NON_MAX_SUPPRESSION, UNIQUE


def test_unique_by_first_occurrence() -> None:
    x = np.array([2, 1, 1, 3, 4, 3])
    distinct, first, inverse, counts = host_function(UNIQUE)({"axis": None, "in_order": False}, [x])
    np.testing.assert_array_equal(distinct, [2, 1, 3, 4])
    np.testing.assert_array_equal(first, [0, 1, 3, 4])
    np.testing.assert_array_equal(distinct[inverse], x)
    np.testing.assert_array_equal(counts, [1, 2, 2, 1])


def test_unique_of_nothing() -> None:
    results = host_function(UNIQUE)({"axis": None, "in_order": True}, [np.zeros(0, np.float32)])
    assert [len(r) for r in results] == [0, 0, 0, 0]


def test_of_equal_scores_the_first_box_is_kept() -> None:
    boxes = np.array([[[0, 0, 1, 1]] * 3], np.float32)
    scores = np.full((1, 1, 3), 0.5, np.float32)
    values = [boxes, scores, np.asarray(3), np.asarray(0.5)]
    (kept,) = host_function(NON_MAX_SUPPRESSION)({"center_point": False}, values)
    np.testing.assert_array_equal(kept, [[0, 0, 0]])


def test_corners_may_come_in_any_order_and_boxes_may_be_empty() -> None:
    boxes = np.array([[[1, 1, 0, 0], [0, 0, 1, 1], [3, 3, 3, 3], [3, 3, 3, 3]]], np.float32)
    scores = np.array([[[0.9, 0.8, 0.7, 0.6]]], np.float32)
    values = [boxes, scores, np.asarray(9), np.asarray(0.0)]
    (kept,) = host_function(NON_MAX_SUPPRESSION)({"center_point": False}, values)
    np.testing.assert_array_equal(kept[:, 2], [0, 2, 3])
