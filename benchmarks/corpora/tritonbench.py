"""TritonBench-G: 184 scripts whose last lines call their kernels and keep the results.

A script passes if it runs and its `result_gold` is that of the evaluator, which runs the same
kernels one block operation after the other.
"""

from __future__ import annotations

import random
import runpy
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.corpora.compare import agree
from benchmarks.corpora.modes import evaluated, only_compiled, stand_in
from benchmarks.corpora.units import Corpus, Unit

__all__ = ["corpus"]


def corpus(path: Path, compare: bool = True) -> Corpus:
    """The scripts in a folder; `compare` with the evaluator, which takes long."""
    scripts = sorted(path.glob("*.py"))
    units = tuple(Unit(script.stem, partial(_run, script, compare)) for script in scripts)
    return Corpus("TritonBench-G", "github.com/thunlp/TritonBench", 168 / 184, units, stand_in)


def _run(script: Path, compare: bool) -> None:
    with only_compiled():
        given = _results(script)
    if compare:
        with evaluated():
            agree(given, _results(script))


def _results(script: Path) -> Any:
    torch.manual_seed(0)
    random.seed(0)
    return runpy.run_path(str(script), run_name="__main__").get("result_gold")
