"""Timing and comparing kernels: `do_bench`, `perf_report`, `assert_close`.

Times are wall times of a call on this machine's CPUs, in milliseconds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from luban.core.errors import OptionError

__all__ = ["Benchmark", "Mark", "assert_close", "do_bench", "perf_report"]

ReturnMode = Literal["mean", "median", "min", "max", "all"]
_FEWEST_CALLS = 3
_MOST_CALLS = 10_000


def do_bench(
    fn: Callable[[], object],
    warmup: float = 25.0,
    rep: float = 100.0,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: ReturnMode = "mean",
    **of_other_backends: Any,
) -> Any:
    """The time of a call in milliseconds, after one call that may compile.

    warmup, rep   milliseconds spent before and while timing; at least 3 calls are timed
    grad_to_none  tensors whose gradient is dropped before each call
    quantiles     from 0 to 1: gives a list of these quantiles (one number if there is one)
    return_mode   mean, median, min, max, or all for the list of times

    Options of other back ends are accepted and have no effect.

    Raises OptionError for another return mode or quantile.

    >>> do_bench(lambda: None, warmup=0, rep=0, return_mode="min") < 1.0
    True
    """
    del of_other_backends
    if return_mode not in ("mean", "median", "min", "max", "all"):
        raise OptionError(
            f"do_bench: return_mode is {return_mode!r}, expected mean, median, min, max or all"
        )
    if any(not 0 <= q <= 1 for q in quantiles or ()):
        raise OptionError(f"do_bench: quantiles are {list(quantiles or ())}, expected 0 to 1")
    tensors = list(grad_to_none or ())
    fn()
    estimate_ms = max(_timed_ms(fn, tensors), 1e-4)
    for _ in range(min(int(warmup / estimate_ms), _MOST_CALLS)):
        fn()
    num_calls = min(max(int(rep / estimate_ms), _FEWEST_CALLS), _MOST_CALLS)
    times = [_timed_ms(fn, tensors) for _ in range(num_calls)]
    if quantiles is not None:
        found = [float(q) for q in np.quantile(times, list(quantiles))]
        return found[0] if len(found) == 1 else found
    return _summary(times, return_mode)


def _timed_ms(fn: Callable[[], object], grad_to_none: Sequence[Any]) -> float:
    for tensor in grad_to_none:
        tensor.grad = None
    start = time.perf_counter()
    fn()
    return (time.perf_counter() - start) * 1e3


def _summary(times: list[float], return_mode: ReturnMode) -> float | list[float]:
    match return_mode:
        case "all":
            return times
        case "min":
            return min(times)
        case "max":
            return max(times)
        case "median":
            return statistics.median(times)
    return statistics.fmean(times)


@dataclass(frozen=True)
class Benchmark:
    """What to time: one line of the plot for each of `line_vals`, over the values of `x_names`.

    The timed function is called with the `x_names`, `line_arg` and `args` by name and returns a
    number, or (middle, low, high).
    """

    x_names: list[str]
    x_vals: list[Any]
    line_arg: str
    line_vals: list[Any]
    line_names: list[str]
    plot_name: str
    args: Mapping[str, Any]
    xlabel: str = ""
    ylabel: str = ""
    x_log: bool = False
    y_log: bool = False
    styles: Any = field(default=None, compare=False)

    def points(self) -> list[dict[str, Any]]:
        """The arguments of every point of the x axis. Raises OptionError for a misfit."""
        found = []
        for value in self.x_vals:
            values = value if isinstance(value, (list, tuple)) else [value] * len(self.x_names)
            if len(values) != len(self.x_names):
                raise OptionError(
                    f"Benchmark {self.plot_name!r}: x_vals has {value!r} "
                    f"for the {len(self.x_names)} names {', '.join(self.x_names)}",
                    hint="give one number for all names, or one for each",
                )
            found.append(dict(zip(self.x_names, values, strict=True)))
        return found


class Mark:
    """A function with its benchmarks; `run` times them all and prints a table for each."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Benchmark | Sequence[Benchmark]) -> None:
        self.fn = fn
        self.benchmarks = benchmarks

    def run(
        self,
        show_plots: bool = False,  # noqa: ARG002  # the signature is Triton's; nothing is plotted
        print_data: bool = False,
        save_path: str | Path = "",
        return_df: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Time everything.

        print_data  print the tables
        save_path   folder for one .csv file each
        return_df   return the rows: a list of dictionaries (a list of those for many benchmarks)
        """
        single = isinstance(self.benchmarks, Benchmark)
        chosen = [self.benchmarks] if isinstance(self.benchmarks, Benchmark) else self.benchmarks
        tables = []
        for benchmark in chosen:
            rows = self._rows(benchmark, kwargs)
            tables.append(rows)
            if print_data:
                print(f"{benchmark.plot_name}:\n{_text(rows)}")  # noqa: T201  # asked for
            if save_path:
                folder = Path(save_path)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{benchmark.plot_name}.csv").write_text(_csv(rows), encoding="utf-8")
        if not return_df:
            return None
        return tables[0] if single else tables

    def _rows(self, benchmark: Benchmark, kwargs: Mapping[str, Any]) -> list[dict[str, Any]]:
        rows = []
        for point in benchmark.points():
            row: dict[str, Any] = dict(point)
            for name, value in zip(benchmark.line_names, benchmark.line_vals, strict=True):
                given = {**point, benchmark.line_arg: value, **benchmark.args, **kwargs}
                result = self.fn(**given)
                row[name] = result[0] if isinstance(result, (list, tuple)) else result
            rows.append(row)
        return rows


def _text(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "(no points)"
    cells = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    )


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [",".join(rows[0])] if rows else []
    lines += [",".join(_cell(value) for value in row.values()) for row in rows]
    return "\n".join(lines) + "\n"


def perf_report(
    benchmarks: Benchmark | Sequence[Benchmark],
) -> Callable[[Callable[..., Any]], Mark]:
    """Decorate a function with what `run` shall time.

    >>> sweep = Benchmark(["n"], [1, 2], "way", ["a"], ["A"], "squares", {})
    >>> perf_report(sweep)(lambda n, way: n * n).run(return_df=True)
    [{'n': 1, 'A': 1}, {'n': 2, 'A': 4}]
    """
    return lambda fn: Mark(fn, benchmarks)


def assert_close(
    x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = ""
) -> None:
    """Raise AssertionError where |x - y| > atol + rtol |y|. Defaults: 1e-2 and 0.

    x, y  numbers, arrays or tensors of one shape, of any dtype; NaN equals NaN
    """
    first, second = (_as_array(value) for value in (x, y))
    np.testing.assert_allclose(
        first,
        second,
        atol=1e-2 if atol is None else atol,
        rtol=0.0 if rtol is None else rtol,
        equal_nan=True,
        err_msg=err_msg,
    )


def _as_array(value: Any) -> np.ndarray[Any, Any]:
    if hasattr(value, "detach"):  # a torch tensor: numpy has no bfloat16
        value = value.detach()
        value = value.double() if value.is_floating_point() else value
        value = value.cpu().numpy()
    array = np.asarray(value)
    return array if array.dtype.kind in "biu" else array.astype(np.float64)
