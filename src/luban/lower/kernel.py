"""What lowering gives: a tile program, what to bind to its parameters, how many programs to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from luban.core.dims import DimLike
from luban.core.dtypes import DType

if TYPE_CHECKING:
    from luban.tile.function import Module  # who only runs kernels must not load the tile IR

__all__ = ["Argument", "Kernel", "Operand", "Result", "Workspace", "argument_size"]


@dataclass(frozen=True, slots=True)
class Operand:
    """The address of the fusion's operand `index`."""

    index: int


@dataclass(frozen=True, slots=True)
class Result:
    """The address of the fusion's result `index`."""

    index: int


@dataclass(frozen=True, slots=True)
class Workspace:
    """The address of `count` elements of memory for each thread, of the threads in order.

    For sizes that only the run knows; what lies there does not outlive a program. Its parameter is
    `per_thread`.
    """

    dtype: DType
    count: DimLike


Argument = Operand | Result | Workspace | DimLike


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a fusion.

    arguments     for each tile parameter: the address of an operand, a result or a workspace, or
                  a size
    num_programs  the grid; programs are independent
    notes         decisions for `explain`, in plain words
    """

    module: Module
    arguments: tuple[Argument, ...]
    num_programs: DimLike
    notes: tuple[str, ...] = ()


def argument_size(argument: Argument) -> DimLike:
    """The size that an argument depends on: its own, that of its memory, or none."""
    match argument:
        case Operand() | Result():
            return 0
        case Workspace(count=count):
            return count
    return argument
