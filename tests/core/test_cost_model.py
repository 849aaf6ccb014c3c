"""The roofline form: which part sets the time, and that it orders work as made-up clocks do."""

import numpy as np
import pytest

from luban.core.cost_model import Traffic, Work, fastest_conceivable, predict, rank_correlation
from luban.core.hardware import Level, Limits

LEVELS = (Level("L2", 1 << 20, 100e9), Level("L3", 1 << 25, 50e9), Level("DRAM", None, 10e9))
HERE = Limits(1, {"f32": 100e9, "i8": 400e9}, LEVELS, 1e-7)


@pytest.mark.parametrize(
    ("work", "bound", "seconds"),
    [
        (Work({"f32": 1e9}, (Traffic(1e6, 1e6),)), "compute", 1e-2 + 1e-7),
        (Work({"i8": 1e9}, (Traffic(1e6, 1e6),)), "compute", 2.5e-3 + 1e-7),
        (Work({"f32": 1e6}, (Traffic(1e6, 1e6),)), "compute", 1e-5 + 1e-7),
        (Work({"f32": 1e5}, (Traffic(1e6, 1e6),)), "L2", 1e-5 + 1e-7),
        (Work({"f32": 1e5}, (Traffic(1e6, 1e7), Traffic(1e6, 1e9))), "DRAM", 1e-4 + 1e-7),
        (Work({"f32": 1e2}, (Traffic(64, 64),)), "launch", 1e-9 + 1e-7),
        (Work({}, (), 10), "launch", 1e-6),
    ],
)
def test_the_busiest_part_sets_the_time(work: Work, bound: str, seconds: float) -> None:
    found = predict(work, HERE)
    assert found.bound == bound
    assert found.seconds == pytest.approx(seconds)


def test_bytes_of_one_level_add_up() -> None:
    work = Work({}, (Traffic(1e6, 1e9), Traffic(2e6, 1e8)))
    assert predict(work, HERE).parts["DRAM"] == pytest.approx(3e-4)
    assert work.size_bytes == 3e6


def test_predictions_rank_as_clocks_of_another_law_do() -> None:
    """A machine on which arithmetic and memory partly wait for each other, with noise of 20 %."""
    random = np.random.default_rng(5)
    works = [
        Work({"f32": 10 ** random.uniform(4, 10)}, (Traffic(s := 10 ** random.uniform(3, 8), s),))
        for _ in range(200)
    ]
    predicted = [predict(work, HERE) for work in works]
    clocks = [
        (max(p.parts.values()) + 0.4 * sum(p.parts.values())) * random.uniform(0.8, 1.2)
        for p in predicted
    ]
    assert rank_correlation([p.seconds for p in predicted], clocks) > 0.98


def test_less_than_two_rank_alike() -> None:
    assert rank_correlation([], []) == rank_correlation([1.0], [2.0]) == 1.0


def test_what_is_conceivable_does_not_hang_on_slow_memory() -> None:
    work = Work({"f32": 1e5}, (Traffic(1e6, 1e9),))
    assert predict(work, HERE).seconds == pytest.approx(1e-4 + 1e-7)
    assert fastest_conceivable(work, HERE) == pytest.approx(1e-5 + 1e-7)
