"""Triton's own tutorials, unmodified: each checks itself against PyTorch with asserts or prints.

The sweeps that draw plots are timed at their first points only.
"""

from __future__ import annotations

import runpy
from functools import partial
from pathlib import Path

from benchmarks.corpora.modes import first_points_only, stand_in
from benchmarks.corpora.units import Corpus, Unit

__all__ = ["corpus"]

_NAMES = (
    "01-vector-add",
    "02-fused-softmax",
    "03-matrix-multiplication",
    "04-low-memory-dropout",
    "05-layer-norm",
    "06-fused-attention",
    "07-extern-functions",
    "08-grouped-gemm",
)


def corpus(path: Path) -> Corpus:
    """The tutorials in a folder."""
    units = tuple(Unit(name, partial(_run, path / f"{name}.py")) for name in _NAMES)
    return Corpus("tutorials", "github.com/triton-lang/triton", 1.0, units, stand_in)


def _run(script: Path) -> None:
    with first_points_only():
        runpy.run_path(str(script), run_name="__main__")
