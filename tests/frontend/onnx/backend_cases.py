"""The onnx package's own node tests: 1,884 small models with inputs and expected outputs.

Whatever runs models (the evaluator, the compiled path) runs all of them. The cases that do not pass
stand in `support_table.toml` with a reason; one that passes although it stands there fails, so the
table stays true. Where the expected values are no nearer to the exact ones, a wider bound stands
there too.
"""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

TABLE = Path(__file__).with_name("support_table.toml")
Run = Callable[[onnx.ModelProto, Sequence[Any]], Sequence[Any]]


@cache
def cases() -> dict[str, Any]:
    """Every node test by name."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # the tests compute expected values that overflow on purpose
        return {case.name: case for case in collect_testcases(None)}


@cache
def unsupported(path: str) -> Mapping[str, str]:
    """Test name -> reason for those that do not pass on a path: "evaluate" or "compiled"."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    rows = [*table.get("both", []), *table.get(path, [])]
    return {name: row["reason"] for row in rows for name in row["tests"]}


@cache
def wider_bounds() -> Mapping[str, tuple[float, float]]:
    """Test name -> (rtol, atol) that hold where the case's own do not."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    rows = [row for row in table["both"] if "rtol" in row]
    return {name: (row["rtol"], row["atol"]) for row in rows for name in row["tests"]}


@cache
def random_outputs() -> Mapping[str, str]:
    """Test name -> why its values are random: shape, dtype and statistics are compared instead."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {name: row["reason"] for row in table["random"] for name in row["tests"]}


def check_as_listed(name: str, run: Run, path: str) -> None:
    """Run one case, which must pass unless the table says otherwise of a path.

    Raises AssertionError if it does not, or if a case of the table passes or breaks its wider
    bound.
    """
    if name not in unsupported(path):
        check(name, run)
        return
    if name in wider_bounds():
        check(name, run, wider_bounds()[name])
    try:
        check(name, run)
    except Exception:  # noqa: BLE001 - any failure is what the table states
        return
    raise AssertionError(f"{name} passes: take it out of support_table.toml")


def check(name: str, run: Run, bounds: tuple[float, float] | None = None) -> None:
    """Run one case, within its own bounds or others (rtol, atol).

    Raises AssertionError if an output differs from the expected one.
    """
    case = cases()[name]
    rtol, atol = bounds or (case.rtol, case.atol)
    for inputs, expected in case.data_sets:
        outputs = run(case.model, [plain(value) for value in inputs])
        wanted = [plain(value) for value in expected]
        assert len(outputs) == len(wanted), f"{len(outputs)} outputs, expected {len(wanted)}"
        for got, want in zip(outputs, wanted, strict=True):
            if name in random_outputs():
                compare_statistics(got, want)
            elif name.startswith("test_cast"):
                compare(got, _as_stated(got, want, inputs[0]), rtol, atol)
            else:
                compare(got, want, rtol, atol)


def _as_stated(got: Any, want: Any, source: Any) -> Any:
    """What the standard says of a cast: nothing where a float is beyond an integer's range.

    There the tests expect what the installed ml_dtypes makes of it, which 0.7 has changed.
    """
    source = np.asarray(plain(source))
    if str(got.dtype) not in {"int2", "uint2", "int4", "uint4"} or source.dtype.kind != "f":
        return want
    bounds: Any = ml_dtypes.iinfo(got.dtype)  # type: ignore[no-untyped-call]
    whole = np.trunc(source.astype(np.float64))
    return np.where((bounds.min <= whole) & (whole <= bounds.max), want, got)


def plain(value: Any) -> Any:
    """An input or expected output as numpy arrays, lists of them, or None."""
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "USTO":
        return np.array([_text(v) for v in np.ravel(value)], object).reshape(np.shape(value))
    return value


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def compare(got: Any, want: Any, rtol: float, atol: float) -> None:
    """Equal kinds, dtypes and shapes, and values within the bounds; NaN equals NaN."""
    if want is None or isinstance(want, list):
        assert (got is None) == (want is None)
        assert len(got or []) == len(want or [])
        for g, w in zip(got or [], want or [], strict=True):
            compare(g, w, rtol, atol)
        return
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype, f"dtype {got.dtype}, expected {want.dtype}"
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    if want.dtype.kind in "Ob" or want.dtype.kind in "iu":
        np.testing.assert_array_equal(got, want)
    elif want.dtype.kind in "fc" and want.dtype.itemsize >= 4:
        np.testing.assert_allclose(got, want, rtol, atol)
    else:
        np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol, atol)


def compare_statistics(got: Any, want: Any) -> None:
    """Equal dtype and shape; mean and spread within what as many random numbers allow."""
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    a, b = got.astype(np.float64), want.astype(np.float64)
    spread = max(a.std(), b.std()) + 1e-6
    assert abs(a.mean() - b.mean()) < 6 * spread / np.sqrt(a.size)
