"""The table of emit functions, one for each tile op class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from luban.core.errors import InternalError
from luban.tile.function import Operation
from luban.tile.op import TileOp

if TYPE_CHECKING:
    from luban.codegen.emitter import Emitter
    from luban.codegen.registers import RegisterTile

__all__ = ["EMITTERS", "emitter_of", "emits"]

# (op, emitter, operation) -> one register tile for each result
EmitFunction = Callable[[Any, "Emitter", Operation], "Sequence[RegisterTile]"]
F = TypeVar("F", bound=EmitFunction)

EMITTERS: dict[type[TileOp], EmitFunction] = {}


def emits(op_class: type[TileOp]) -> Callable[[F], F]:
    """Register the emit function of an op class. Raises InternalError if it has one already."""

    def register(function: F) -> F:
        if op_class in EMITTERS:
            raise InternalError(
                f"{op_class.__name__} is emitted twice: by {EMITTERS[op_class].__qualname__} and "
                f"by {function.__qualname__}; remove one of the two @emits({op_class.__name__})"
            )
        EMITTERS[op_class] = function
        return function

    return register


def emitter_of(op: TileOp) -> EmitFunction:
    """The emit function of `op`. Raises InternalError, with the file to edit, if there is none."""
    found = EMITTERS.get(type(op))
    if found is None and not op.in_registers:
        raise InternalError(
            f"{op.mnemonic} is an op of block programs: lower it first, with luban.lower.blocks"
        )
    if found is None:
        kind = type(op).__name__
        raise InternalError(
            f"no LLVM code for tile op {kind}: add a function with @emits({kind}) to a file of "
            "src/luban/codegen/ that llvm.py imports"
        )
    return found
