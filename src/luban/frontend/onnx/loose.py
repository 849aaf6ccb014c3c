"""Results of an If that are a number in one branch and a vector of one element in the other.

Beside a vector both mean the same to an operator that works element by element. So the number is
read as a vector of one, and it is watched what becomes of it: an operator to which the number of
axes matters ends the import, which begins again and takes this If as any whose branches differ in
rank (one branch is assumed, and a run that wants the other one fails).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import onnx

from luban.core.types import TensorType, Type
from luban.ir.node import Node

__all__ = ["LooseRanks", "RankMatters", "are_one_number"]

_ELEMENTWISE = frozenset(
    {
        "Abs",
        "Add",
        "And",
        "Cast",
        "Ceil",
        "Div",
        "Equal",
        "Exp",
        "Floor",
        "Greater",
        "GreaterOrEqual",
        "Identity",
        "Less",
        "LessOrEqual",
        "Log",
        "Max",
        "Min",
        "Mod",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "Pow",
        "Reciprocal",
        "Relu",
        "Round",
        "Sign",
        "Sqrt",
        "Sub",
        "Where",
        "Xor",
    }
)


class RankMatters(Exception):
    """A value of two possible ranks is used by what tells them apart: read the model again.

    path  that of its If
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def are_one_number(first: Type, second: Type) -> bool:
    """Whether one is a number and the other a vector of one element of its dtype."""
    if not isinstance(first, TensorType) or not isinstance(second, TensorType):
        return False
    return first.dtype is second.dtype and {first.shape, second.shape} == {(), (1,)}


@dataclass(slots=True)
class LooseRanks:
    """Which values may also be numbers, though they are vectors of one, and by which If.

    `fixed` has the paths of those Ifs of which it is known that the rank matters.
    """

    fixed: frozenset[str] = frozenset()
    origin: dict[Node, str] = field(default_factory=dict)

    def follow(self, proto: onnx.NodeProto, inputs: Sequence[Node | None]) -> str | None:
        """The If by which the results of this node are loose, too; None where they are not.

        Raises RankMatters for a node that tells a number from a vector of one.
        """
        found = [self.origin[x] for x in inputs if x is not None and x in self.origin]
        if not found:
            return None
        if proto.op_type == "CastLike" and proto.domain in {"", "ai.onnx"}:
            return self.origin.get(inputs[0]) if inputs[0] is not None else None
        if proto.op_type not in _ELEMENTWISE or proto.domain not in {"", "ai.onnx"}:
            raise RankMatters(found[0])
        others = [x for x in inputs if x is not None and x not in self.origin]
        if any(isinstance(x.type, TensorType) and x.type.rank for x in others):
            return None
        return found[0]

    def refuse(self, nodes: Iterable[Node]) -> None:
        """Raise RankMatters if one of these, which leave the graph, may be of two ranks."""
        for n in nodes:
            if n in self.origin:
                raise RankMatters(self.origin[n])
