"""What a benchmark and a model test share: one model file, its inputs at several sizes, its bound.

A case is timed (benchmarks/compare.py) and checked (tests/models/) with the very same inputs, so a
speed is never that of a run whose answer nobody looked at.
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Feeds = dict[str, Array]
Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far an output may lie from ONNX Runtime with every optimisation off.

    The error of one output is max |y - reference| / max |reference| (`relative_error`).
    """

    name: str
    max_relative: float
    why: str


FLOAT32 = Tolerance("float32", 1e-4, "float32 sums in another order")
INT8_WEIGHT = Tolerance("int8 weight", 1e-4, "int8 only stores the weights; the maths is float32")
INT8_DYNAMIC = Tolerance(
    "int8 dynamic", 5e-2, "a float32 rounding moves activations by one step of their 8-bit scale"
)
INT8_SHALLOW = Tolerance("int8 shallow", 2e-2, "as int8 dynamic, through a few layers only")
INT8_DEEP = Tolerance(
    "int8 deep",
    1e-1,
    "as int8 dynamic, through many layers that amplify a step: inputs or weights moved by 1e-7 move"
    " ONNX Runtime's own unoptimised outputs by up to 1.3e-1. Too wide to find a small bug: the"
    " shallow int8 models are there for that",
)
CHAOTIC = Tolerance(
    "chaotic",
    float("inf"),
    "not compared end to end: normalisation weights moved by 1e-7 change even the length of the"
    " reference's own output; `luban check` judges such a model node by node",
)
RECURRENT_FLOAT32 = Tolerance(
    "recurrent float32", 1e-4, "float32 sums in another order, fed back once a time step"
)


@dataclass(frozen=True, slots=True)
class ModelCase:
    """One model: where its file is, inputs for it, and the bound its outputs must keep.

    name       unique, lower case with underscores
    locate     path of the ONNX file; fetches or builds it when the cache lacks it
    sample     (generator, sizes) -> inputs by name
    sizes      the first is the one timed; the others must run without a recompile
    tolerance  against ONNX Runtime with optimisations off
    tags       what selects it: image, text, audio, graph; conv, attention, rnn, control_flow, int8;
               small (milliseconds to run), slow (seconds to check),
               extra (not in the geometric mean)
    """

    name: str
    locate: Callable[[], Path]
    sample: Callable[[np.random.Generator, Sizes], Feeds]
    sizes: tuple[Sizes, ...]
    tolerance: Tolerance = FLOAT32
    tags: frozenset[str] = frozenset()

    def path(self) -> Path:
        """The ONNX file, fetched or built now if need be."""
        return self.locate()

    def inputs(self, sizes: Sizes | None = None, seed: int = 0) -> Feeds:
        """Inputs by name, the same for the same seed. `sizes` defaults to the ones timed."""
        return self.sample(np.random.default_rng(seed), self.sizes[0] if sizes is None else sizes)

    def save_inputs(self) -> Path:
        """Write the timed inputs as an .npz of arrays by name, for use with any other tool."""
        path = cache_folder() / "inputs" / f"{self.name}.npz"
        feeds = self.inputs()

        def write(target: Path) -> None:
            np.savez(target, allow_pickle=False, **feeds)

        return write_atomically(path, write)


def cache_folder() -> Path:
    """Where models are kept: LUBAN_BENCH_DIR, or the user's cache folder."""
    if given := os.environ.get("LUBAN_BENCH_DIR"):
        folder = Path(given)
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches" / "luban-bench"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "luban-bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def relative_error(actual: Array, reference: Array) -> float:
    """The error max |actual - reference| / max |reference|; 0 for two empty arrays.

    Infinite when shapes or dtypes differ, or when one is NaN or infinite where the other is not.
    Values that are no real numbers must be equal.

    >>> relative_error(np.array([1.0, 2.5]), np.array([1.0, 2.0]))
    0.25
    >>> relative_error(np.array([1.0]), np.array([np.nan]))
    inf
    >>> relative_error(np.array([1, 2]), np.array([1.0, 2.0]))
    inf
    """
    if actual.shape != reference.shape or actual.dtype != reference.dtype:
        return float("inf")
    if reference.size == 0:
        return 0.0
    if reference.dtype.kind not in "biuf":  # text, complex, and the small floats of ml_dtypes
        return 0.0 if np.array_equal(actual, reference) else float("inf")
    wide, exact = actual.astype(np.float64), reference.astype(np.float64)
    finite = np.isfinite(exact)
    if not np.array_equal(wide[~finite], exact[~finite], equal_nan=True):
        return float("inf")
    if not np.isfinite(wide[finite]).all():
        return float("inf")
    if not finite.any():
        return 0.0
    error = float(np.abs(wide[finite] - exact[finite]).max())
    scale = float(np.abs(exact[finite]).max())
    return error / scale if scale else error


def write_atomically(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a file beside `path`, then move it there: no reader sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        write(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path
