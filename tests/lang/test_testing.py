"""Timing and comparing kernels."""

from pathlib import Path

import numpy as np
import pytest

from luban.core.errors import OptionError
from luban.lang.testing import Benchmark, assert_close, do_bench, perf_report


def test_times_are_summed_up_as_asked() -> None:
    calls = []
    times = do_bench(lambda: calls.append(1), warmup=0, rep=0, return_mode="all")
    assert len(times) >= 3
    assert len(calls) > len(times)  # one call compiles, one estimates
    low, high = do_bench(lambda: None, warmup=0, rep=0, quantiles=[0.0, 1.0])
    assert low <= high
    assert isinstance(do_bench(lambda: None, warmup=0, rep=0, quantiles=[0.5]), float)


def test_gradients_are_dropped_before_each_call() -> None:
    class Leaf:
        grad: object = "old"

    leaf = Leaf()
    seen = []
    do_bench(lambda: seen.append(leaf.grad), warmup=0, rep=0, grad_to_none=[leaf])
    assert seen[0] == "old"
    assert set(seen[1:]) == {None}


def test_unknown_summaries_are_refused() -> None:
    with pytest.raises(OptionError, match="return_mode is 'best', expected mean, median, min"):
        do_bench(lambda: None, return_mode="best")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"quantiles are \[2\], expected 0 to 1"):
        do_bench(lambda: None, quantiles=[2])


def test_a_report_has_a_row_for_each_point(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = Benchmark(["m", "n"], [2, (3, 4)], "way", [1, 10], ["one", "ten"], "areas", {"k": 5})
    mark = perf_report(sweep)(lambda m, n, way, k: (float(m * n * way * k), 0.0, 1.0))
    rows = mark.run(print_data=True, save_path=tmp_path, return_df=True)
    assert rows == [
        {"m": 2, "n": 2, "one": 20.0, "ten": 200.0},
        {"m": 3, "n": 4, "one": 60.0, "ten": 600.0},
    ]
    assert "areas:\nm  n  one  ten" in capsys.readouterr().out
    assert (tmp_path / "areas.csv").read_text() == "m,n,one,ten\n2,2,20,200\n3,4,60,600\n"


def test_points_have_one_number_for_each_name() -> None:
    sweep = Benchmark(["m", "n"], [(1, 2, 3)], "way", [1], ["one"], "areas", {})
    with pytest.raises(OptionError, match=r"x_vals has \(1, 2, 3\) for the 2 names m, n"):
        sweep.points()


def test_close_values_are_close() -> None:
    x = np.array([1.0, np.nan], np.float32)
    assert_close(x, x + np.float32(0.001))
    with pytest.raises(AssertionError, match="Mismatched"):
        assert_close(x, x + 1)
    assert_close(np.float16(3), 3)
