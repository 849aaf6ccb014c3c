"""Where everything of one attention is: from a fusion body to index expressions.

The loops run over the axes of the body's result. One of them is the size of a value vector
(`column`), one counts queries (`row`), the others pick a head (`outer`); keys and the depth of a
key are axes behind those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from luban.core.dims import DimLike
from luban.core.dtypes import DTYPES
from luban.graph.attention import Attention, find_attention
from luban.graph.ops.contract import DotGeneral
from luban.ir.node import Graph, Node
from luban.lower import maths
from luban.lower.affine import Linear, axis_index, fixed, row_major
from luban.lower.nest import Group, Nest, Write
from luban.lower.operands import offset_of
from luban.lower.trace import Declined, Index, Ref, Trace

__all__ = ["AttentionPlan", "attention_plan", "holds_attention", "no_attention"]

_DEEPEST = 256  # numbers of a key or a value: beyond, two products are as fast


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Axes (by number), sizes and values of one attention.

    query, score   values: a query's element, what softmax is taken of
    raw            q k', as `score` knows it
    key, value     loads
    target         the place of a result
    blind          where this holds for a query all its weights are 0; a query of which weights are
                   NaN is meant if it is the stage `weights` itself
    """

    nest: Nest
    outer: tuple[Group, ...]
    row: Group
    column: int
    keys: int
    inner: int
    num_keys: DimLike
    depth: int
    columns: int
    query: Ref
    key: Ref
    value: Ref
    raw: Ref
    score: Ref
    target: Linear
    weights: Ref
    blind: Ref | None


def holds_attention(body: Graph) -> bool:
    """True if a body holds two products: it can be nothing else."""
    return sum(isinstance(n.op, DotGeneral) for n in body.nodes()) == 2


def no_attention(body: Graph) -> str | None:
    """Why this body has no kernel, or None if it has one."""
    try:
        attention_plan(body)
    except Declined as reason:
        return str(reason)
    return None


def attention_plan(body: Graph) -> AttentionPlan:
    """The plan of an attention. Raises Declined with the reason if the template cannot do it."""
    (result,) = body.results
    attention = _attention(body)
    values = (result, *attention.raw.operands, attention.result.operands[1], attention.scores)
    if any(n.tensor.dtype is not DTYPES["f32"] for n in values):
        raise Declined("only attention in f32 has a kernel of its own")
    return _Planner(result, attention).plan()


def _attention(body: Graph) -> Attention:
    for n in body.nodes():
        if isinstance(n.op, DotGeneral) and isinstance(found := find_attention(n), Attention):
            return found
    raise Declined("no attention")


