"""What lowering gives: a tile program, what to bind to its parameters, how many programs to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from luban.core.dims import DimLike

if TYPE_CHECKING:
    from luban.tile.function import Module  # who only runs kernels must not load the tile IR

__all__ = ["Argument", "Kernel", "Operand", "Result"]


@dataclass(frozen=True, slots=True)
class Operand:
    """The address of the fusion's operand `index`."""

    index: int


@dataclass(frozen=True, slots=True)
class Result:
    """The address of the fusion's result `index`."""

    index: int


Argument = Operand | Result | DimLike


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a fusion.

    arguments     for each tile parameter: an operand's or result's address, or a size
    num_programs  the grid; programs are independent
    notes         decisions for `explain`, in plain words
    """

    module: Module
    arguments: tuple[Argument, ...]
    num_programs: DimLike
    notes: tuple[str, ...] = ()
