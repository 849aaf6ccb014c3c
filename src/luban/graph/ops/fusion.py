"""Fusions: nodes that become one kernel. The body is a graph, so its meaning stays executable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from luban.core.errors import ShapeError
from luban.core.loc import Loc
from luban.core.types import TupleType, Type
from luban.ir.node import Graph, Op

__all__ = ["OPS", "Fusion", "Once"]


@dataclass(frozen=True, slots=True)
class Fusion(Op):
    """Everything in `body`, computed by one kernel: body parameters are the operands, in order.

    `kind` names the lowering that the fusion pass chose for it: see luban.lower. `places` are those
    of the nodes that it came from: equal bodies are one graph, so its nodes cannot tell.
    """

    name: ClassVar[str] = "fusion"
    kind: str
    body: Graph
    places: tuple[Loc, ...] = field(default=(), compare=False)

    def infer(self, *operands: Type) -> Type:
        """The body's result types; a tuple unless there is one."""
        expected = tuple(p.type for p in self.body.parameters)
        if operands != expected:
            raise ShapeError(
                f"fusion {self.body.name}: given ({', '.join(map(str, operands))}), "
                f"expected ({', '.join(map(str, expected))})"
            )
        results = tuple(r.type for r in self.body.results)
        return results[0] if len(results) == 1 else TupleType(results)


@dataclass(frozen=True, slots=True)
class Once(Op):
    """The result of a body without parameters, computed once for the life of a loaded program."""

    name: ClassVar[str] = "once"
    body: Graph

    def infer(self, *operands: Type) -> Type:
        """The type of the body's only result."""
        if operands or self.body.parameters or len(self.body.results) != 1:
            raise ShapeError(
                f"once {self.body.name}: given {len(operands)} operands and a body of "
                f"{len(self.body.parameters)} parameters and {len(self.body.results)} results, "
                "expected 0, 0 and 1"
            )
        return self.body.results[0].type


OPS: tuple[type[Op], ...] = (Fusion, Once)