class _Planner:
    """Traces the body from its result to the keys."""

    def __init__(self, result: Node, attention: Attention) -> None:
        self.result = result
        self.attention = attention
        rank = result.tensor.rank
        self.keys, self.inner = rank, rank + 1
        num_keys = attention.scores.tensor.shape[-1]
        depth = _contracted(attention.raw)
        columns = attention.result.tensor.shape[-1]
        if not isinstance(depth, int) or not isinstance(columns, int):
            raise Declined("the size of a key or a value is not known")
        if not 1 <= min(depth, columns) <= max(depth, columns) <= _DEEPEST:
            raise Declined(f"keys of {depth} and values of {columns} numbers")
        self.num_keys, self.depth, self.columns = num_keys, depth, columns
        sizes = dict(enumerate(result.tensor.shape)) | {self.keys: num_keys, self.inner: depth}
        self.places: dict[Node, Index] = {}
        self.stages: dict[Node, Callable[[Index], Ref]] = {}
        self.trace = Trace(sizes, self.stages)

    def plan(self) -> AttentionPlan:
        """The plan."""
        attention, trace = self.attention, self.trace
        index = tuple(axis_index(i) for i in range(self.result.tensor.rank))
        sums = self._stage(attention.result)
        self._is(trace.value(self.result, index), sums)
        place = self.places[attention.result]
        column = _lone_axis(place[-1])
        weights = self._stage(attention.weights)
        left, value = self._operands(attention.result, axis_index(self.keys))
        blind = self._blind(left, weights)
        raw = self._stage(attention.raw)
        score = trace.value(attention.scores, self.places[attention.weights])
        if _lone_axis(self.places[attention.raw][-1]) != self.keys:
            raise Declined("keys are counted in another order than weights")
        query, key = self._operands(attention.raw, axis_index(self.inner))
        row = self._row(key, value, column)
        sizes = self.result.tensor.shape
        taken = (column, row.axis)
        outer = tuple(Group(i, s) for i, s in enumerate(sizes) if i not in taken and s != 1)
        self._check_load(key, row.axis, column, "keys")
        self._check_load(value, row.axis, self.inner, "values")
        self._check_maths(query, {self.keys, column})
        self._check_maths(score, {self.inner, column})
        return AttentionPlan(
            nest=Nest(trace, [Group(i, s) for i, s in enumerate(sizes)], []),
            outer=outer,
            row=row,
            column=column,
            keys=self.keys,
            inner=self.inner,
            num_keys=self.num_keys,
            depth=self.depth,
            columns=self.columns,
            query=query,
            key=key,
            value=value,
            raw=raw,
            score=score,
            target=row_major(index, sizes),
            weights=weights,
            blind=blind,
        )

    def _stage(self, n: Node) -> Ref:
        """Stop tracing at `n`; its place is kept. The value that stands for it."""
        ref = self.trace.ref("stage", n.tensor.dtype, value=n)

        def at(index: Index) -> Ref:
            if self.places.setdefault(n, index) != index:
                raise Declined(f"{n.op.name} is used at two places")
            return ref

        self.stages[n] = at
        return ref

    def _is(self, value: Ref, wanted: Ref) -> None:
        if value is not wanted:
            raise Declined(f"more is computed of a product ({value.kind})")

    def _blind(self, used: Ref, weights: Ref) -> Ref | None:
        """The condition under which a query's weights are all 0, if weights are used with one."""
        if used is weights:
            return None
        zero = used.args[1] if used.kind == "select" and used.args[2] is weights else None
        if zero is None or zero.kind != "constant" or zero.value != 0:
            raise Declined(f"more is computed of the weights ({used.kind})")
        condition = used.args[0]
        if condition.kind == "is_nan" and condition.args == (weights,):
            return weights
        if self.keys in _moving(condition) or weights in needed(self.trace, condition):
            raise Declined("single weights are set to 0")
        self._check_maths(condition, {self.inner})
        return condition

    def _operands(self, product: Node, step: Linear) -> tuple[Ref, Ref]:
        """The operands of a product at its known place, `step` along the contracted axis."""
        op, place = product.op, self.places[product]
        assert isinstance(op, DotGeneral)
        if len(op.lhs_contract) != 1:
            raise Declined("a product over several axes")
        lhs, rhs = product.operands
        batch = len(op.lhs_batch)
        if rhs.tensor.rank != batch + 2:
            raise Declined("the right operand of a product has several free axes")
        left = dict(zip(op.lhs_batch, place[:batch], strict=True)) | {op.lhs_contract[0]: step}
        right = dict(zip(op.rhs_batch, place[:batch], strict=True)) | {op.rhs_contract[0]: step}
        free = iter(place[batch:])
        x = tuple(left[i] if i in left else next(free) for i in range(lhs.tensor.rank))
        y = tuple(right[i] if i in right else next(free) for i in range(rhs.tensor.rank))
        return self.trace.value(lhs, x), self.trace.value(rhs, y)

    def _row(self, key: Ref, value: Ref, column: int) -> Group:
        """The axis that counts queries: the longest along which all read the same keys."""
        fixed_axes = _moving(key) | _moving(value)
        shape = self.result.tensor.shape
        rows = [i for i, s in enumerate(shape) if i != column and i not in fixed_axes and s != 1]
        wanted = {
            axis for part in self.places[self.attention.result][-2:-1] for axis in _axes(part)
        }
        chosen = [i for i in rows if i in wanted] or rows
        if not chosen:
            return Group(-1, 1)
        return Group(chosen[-1], shape[chosen[-1]])

    def _check_load(self, load: Ref, row: int, other: int, what: str) -> None:
        """Keys and values must be in memory, at places that no query decides."""
        if load.kind != "load" or load.args:
            raise Declined(f"{what} are computed ({load.kind}), not in memory")
        if {row, other} & _moving(load):
            raise Declined(f"{what} differ from query to query")
        computed = {axis for ref, _ in offset_of(load).values for axis in _moving(ref)}
        if computed & {self.keys, self.inner, *self._columns()}:
            raise Declined(f"{what} are read at places that are computed")

    def _columns(self) -> set[int]:
        return set(_axes(self.places[self.attention.result][-1]))

    def _check_maths(self, value: Ref, strange: set[int]) -> None:
        for ref in needed(self.trace, value):
            if ref.kind not in ("load", "constant", "scalar", "index", "stage"):
                maths.check(ref.kind, tuple(arg.dtype for arg in ref.args))
            elif ref.dtype.kind in ("complex", "string"):
                raise Declined(f"values of {ref.dtype} have no kernel")
        if strange & _moving(value):
            raise Declined("maths on an axis that is summed")


def needed(trace: Trace, value: Ref) -> list[Ref]:
    """Everything that a value needs, operands first."""
    return Nest(trace, [], [], [], [Write(0, value, fixed(0), False)]).needed()


def _contracted(product: Node) -> DimLike:
    op = product.op
    assert isinstance(op, DotGeneral)
    return product.operands[0].tensor.shape[op.lhs_contract[0]] if op.lhs_contract else 0


def _lone_axis(place: Linear) -> int:
    """The axis that this index is. Raises Declined if it is anything more."""
    if place.constant != 0 or place.values or [c for _, c in place.axes] != [1]:
        raise Declined("columns are split or moved behind the product")
    return place.axes[0][0]


def _axes(place: Linear) -> list[int]:
    return [axis for axis, _ in place.axes]


def _moving(value: Ref) -> set[int]:
    """The loop axes that a value depends on."""
    found: set[int] = set()
    stack, seen = [value], set()
    while stack:
        ref = stack.pop()
        if ref in seen:
            continue
        seen.add(ref)
        stack.extend(ref.args)
        if ref.offset is not None:
            found.update(_axes(ref.offset))
            stack.extend(inner for inner, _ in ref.offset.values)
    return found
