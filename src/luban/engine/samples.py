"""Inputs made up from a model's types, for running it without data: seeded, so repeatable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from luban.core import dims
from luban.core.errors import InputError, UnsupportedError
from luban.core.types import TensorType
from luban.engine.steps import Value

__all__ = ["choose_sizes", "sample_inputs"]

Array = np.ndarray[Any, Any]
_BATCH, _LENGTH, _IMAGE = 1, 16, 64


def choose_sizes(
    inputs: Sequence[tuple[str, Value]], given: Mapping[str, int] | None = None
) -> dict[str, int]:
    """A size for every symbol of the inputs.

    As given, else 1 for first axes, 64 for the last two of four, and 16 for others.

    Raises InputError for a name that no input has, or a negative size.
    """
    chosen: dict[str, int] = {}
    for _, value in inputs:
        if not isinstance(value.type, TensorType):
            continue
        for axis, size in enumerate(value.type.shape):
            for symbol in sorted(dims.symbols(size), key=str):
                image = value.type.rank == 4 and axis >= 2
                wanted = _BATCH if axis == 0 else _IMAGE if image else _LENGTH
                chosen.setdefault(symbol.name, min(max(wanted, symbol.low), symbol.high))
    for name, size in (given or {}).items():
        if name not in chosen:
            raise InputError(
                f"no input has a size called {name!r}",
                hint="symbolic sizes: " + (", ".join(sorted(chosen)) or "none"),
            )
        if size < 0:
            raise InputError(f"size {name!r} is {size}, expected 0 or more")
        chosen[name] = size
    return chosen


def sample_inputs(
    inputs: Sequence[tuple[str, Value]], sizes: Mapping[str, int], seed: int = 0
) -> dict[str, Array]:
    """An array for each (name, value).

    Floats come from a standard normal distribution; whole numbers and booleans are 0 or 1, which
    index any table and mask anything.

    Raises UnsupportedError for an input that is no tensor of numbers.
    """
    generator = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for name, value in inputs:
        type_ = value.type
        if not isinstance(type_, TensorType) or type_.dtype.kind == "string":
            raise UnsupportedError(
                f"input {name!r} is {type_}: values for it cannot be made up",
                hint="give the inputs in an .npz file",
            )
        shape = type_.resolve(sizes)
        if type_.dtype.is_float or type_.dtype.kind == "complex":
            made[name] = generator.standard_normal(shape).astype(type_.dtype.numpy)
        else:
            made[name] = generator.integers(0, 2, shape).astype(type_.dtype.numpy)
    return made
