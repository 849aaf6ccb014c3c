"""Turns, ratios and failures of the measuring processes."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness import (
    EngineError,
    EngineProcess,
    Plan,
    Timing,
    compare,
    geometric_mean,
    largest_error,
    reference_outputs,
    save_feeds,
    speedup,
    start,
)
from benchmarks.models import BUILT

TINY = next(case for case in BUILT if case.name == "tiny_mlp")
PLAN = Plan(rounds=3, turn_s=0.005, least_calls=2, warm_up_s=0.001, pause_s=0.0)


def test_engines_take_turns_and_are_checked_and_weighed(tmp_path: Path) -> None:
    expected = reference_outputs(TINY, tmp_path)
    first, second = compare(
        TINY, ["onnxruntime", "reference"], 1, PLAN, tmp_path, reference=expected
    )
    for timing in (first, second):
        assert timing.failure is None
        assert len(timing.rounds_s) == PLAN.rounds
        assert all(len(calls) >= PLAN.least_calls for calls in timing.rounds_s)
        assert timing.error == 0.0
        assert 0 < timing.median_s <= timing.p95_s
        assert timing.peak_bytes > timing.empty_bytes > 10_000_000
        assert timing.load_s > 0
    assert speedup(first, first) == 1.0


def test_a_wrong_answer_shows_as_an_error(tmp_path: Path) -> None:
    wrong = [output + 1 for output in reference_outputs(TINY, tmp_path)]
    (timing,) = compare(TINY, ["reference"], 1, PLAN, tmp_path, reference=wrong)
    assert timing.failure is None
    assert timing.error is not None
    assert timing.error > 0.1


def test_an_engine_that_fails_is_reported_and_the_rest_go_on(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.onnx"
    garbage.write_bytes(b"not a model")
    broken = replace(TINY, locate=lambda: garbage)
    (timing,) = compare(broken, ["reference"], 1, PLAN, tmp_path)
    assert timing.failure is not None
    assert timing.failure.startswith("reference: ")
    assert math.isnan(timing.median_s)
    begun = start(broken, "reference", 1, tmp_path)
    assert begun.failure is not None
    assert math.isnan(begun.load_s)


def test_a_start_is_split_into_load_and_first_call(tmp_path: Path) -> None:
    begun = start(TINY, "reference", 1, tmp_path)
    assert begun.failure is None
    assert 0 < begun.load_s < begun.process_s
    assert 0 < begun.first_call_s < begun.process_s


def test_an_engine_process_that_dies_says_so(tmp_path: Path) -> None:
    with EngineProcess("reference", tmp_path) as process:
        process.ask("memory")
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(EngineError, match="reference: the process ended with exit code -9"):
            process.ask("memory")


def test_an_error_of_the_engine_is_passed_on_in_its_own_words(tmp_path: Path) -> None:
    feeds = save_feeds(TINY.inputs(), tmp_path / "feeds.npz")
    with (
        EngineProcess("no_such_engine", tmp_path) as process,
        pytest.raises(EngineError, match="no_such_engine: KeyError: 'no_such_engine'"),
    ):
        process.ask("load", path=str(TINY.path()), feeds=str(feeds), threads=1)


def test_a_request_before_load_is_refused(tmp_path: Path) -> None:
    with (
        EngineProcess("reference", tmp_path) as process,
        pytest.raises(EngineError, match="no model is loaded: the first request must be load"),
    ):
        process.ask("time", budget_s=0.0, least=1)


def test_an_answer_that_does_not_come_is_an_error(tmp_path: Path) -> None:
    with (
        EngineProcess("reference", tmp_path, timeout_s=0.001) as process,
        pytest.raises(EngineError, match=r"no answer to memory within 0\.001 s"),
    ):
        process.ask("memory")


def test_a_ratio_is_taken_within_each_round() -> None:
    # The machine slows down threefold after the first round; the ratio of 2 does not notice.
    ours = Timing("a", 1, rounds_s=((1.0,), (3.0,), (3.0,)))
    theirs = Timing("b", 1, rounds_s=((2.0,), (6.0,), (6.0,)))
    assert speedup(ours, theirs) == 2.0


def test_no_ratio_without_times() -> None:
    failed = Timing("a", 1, failure="a: no")
    assert math.isnan(speedup(failed, failed))
    assert math.isnan(failed.median_s)
    assert math.isnan(geometric_mean([]))


def test_a_missing_output_is_an_infinite_error() -> None:
    assert largest_error([], [np.zeros(1)]) == math.inf
    assert largest_error([], []) == 0.0
