"""Control flow: operations that hold closed sub-graphs; what they use comes in as operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.errors import ShapeError
from luban.core.types import OptionalType, SequenceType, TensorType, TupleType, Type
from luban.graph.infer import require
from luban.graph.ops.fusion import Fusion, Once
from luban.ir.node import Graph, Op

__all__ = ["OPS", "If", "Loop", "Scan", "same_kind"]


def same_kind(a: Type, b: Type) -> bool:
    """True unless dtype, rank or a constant size provably differ."""
    match a, b:
        case TensorType(), TensorType():
            sizes = zip(a.shape, b.shape, strict=False)
            constants = ((x, y) for x, y in sizes if isinstance(x, int) and isinstance(y, int))
            return a.dtype is b.dtype and a.rank == b.rank and all(x == y for x, y in constants)
        case (SequenceType(), SequenceType()) | (OptionalType(), OptionalType()):
            return True
    return a == b


def _check(what: str, given: tuple[Type, ...], expected: tuple[Type, ...]) -> None:
    if len(given) != len(expected) or not all(map(same_kind, given, expected)):
        raise ShapeError(
            f"{what}: given ({', '.join(map(str, given))}), "
            f"expected ({', '.join(map(str, expected))})"
        )


def _types(nodes: tuple[object, ...]) -> tuple[Type, ...]:
    return tuple(n.type for n in nodes)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class If(Op):
    """One of two sub-graphs, by a bool scalar: (predicate, operands...) -> results, always a tuple.

    Both take all operands. `result_types` states the results; sizes on which the branches differ
    are symbols of their own, known once the node has run.
    """

    name: ClassVar[str] = "if"
    then: Graph
    otherwise: Graph
    result_types: tuple[Type, ...]

    def infer(self, *operands: Type) -> Type:
        """The declared types."""
        if not operands:
            raise ShapeError("given no operand, expected a predicate")
        predicate, *rest = operands
        if (
            not isinstance(predicate, TensorType)
            or predicate.dtype.kind != "bool"
            or predicate.rank
        ):
            raise ShapeError(f"predicate is {predicate}, expected bool[]")
        for branch in (self.then, self.otherwise):
            _check(f"operands of {branch.name}", tuple(rest), _types(branch.parameters))
            if len(branch.results) != len(self.result_types):
                raise ShapeError(
                    f"{branch.name} has {len(branch.results)} results, "
                    f"expected {len(self.result_types)}"
                )
        return TupleType(self.result_types)


@dataclass(frozen=True, slots=True)
class Loop(Op):
    """While with a trip limit and stacked outputs: the meaning of ONNX Loop and of `while`.

    operands  limit i64[] (negative: none), condition bool[], `num_carried` carried values, captured
    body      (iteration i64[], condition bool[], carried..., captured...)
              -> (condition bool[], carried..., stacked...)
    results   carried at the end, then each stacked value along a new first axis of size `trips`;
              always a tuple

    `trips` and the sizes that change from turn to turn are symbols of their own in `result_types`.
    """

    name: ClassVar[str] = "loop"
    body: Graph
    num_carried: int
    result_types: tuple[Type, ...]

    def infer(self, *operands: Type) -> Type:
        """The declared types."""
        if len(operands) < 2:
            raise ShapeError(f"given {len(operands)} operands, expected a limit and a condition")
        limit, condition, *rest = operands
        for scalar, kind in ((limit, "int"), (condition, "bool")):
            if not isinstance(scalar, TensorType) or scalar.dtype.kind != kind or scalar.rank:
                raise ShapeError(
                    f"operand is {scalar}, expected {'i64[]' if kind == 'int' else 'bool[]'}"
                )
        expected = _types(self.body.parameters)[2:]
        if len(rest) != len(expected):
            raise ShapeError(
                f"{self.body.name} takes {len(expected)} carried and captured values, "
                f"given {len(rest)}"
            )
        if len(self.body.results) != 1 + len(self.result_types):
            raise ShapeError(
                f"{self.body.name} has {len(self.body.results)} results, "
                f"expected {1 + len(self.result_types)}"
            )
        return TupleType(self.result_types)


@dataclass(frozen=True, slots=True)
class Scan(Op):
    """A loop over one axis of its scanned operands: recurrences.

    operands  `num_carried` carried values, `len(scan_axes)` scanned tensors, then captured values
    body      (carried..., one slice of each scanned..., captured...)
              -> (carried..., one slice of each stacked...)
    results   carried at the end, then each stacked tensor along `stack_axes`; always a tuple
    Reversed axes are walked (or filled) from the end.
    """

    name: ClassVar[str] = "scan"
    body: Graph
    num_carried: int
    scan_axes: tuple[int, ...]
    scan_reverse: tuple[bool, ...]
    stack_axes: tuple[int, ...]
    stack_reverse: tuple[bool, ...]

    def infer(self, *operands: Type) -> Type:
        """Carried types, then the body's slices with the length added at the stack axis."""
        carried, scanned = (
            operands[: self.num_carried],
            operands[self.num_carried :][: len(self.scan_axes)],
        )
        captured = operands[self.num_carried + len(self.scan_axes) :]
        length: DimLike | None = None
        slices: list[Type] = []
        for given, axis in zip(scanned, self.scan_axes, strict=True):
            if not isinstance(given, TensorType) or not 0 <= axis < given.rank:
                raise ShapeError(f"scanned operand is {given}, it has no axis {axis}")
            size = given.shape[axis]
            length = size if length is None else length
            low, high = dims.bounds(size - length)
            if low > 0 or high < 0:
                raise ShapeError(
                    f"scanned operands have lengths {length} and {size}, expected one length"
                )
            slices.append(given.with_shape((*given.shape[:axis], *given.shape[axis + 1 :])))
        if length is None:
            raise ShapeError("scan has no scanned operand, expected at least one")
        _check(
            f"operands of {self.body.name}",
            (*carried, *slices, *captured),
            _types(self.body.parameters),
        )
        results = _types(self.body.results)
        _check("carried results", results[: self.num_carried], tuple(carried))
        stacked: list[Type] = []
        for item, axis in zip(results[self.num_carried :], self.stack_axes, strict=True):
            require(isinstance(item, TensorType), item, "a tensor")  # type: ignore[arg-type]
            assert isinstance(item, TensorType)
            stacked.append(item.with_shape((*item.shape[:axis], length, *item.shape[axis:])))
        return TupleType((*carried, *stacked))


def sub_graphs(op: Op) -> Mapping[str, Graph]:
    """The sub-graphs of an operation by field name; empty for all but control flow and fusions."""
    match op:
        case If():
            return {"then": op.then, "otherwise": op.otherwise}
        case Loop() | Scan() | Fusion() | Once():
            return {"body": op.body}
    return {}


OPS: tuple[type[Op], ...] = (If, Loop, Scan)
