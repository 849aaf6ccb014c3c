"""flag-gems: PyTorch operators written in Triton, each held against PyTorch's own.

Set GEMS_VENDOR=nvidia: the package chooses its folder of configurations by it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.corpora.compare import agree
from benchmarks.corpora.modes import stand_in
from benchmarks.corpora.units import Corpus, Unit

__all__ = ["corpus"]

Function = Callable[..., Any]
_UNARY = (
    "abs", "neg", "exp", "exp2", "sin", "cos", "tanh", "sqrt", "rsqrt", "reciprocal", "sigmoid",
    "relu", "silu", "gelu", "erf", "isnan", "isinf", "isfinite", "logical_not", "ceil", "log",
    "softplus", "elu", "celu", "selu", "square", "atan",
)  # fmt: skip
_BINARY = (
    "add", "sub", "mul", "div", "maximum", "minimum", "pow", "eq", "ne", "lt", "le", "gt", "ge",
    "logical_and", "logical_or", "logical_xor", "fmin", "hypot", "logaddexp", "atan2",
)  # fmt: skip
_FOLDS = (
    "sum", "mean", "amax", "argmax", "argmin", "prod", "all", "any", "max", "min", "std", "var",
    "softmax", "log_softmax", "cumsum",
)  # fmt: skip
_NAMES = {"div": "true_divide", "pow": "pow_tensor_tensor"}
_POSITIVE = ("sqrt", "rsqrt", "log")


def _torch(name: str) -> Function:
    return getattr(torch, name, None) or getattr(F, name)


def _cases() -> list[tuple[str, Function, list[Any]]]:
    """Operator of the package, PyTorch's, positional inputs."""
    x, y = torch.randn(37, 130), torch.randn(37, 130)
    positive = x.abs() + 0.5
    found: list[tuple[str, Function, list[Any]]] = [
        (name, _torch(name), [positive if name in _POSITIVE else x]) for name in _UNARY
    ]
    for name in _BINARY:
        left = positive if name == "pow" else x
        found.append((_NAMES.get(name, name), _torch(name), [left, y]))
    for name in _FOLDS:
        arguments: list[Any] = [x > 0 if name in ("all", "any") else x]
        if name in ("softmax", "log_softmax", "cumsum"):
            arguments.append(-1)
        if name == "amax":
            arguments.append([1])
        found.append((name, _torch(name), arguments))
    a, b, c = torch.randn(50, 64), torch.randn(64, 70), torch.randn(50, 70)
    found += [
        ("mm", torch.mm, [a, b]),
        ("addmm", torch.addmm, [c, a, b]),
        ("bmm", torch.bmm, [torch.randn(3, 20, 33), torch.randn(3, 33, 18)]),
        ("mv", torch.mv, [a, torch.randn(64)]),
        ("where_self", torch.where, [x > 0, x, y]),
        ("masked_fill", torch.masked_fill, [x, y > 0, 2.0]),
        ("clamp", torch.clamp, [x, -0.5, 0.5]),
        ("triu", torch.triu, [x, 1]),
        ("tril", torch.tril, [x, 1]),
        ("flip", torch.flip, [x, [1]]),
        ("cat", torch.cat, [[x, y], 1]),
        ("index_select", torch.index_select, [x, 0, torch.tensor([3, 1, 1])]),
        ("gather", torch.gather, [x, 1, torch.randint(0, 130, (37, 5))]),
        ("embedding", lambda w, i: F.embedding(i, w), [x, torch.tensor([3, 1, 1])]),
        ("repeat", lambda t, n: t.repeat(n), [x, (2, 3)]),
        ("sort", torch.sort, [x, 1]),
        ("topk", torch.topk, [x, 5]),
        ("rms_norm", lambda t, n, w: F.rms_norm(t, n, w, 1e-5), [x, [130], torch.randn(130)]),
    ]
    return found


def corpus(path: Path) -> Corpus:
    """The operators of the package in a folder."""

    def prepare() -> None:
        stand_in()
        sys.path.insert(0, str(path))
        import_module("flag_gems")

    torch.manual_seed(0)
    units = tuple(Unit(case[0], partial(_run, *case)) for case in _cases())
    return Corpus("flag-gems 5.0.2", "pypi flag-gems", 0.9, units, prepare)


def _run(name: str, reference: Function, inputs: list[Any]) -> None:
    operator = getattr(import_module("flag_gems.ops"), name)
    given = operator(*inputs)
    expected = reference(*inputs)
    if isinstance(expected, tuple):
        given, expected = list(given), list(expected)
    agree(given, expected)
