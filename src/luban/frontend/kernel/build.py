"""From a kernel's source and the types of its arguments to a block program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from luban.core.dtypes import DType
from luban.frontend.kernel import maths, memory, programs, random, reductions, shapes
from luban.frontend.kernel.constexpr import unwrap
from luban.frontend.kernel.errors import KernelError
from luban.frontend.kernel.interpret import Interpreter
from luban.frontend.kernel.source import KernelSource
from luban.frontend.kernel.values import Pointer, Tensor
from luban.tile.builder import FunctionBuilder
from luban.tile.function import Module

__all__ = ["ArgumentType", "GRID", "PointerTo", "ScalarOf", "build"]

# Importing these files fills the table of the language's functions.
BUILTIN_FILES = (maths, memory, programs, random, reductions, shapes)
GRID = ("grid_x", "grid_y", "grid_z")


@dataclass(frozen=True, slots=True)
class PointerTo:
    """An argument that is an array.

    noalias   name of its group: arrays of different groups share no memory
    """

    dtype: DType
    noalias: str | None = None


@dataclass(frozen=True, slots=True)
class ScalarOf:
    """An argument that is a number of the run."""

    dtype: DType


ArgumentType = PointerTo | ScalarOf | tuple[Any, ...]


def build(
    source: KernelSource,
    arguments: Mapping[str, ArgumentType],
    constants: Mapping[str, Any],
    *,
    checks: bool = False,
) -> Module:
    """The block program of a kernel: its run-time parameters in order, then the grid's extents.

    arguments   types of the parameters that only the run knows
    constants   values of all others
    checks      keep assertions, for runs with checks

    Raises KernelError with the line for what the language does not have.
    """
    b = FunctionBuilder(source.name)
    names: dict[str, Any] = {}
    for name in source.parameters:
        if name in arguments:
            names[name] = _parameter(b, name, arguments[name])
        else:
            names[name] = unwrap(constants[name])
    grid = [b.scalar(name) for name in GRID]
    run = Interpreter(b, source, names, grid, checks=checks)
    found = run.run()
    if found is not None:
        raise KernelError(
            f"{source.name} returns {run.said(found)}, expected nothing of a launched kernel",
            hint="store the result through a pointer",
            place=source.place,
            node=source.tree,
        )
    return Module.of(b.finish())


def _parameter(b: FunctionBuilder, name: str, kind: ArgumentType) -> Any:
    match kind:
        case PointerTo(dtype=dtype, noalias=group):
            base = b.pointer(name, dtype, noalias=group)
            return Pointer(base, b.constant(0))
        case ScalarOf(dtype=dtype):
            return Tensor(b.scalar(name, dtype))
    return tuple(
        _parameter(b, f"{name}.{place}", item) if isinstance(item, (PointerTo, ScalarOf, tuple))
        else unwrap(item)
        for place, item in enumerate(kind)
    )  # fmt: skip
