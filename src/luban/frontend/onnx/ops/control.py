"""If, Loop and Scan, decided and repeated at run time; a constant If is decided here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx

from luban.core.dims import DimLike, maximum
from luban.core.errors import ShapeError
from luban.core.loc import Loc
from luban.core.types import TensorType, Type
from luban.frontend.onnx.bodies import Body, read_body
from luban.frontend.onnx.joining import joined, open_outside
from luban.frontend.onnx.loose import are_one_number
from luban.frontend.onnx.registry import NodeContext, op
from luban.frontend.onnx.size_checks import BranchCheck, same_sizes, size_check
from luban.graph import build
from luban.graph.ops.control import If, Loop, Scan
from luban.ir.node import Graph, Node, located, map_graph, node, rebuilt, results_of

__all__: list[str] = []

_MAX_ROUNDS = 8


@op("If")
def if_(ctx: NodeContext, predicate: Node) -> tuple[Node, ...]:
    """One of two branches; sizes on which they differ are known once it has run."""
    known = ctx.constant_value(predicate)
    if known is not None:
        name = "then_branch" if known.reshape(()) else "else_branch"
        return read_body(ctx, ctx.body(name), name, (), closed=False).results
    then, otherwise = (
        read_body(ctx, ctx.body(name), name, (), closed=True)
        for name in ("then_branch", "else_branch")
    )
    if len(then.results) != len(otherwise.results):
        raise ctx.wrong(f"branches give {len(then.results)} and {len(otherwise.results)} values")
    then, otherwise, loose = _as_vectors(ctx, then, otherwise)
    captured = tuple(dict.fromkeys((*then.captured, *otherwise.captured)))
    names = ctx.importer.names
    inner, opened = then.inner | otherwise.inner, set[str]()
    try:
        types = tuple(
            open_outside(joined(a.type, b.type, names, "if_size", opened), inner, names, "if_size")
            for a, b in zip(then.results, otherwise.results, strict=True)
        )
    except ShapeError:
        return _assumed(ctx, predicate, then, otherwise)
    choice = If(then.closed(captured), otherwise.closed(captured), types)
    results = results_of(node(choice, build.reshape(predicate, ()), *captured))
    ctx.importer.loose.origin.update((results[i], ctx.loc.path) for i in loose)
    return results


def _as_vectors(ctx: NodeContext, then: Body, otherwise: Body) -> tuple[Body, Body, list[int]]:
    """The branches with numbers as vectors of one where the other gives such; which these are.

    Nothing changes if ranks differ otherwise too, or if it is known that they matter for this If.
    """
    pairs = list(zip(then.results, otherwise.results, strict=True))
    differing = [i for i, (a, b) in enumerate(pairs) if _rank(a) != _rank(b)]
    if ctx.loc.path in ctx.importer.loose.fixed or not all(
        are_one_number(pairs[i][0].type, pairs[i][1].type) for i in differing
    ):
        return then, otherwise, []

    def widened(body: Body) -> Body:
        results = (
            build.reshape(r, (1,)) if i in differing else r for i, r in enumerate(body.results)
        )
        return replace(body, results=tuple(results))

    return widened(then), widened(otherwise), differing


def _rank(x: Node) -> int | None:
    return x.type.rank if isinstance(x.type, TensorType) else None


def _assumed(ctx: NodeContext, predicate: Node, then: Body, otherwise: Body) -> tuple[Node, ...]:
    """One branch, if the two differ in the number of axes; a run that wants the other one fails.

    Exporters write `If(size == 1, Squeeze(x), x)`. What follows is made for one number of axes: the
    one that the model states for the result, else that of the first branch.
    """
    stated = [ctx.declared_type(i) for i in range(len(then.results))]
    ranks = [_stated_rank(t) for t in stated]
    fits_otherwise = all(
        rank is None or (isinstance(r.type, TensorType) and r.type.rank == rank)
        for rank, r in zip(ranks, otherwise.results, strict=True)
    )
    takes_then = not fits_otherwise or all(rank is None for rank in ranks)
    name = "then_branch" if takes_then else "else_branch"
    given, other = (then, otherwise) if takes_then else (otherwise, then)
    why = (
        f"compiled for {name}, which gives {_list(given.results)}; "
        f"the other branch gives {_list(other.results)}"
    )
    what = f"{ctx.loc}: {why}"
    ctx.importer.assumptions.append(what)
    condition = build.reshape(predicate, ())
    early = size_check(condition, takes_then, what)
    with located(Loc(ctx.loc.source, f"{ctx.loc.path}: {why}")):
        same = same_sizes(given.captured, early)
    late = BranchCheck(condition, takes_then, what)
    if early is None:
        ctx.importer.branch_checks.append(late)
    elif same is None:
        ctx.importer.size_checks.append(early)

    def checked(x: Node) -> Node:
        if early is not None:
            return x if same is None else same.get(x, x)
        return late.before(x)

    # The check comes before the branch: its own operations may fail on other sizes.
    operands = {given.scope.captured[outer]: checked(outer) for outer in given.captured}
    if not operands:
        return tuple(checked(r) for r in given.results)
    return map_graph(given.closed(given.captured), rebuilt, operands).results


def _stated_rank(stated: onnx.TypeProto | None) -> int | None:
    if stated is None or not stated.tensor_type.HasField("shape"):
        return None
    return len(stated.tensor_type.shape.dim)


def _list(nodes: Sequence[Node]) -> str:
    return ", ".join(str(n.type) for n in nodes)


@op("Loop")
def loop(
    ctx: NodeContext, limit: Node | None = None, condition: Node | None = None, *initial: Node
) -> tuple[Node, ...]:
    """While the condition holds, at most `limit` turns; scan outputs are stacked."""
    first_inner = len(ctx.importer.names.created)
    body, types = _settled(ctx, initial)
    inner = frozenset(ctx.importer.names.created[first_inner:])
    trips = _trips(ctx, body, limit, condition)
    names = ctx.importer.names
    carried = [open_outside(t, inner, names, "loop_size") for t in types]
    stacked: list[Type] = []
    for result in body.results[1 + len(initial) :]:
        outside = open_outside(result.type, inner, names, "loop_size")
        if not isinstance(outside, TensorType):
            raise ctx.wrong(f"a scan output is {outside}, expected a tensor")
        stacked.append(outside.with_shape((trips, *outside.shape)))
    captured = body.captured
    results = [build.reshape(body.results[0], ()), *body.results[1:]]
    operation = Loop(body.closed(captured, results), len(initial), (*carried, *stacked))
    at_most = build.constant(-1, "i64") if limit is None else build.maximum(_scalar(limit), 0)
    start = build.constant(True, "bool") if condition is None else _scalar(condition)
    return results_of(node(operation, at_most, start, *initial, *captured))


def _settled(ctx: NodeContext, initial: Sequence[Node]) -> tuple[Body, list[Type]]:
    """The body on types that hold at every turn: sizes that change become symbols."""
    proto = ctx.body("body")
    counters: list[Type] = [build.constant(0, "i64").type, build.constant(True, "bool").type]
    types = [x.type for x in initial]
    failures = len(ctx.importer.failures)
    opened: set[str] = set()
    for _ in range(_MAX_ROUNDS):
        del ctx.importer.failures[failures:]
        body = read_body(ctx, proto, "body", [*counters, *types], closed=True)
        if len(body.results) < 1 + len(types):
            raise ctx.wrong(f"body gives {len(body.results)} values for {len(types)} carried ones")
        names = ctx.importer.names
        wider = [
            joined(t, r.type, names, "carried", opened)
            for t, r in zip(types, body.results[1:], strict=False)
        ]
        if wider == types:
            return body, types
        types = wider
    raise ctx.unsupported(f"carried types {types} keep changing")


def _trips(ctx: NodeContext, body: Body, limit: Node | None, condition: Node | None) -> DimLike:
    """The number of turns if it is known beforehand, else a size of its own."""
    stays = body.results[0]
    holds = ctx.constant_value(stays)
    if limit is not None and (condition is None or ctx.constant_value(condition) == np.True_):
        sizes = ctx.sizes(limit)
        if sizes is not None and (stays is body.parameters[1] or holds == np.True_):
            return maximum(sizes[0], 0)
    return ctx.fresh("trips")


def _scalar(x: Node) -> Node:
    return build.reshape(x, ())


@op("Scan", since=9)
def scan(ctx: NodeContext, *inputs: Node) -> tuple[Node, ...]:
    """The body on each slice of the scanned inputs, carrying states along."""
    count = _num_scanned(ctx, inputs)
    states, scanned = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    axes = ctx.ints("scan_input_axes", (0,) * count)
    directions = ctx.ints("scan_input_directions", (0,) * count)
    return _scan(
        ctx,
        states,
        scanned,
        [axis % x.tensor.rank for axis, x in zip(axes, scanned, strict=True)],
        [bool(d) for d in directions],
    )


@op("Scan", since=8)
def scan_batched(ctx: NodeContext, lengths: Node | None, *inputs: Node) -> tuple[Node, ...]:
    """Version 8: everything has a leading batch axis, and the scanned axis is the second."""
    if lengths is not None:
        raise ctx.unsupported("sequence_lens", "opset 9 Scan without it")
    count = _num_scanned(ctx, inputs)
    directions = ctx.ints("directions", (0,) * count)
    num_states = len(inputs) - count
    rows = [
        build.parameter(f"{ctx.loc.path}/row_{i}", x.tensor.with_shape(x.tensor.shape[1:]))
        for i, x in enumerate(inputs)
    ]
    results = _scan(
        ctx, rows[:num_states], rows[num_states:], [0] * count, [bool(d) for d in directions]
    )
    captured = [n for r in results for n in r.operands[0].operands[len(rows) :]]
    captured = list(dict.fromkeys(captured))
    if captured:
        raise ctx.unsupported("a body that uses outer values", "opset 9 Scan")
    outer = Graph(f"{ctx.loc.path}/rows", tuple(rows), tuple(results))
    num_results = len(results)
    operation = Scan(
        outer, 0, (0,) * len(rows), (False,) * len(rows), (0,) * num_results, (False,) * num_results
    )
    return results_of(node(operation, *inputs))


def _num_scanned(ctx: NodeContext, inputs: Sequence[Node]) -> int:
    count = ctx.int("num_scan_inputs")
    if not 1 <= count <= len(inputs):
        raise ctx.wrong(f"num_scan_inputs is {count}, expected 1 to {len(inputs)}")
    return count


def _scan(
    ctx: NodeContext,
    states: Sequence[Node],
    scanned: Sequence[Node],
    axes: Sequence[int],
    reverse: Sequence[bool],
) -> tuple[Node, ...]:
    slices = [
        x.tensor.with_shape(s for i, s in enumerate(x.tensor.shape) if i != axis)
        for axis, x in zip(axes, scanned, strict=True)
    ]
    body = read_body(
        ctx, ctx.body("body"), "body", [*(s.type for s in states), *slices], closed=True
    )
    stacked = body.results[len(states) :]
    out_axes = ctx.ints("scan_output_axes", (0,) * len(stacked))
    out_reverse = ctx.ints("scan_output_directions", (0,) * len(stacked))
    captured = body.captured
    operation = Scan(
        body.closed(captured),
        len(states),
        tuple(axes),
        tuple(reverse),
        tuple(a % (r.tensor.rank + 1) for a, r in zip(out_axes, stacked, strict=True)),
        tuple(bool(d) for d in out_reverse),
    )
    return results_of(node(operation, *states, *scanned, *captured))
