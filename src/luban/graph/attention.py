"""What attention looks like in primitives: softmax(scores(q k')) v.

`scores` is any elementwise maths: scale, mask, bias, cap. Used by the pass that makes attention one
kernel and by the lowering of that kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from luban.graph.ops.contract import DotGeneral
from luban.graph.ops.elementwise import (
    BINARY,
    UNARY,
    UNARY_BOOL,
    Bitcast,
    Cast,
    ElementwiseOp,
    Select,
)
from luban.graph.ops.reduce import Reduce
from luban.graph.ops.structure import BroadcastInDim, Reshape
from luban.ir.node import Node

__all__ = ["Attention", "find_attention"]

_ELEMENTWISE = (ElementwiseOp, Select, Cast, Bitcast)
_RENAMING = (BroadcastInDim, Reshape)


@dataclass(frozen=True, slots=True)
class Attention:
    """The parts of one attention.

    result   the product with v: weights are its left operand, perhaps reshaped, perhaps with zeros
             where a query sees nothing
    weights  exp(scores - max) / sum
    scores   what softmax is taken of, along its last axis
    raw      q k'
    members  every node from `raw` to `result`
    """

    result: Node
    weights: Node
    scores: Node
    raw: Node
    members: frozenset[Node]


def find_attention(result: Node) -> Attention | str:
    """The attention that ends in this product, or why it is none."""
    op = result.op
    if not isinstance(op, DotGeneral):
        return "no product"
    path, weights = _to_softmax(result)
    members = _softmax(weights)
    if members is None:
        return "the left operand is no softmax"
    last = result.operands[0].tensor.rank - 1
    if op.lhs_contract != (last,) or _last_differs(result.operands[0], weights):
        return "the product does not sum over the axis of the softmax"
    scores = weights.operands[0].operands[0].operands[0]
    inner, raws = _between(scores)
    if len(raws) != 1:
        return f"the scores come from {len(raws)} products"
    (raw,) = raws
    return Attention(result, weights, scores, raw, frozenset({*path, *members, *inner}))


def _to_softmax(result: Node) -> tuple[set[Node], Node]:
    """(what stands between a product and a softmax, the softmax): other names, zeros in places."""
    path = {result}
    current = result.operands[0]
    while True:
        if isinstance(current.op, Reshape):
            path.add(current)
            current = current.operands[0]
        elif isinstance(current.op, Select):
            path.add(current)
            condition, _, current = current.operands
            if isinstance(condition.op, UNARY_BOOL["is_nan"]) and condition.operands[0] is current:
                path.add(condition)
        else:
            return path, current


def _last_differs(x: Node, y: Node) -> bool:
    return x.tensor.shape[-1] != y.tensor.shape[-1]


def _softmax(weights: Node) -> set[Node] | None:
    """The nodes of exp(x - max(x)) / sum(exp(x - max(x))) along the last axis."""
    if not isinstance(weights.op, BINARY["divide"]):
        return None
    e, divisor = weights.operands
    if not isinstance(e.op, UNARY["exp"]) or not isinstance(e.operands[0].op, BINARY["subtract"]):
        return None
    x, offset = e.operands[0].operands
    members = {weights, e, e.operands[0]}
    for kind, of, repeated in (("sum", e, divisor), ("maximum", x, offset)):
        *views, total = _unnamed(repeated)
        axes = (of.tensor.rank - 1,)
        if not isinstance(total.op, Reduce) or total.op.kind != kind or total.op.axes != axes:
            return None
        if total.operands[0] is not of:
            return None
        members |= {*views, total}
    return members


def _unnamed(n: Node) -> Iterator[Node]:
    """The node and what it is a broadcast or another name of, down to the first of another kind."""
    yield n
    while isinstance(n.op, _RENAMING):
        n = n.operands[0]
        yield n


def _between(scores: Node) -> tuple[set[Node], set[Node]]:
    """(the nodes through which products reach the scores, those products)."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [(scores, False)]
    while stack:
        current, done = stack.pop()
        if done:
            order.append(current)
        elif current not in seen:
            seen.add(current)
            stack.append((current, True))
            if isinstance(current.op, (*_ELEMENTWISE, Reshape)):
                stack.extend((operand, False) for operand in current.operands)
    raws = {n for n in order if isinstance(n.op, DotGeneral)}
    inside: set[Node] = set(raws)
    for n in order:
        if any(operand in inside for operand in n.operands) and n not in raws:
            inside.add(n)
    return inside, raws
