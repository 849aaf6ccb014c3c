"""The hardware description: levels by size, better of two measurements, what is no description."""

import pytest

from luban.core.hardware import Hardware, Level, Limits

L1, L2, DRAM = Level("L1", 100, 8e9), Level("L2", 1000, 4e9), Level("DRAM", None, 1e9)
ONE = Limits(1, {"f32": 10e9, "i8": 40e9}, (L1, L2, DRAM), 1e-7)
TWO = Limits(2, {"f32": 20e9, "i8": 80e9}, (L1, L2, DRAM), 4e-7)
HERE = Hardware("here", "2026-01-01", (ONE, TWO))


@pytest.mark.parametrize(
    ("size", "name"), [(0, "L1"), (100, "L1"), (101, "L2"), (1000, "L2"), (1e12, "DRAM")]
)
def test_bytes_lie_in_the_fastest_level_that_holds_them(size: float, name: str) -> None:
    assert ONE.level(size).name == name


def test_arithmetic_without_a_figure_counts_as_f32() -> None:
    assert (ONE.rate("i8"), ONE.rate("bf16")) == (40e9, 10e9)


def test_the_better_of_two_measurements_stays() -> None:
    again = Limits(1, {"f32": 12e9, "i8": 30e9}, (L1, Level("L2", 2000, 3e9), DRAM), 2e-7)
    both = ONE.merged(again)
    assert both.operations_s == {"f32": 12e9, "i8": 40e9}
    assert both.levels[1] == Level("L2", 2000, 4e9)
    assert both.launch_s == 1e-7


def test_thread_counts_merge_by_themselves() -> None:
    more = Hardware("here", "2026-02-02", (Limits(4, {"f32": 35e9}, (DRAM,), 5e-7),))
    both = HERE.merged(more)
    assert [limits.threads for limits in both.limits] == [1, 2, 4]
    assert both.measured == "2026-02-02"
    assert both.at(2) == TWO


def test_outside_of_what_was_measured_the_nearest_counts() -> None:
    assert HERE.at(8) == TWO
    assert Hardware("here", "2026-01-01", (TWO,)).at(1) == TWO


@pytest.mark.parametrize(
    "document",
    [
        {"machine": "x", "measured": "today", "limits": []},
        {"machine": "x", "limits": [1]},
        {**HERE.to_json(), "limits": [{**HERE.to_json()["limits"][0], "operations_s": {}}]},
        {**HERE.to_json(), "limits": [{**HERE.to_json()["limits"][0], "levels": []}]},
        {
            **HERE.to_json(),
            "limits": [{**HERE.to_json()["limits"][0], "operations_s": {"f32": -1.0}}],
        },
    ],
)
def test_other_data_is_refused(document: dict[str, object]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Hardware.from_json(document)
