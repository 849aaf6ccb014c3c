"""A fusion body as a loop nest: kept axes, reduced axes, reductions in order, what is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.dtypes import DTYPES, DType
from luban.core.errors import InternalError
from luban.graph.ops.contract import Convolution, DotGeneral
from luban.graph.ops.packed import PanelConvolution, PanelDot, panel_depth, panel_width
from luban.graph.ops.reduce import ArgReduce, Reduce, ReduceWindow
from luban.ir.node import Graph, Node
from luban.lower import maths
from luban.lower.affine import Linear, axis_index, fixed, row_major
from luban.lower.trace import Declined, Index, Ref, Trace

REDUCING = (
    Reduce,
    ArgReduce,
    ReduceWindow,
    DotGeneral,
    PanelDot,
    Convolution,
    PanelConvolution,
)

__all__ = [
    "Group",
    "Nest",
    "Reduction",
    "Write",
    "build_nest",
    "finished",
    "merged_groups",
    "single_nest",
]


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction of `value` where `guards` hold, of the empty value elsewhere.

    A product of two values (`factor`) accumulates with one rounding.
    """

    node: Node
    kind: str
    value: Ref
    factor: Ref | None
    guards: tuple[Ref, ...]
    accumulator: DType
    result: Ref


@dataclass(frozen=True, slots=True)
class Write:
    """Store `value` at `offset` of a result; `per_element`: for every reduced index as well."""

    result: int
    value: Ref
    offset: Linear
    per_element: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Adjacent loop axes that run as one: `axis` is the innermost of them and stands for all."""

    axis: int
    size: DimLike


@dataclass(slots=True)
class Nest:
    """The loops, outermost first, with what happens inside."""

    trace: Trace
    kept: list[Group]
    reduced: list[Group]
    reductions: list[Reduction] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)

    def needed(self) -> list[Ref]:
        """The values that a reduction or a write needs, operands first."""
        roots: list[Ref] = []
        for reduction in self.reductions:
            roots += [
                reduction.value,
                *reduction.guards,
                *([reduction.factor] if reduction.factor else []),
            ]
        roots += [write.value for write in self.writes]
        seen: set[Ref] = set()
        stack = roots
        while stack:
            ref = stack.pop()
            if ref in seen:
                continue
            seen.add(ref)
            stack.extend(ref.args)
            if ref.offset is not None:
                stack.extend(value for value, _ in ref.offset.values)
        return sorted(seen, key=lambda ref: ref.number)


def build_nest(body: Graph) -> Nest:
    """The nest of a fusion body. Raises Declined with the reason if it has none."""
    order = body.nodes()
    reducing = [n for n in order if isinstance(n.op, REDUCING)]
    if not reducing:
        nest = _plain(body)
    elif all(isinstance(n.op, (Reduce, ArgReduce)) for n in reducing):
        nest = _rows(body, reducing)
    elif len(reducing) == 1:
        nest = _contraction(body, reducing[0])
    else:
        raise Declined("more than one contraction in a fusion")
    return finished(nest)


def finished(nest: Nest) -> Nest:
    """The nest with adjacent axes as one loop. Raises Declined for values without a kernel."""
    _check_maths(nest)
    _collapse(nest)
    return nest


def _check_maths(nest: Nest) -> None:
    for ref in nest.needed():
        if ref.kind not in ("load", "constant", "scalar", "index", "stage"):
            maths.check(ref.kind, tuple(arg.dtype for arg in ref.args))
        elif ref.dtype.kind in ("complex", "string"):
            raise Declined(f"values of {ref.dtype} have no kernel")


def _plain(body: Graph) -> Nest:
    shape = body.results[0].tensor.shape
    trace = Trace(dict(enumerate(shape)))
    nest = Nest(trace, [Group(i, size) for i, size in enumerate(shape)], [])
    index = tuple(axis_index(i) for i in range(len(shape)))
    for position, root in enumerate(body.results):
        if root.tensor.shape != shape:
            raise Declined(f"results of shapes {list(shape)} and {list(root.tensor.shape)}")
        nest.writes.append(
            Write(position, trace.value(root, index), row_major(index, shape), False)
        )
    return nest


def _stage(trace: Trace, node: Node, kept: Index) -> tuple[Ref, Callable[[Index], Ref]]:
    result = trace.ref("stage", node.tensor.dtype, value=node)

    def moving(place: Linear) -> Linear:
        """Without axes of one place: they are 0 whether or not the index names them."""
        axes = tuple((axis, c) for axis, c in place.axes if trace.sizes[axis] != 1)
        return Linear(place.constant, axes, place.values)

    computed = tuple(map(moving, kept))

    def at(index: Index) -> Ref:
        if tuple(map(moving, index)) != computed:
            raise Declined(f"{node.op.name} is used at another place than it is computed")
        return result

    return result, at


def _rows(body: Graph, reducing: list[Node]) -> Nest:
    first = reducing[0]
    shape, axes = first.operands[0].tensor.shape, reduced_axes(first)
    sizes = dict(enumerate(shape))
    kept = [i for i in sizes if i not in axes]
    stages: dict[Node, Callable[[Index], Ref]] = {}
    trace = Trace(sizes, stages)
    nest = Nest(trace, [Group(i, shape[i]) for i in kept], [Group(i, shape[i]) for i in axes])
    full = tuple(axis_index(i) for i in range(len(shape)))
    rest = tuple(axis_index(i) for i in kept)
    for node in reducing:
        if node.operands[0].tensor.shape != shape or reduced_axes(node) != axes:
            raise Declined("reductions over different axes")
        value = trace.value(node.operands[0], full)
        result, stages[node] = _stage(trace, node, rest)
        if isinstance(node.op, ArgReduce):
            value = trace.cast(value, DTYPES["u8"]) if value.dtype.kind == "bool" else value
            kind = f"arg_{node.op.kind}"
            nest.reductions.append(Reduction(node, kind, value, None, (), value.dtype, result))
        else:
            assert isinstance(node.op, Reduce)
            nest.reductions.append(_reduction(node, node.op.kind, value, None, (), result))
    for position, root in enumerate(body.results):
        nest.writes.append(_row_write(trace, position, root, shape, kept, full))
    return nest


def reduced_axes(node: Node) -> tuple[int, ...]:
    """The axes that a reduction removes."""
    if isinstance(node.op, ArgReduce):
        return (node.op.axis,)
    assert isinstance(node.op, Reduce)
    return node.op.axes


def _row_write(
    trace: Trace, position: int, root: Node, shape: Sequence[DimLike], kept: list[int], full: Index
) -> Write:
    given = root.tensor.shape
    if given == tuple(shape):
        return Write(position, trace.value(root, full), row_major(full, given), True)
    kept_shape = tuple(shape[i] for i in kept)
    if given == kept_shape:
        index: Index = tuple(axis_index(i) for i in kept)
    elif given == tuple(shape[i] if i in kept else 1 for i in range(len(shape))):
        index = tuple(axis_index(i) if i in kept else fixed(0) for i in range(len(shape)))
    else:
        raise Declined(f"result {list(given)} is neither {list(shape)} nor {list(kept_shape)}")
    return Write(position, trace.value(root, index), row_major(index, given), False)


def _reduction(
    node: Node, kind: str, value: Ref, factor: Ref | None, guards: tuple[Ref, ...], result: Ref
) -> Reduction:
    dtype = result.dtype
    wide = DTYPES["f32"] if dtype.is_float and dtype.bits < 32 else dtype
    return Reduction(node, kind, value, factor, guards, wide, result)


def _contraction(body: Graph, node: Node) -> Nest:
    shape = node.tensor.shape
    rank = len(shape)
    stages: dict[Node, Callable[[Index], Ref]] = {}
    sizes: dict[int, DimLike] = dict(enumerate(shape))
    inner = _inner_sizes(node)
    sizes.update({rank + i: size for i, size in enumerate(inner)})
    trace = Trace(sizes, stages)
    groups = [Group(rank + i, size) for i, size in enumerate(inner)]
    nest = Nest(trace, [Group(i, size) for i, size in enumerate(shape)], groups)
    out = tuple(axis_index(i) for i in range(rank))
    loop = tuple(axis_index(rank + i) for i in range(len(inner)))
    reduction = _contracted(trace, node, out, loop)
    result, stages[node] = _stage(trace, node, out)
    kind = node.op.kind if isinstance(node.op, ReduceWindow) else "sum"
    nest.reductions.append(_reduction(node, kind, *reduction, result))
    _write_results(nest, body, out, shape)
    return nest


def single_nest(body: Graph, node: Node) -> tuple[Nest, Reduction]:
    """What becomes of `node`, which its template computes place by place: no loop of its own.

    Every axis of the result is a loop axis. Raises Declined for maths without a kernel.
    """
    shape = node.tensor.shape
    stages: dict[Node, Callable[[Index], Ref]] = {}
    trace = Trace(dict(enumerate(shape)), stages)
    nest = Nest(trace, [Group(i, size) for i, size in enumerate(shape)], [])
    out = tuple(axis_index(i) for i in range(len(shape)))
    result, stages[node] = _stage(trace, node, out)
    reduction = _reduction(node, "sum", result, None, (), result)
    _write_results(nest, body, out, shape)
    _check_maths(nest)
    return nest, reduction


def _write_results(nest: Nest, body: Graph, out: Index, shape: Sequence[DimLike]) -> None:
    for position, root in enumerate(body.results):
        if root.tensor.shape != tuple(shape):
            raise Declined(
                f"result {list(root.tensor.shape)} beside a contraction of {list(shape)}"
            )
        value = nest.trace.value(root, out)
        nest.writes.append(Write(position, value, row_major(out, shape), False))


def _inner_sizes(node: Node) -> list[DimLike]:
    op = node.op
    match op:
        case DotGeneral():
            return [node.operands[0].tensor.shape[axis] for axis in op.lhs_contract]
        case PanelDot(group=group):
            return _grouped(panel_depth(node), group)
        case PanelConvolution(window=window, group=group):
            return [*window, *_grouped(node.operands[0].tensor.shape[-1], group)]
        case Convolution(layout="channels_first"):
            return list(node.operands[1].tensor.shape[1:])
        case Convolution():
            return list(node.operands[1].tensor.shape[:-1])
        case ReduceWindow():
            return list(op.window)
    raise InternalError(f"{op.name} is not a contraction")


def _grouped(size: DimLike, group: int) -> list[DimLike]:
    """A summed axis whose neighbours lie together in groups: the groups, and what is inside."""
    return [size] if group == 1 else [dims.floor_div(size, group), group]


def _from_groups(loop: Index, group: int) -> tuple[Linear, Index]:
    """(place on the summed axis, place of its product in panels) by the loops of `_grouped`."""
    if group == 1:
        return loop[0], (loop[0],)
    return loop[0].scaled(group) + loop[1], loop


def _contracted(
    trace: Trace, node: Node, out: Index, loop: Index
) -> tuple[Ref, Ref | None, tuple[Ref, ...]]:
    """The value, the factor and the guards of one element of a contraction."""
    match node.op:
        case DotGeneral():
            return _dot(trace, node, out, loop)
        case PanelDot():
            return _panel_dot(trace, node, out, loop)
        case PanelConvolution():
            return _panel_convolution(trace, node, out, loop)
        case Convolution():
            return _convolution(trace, node, out, loop)
        case ReduceWindow() as op:
            places: list[Linear] = []
            guards: tuple[Ref, ...] = ()
            for axis, size in enumerate(node.operands[0].tensor.shape):
                place = out[axis].scaled(op.strides[axis]) + loop[axis].scaled(op.dilation[axis])
                place = place.shifted(-op.low[axis])
                guards += trace.inside(place, size)
                places.append(place)
            return trace.value(node.operands[0], tuple(places), guards), None, guards
    raise InternalError(f"{node.op.name} is not a contraction")


def _widened(trace: Trace, value: Ref, result: DType) -> Ref:
    if result.is_float:
        return trace.cast(value, DTYPES["f32"]) if value.dtype.bits < 32 else value
    return trace.cast(value, result)


def _dot(trace: Trace, node: Node, out: Index, loop: Index) -> tuple[Ref, Ref, tuple[Ref, ...]]:
    op = node.op
    assert isinstance(op, DotGeneral)
    lhs, rhs = node.operands
    batch = len(op.lhs_batch)
    rest = iter(out[batch:])
    indices: list[Index] = []
    for operand, batched, contracted in (
        (lhs, op.lhs_batch, op.lhs_contract),
        (rhs, op.rhs_batch, op.rhs_contract),
    ):
        place = dict(zip(batched, out[:batch], strict=True)) | dict(
            zip(contracted, loop, strict=True)
        )
        indices.append(
            tuple(place[i] if i in place else next(rest) for i in range(operand.tensor.rank))
        )
    x, y = trace.value(lhs, indices[0]), trace.value(rhs, indices[1])
    return _widened(trace, x, op.dtype), _widened(trace, y, op.dtype), ()


def _panel_dot(
    trace: Trace, node: Node, out: Index, loop: Index
) -> tuple[Ref, Ref, tuple[Ref, ...]]:
    op, (lhs, panels) = node.op, node.operands
    assert isinstance(op, PanelDot)
    panel, place = trace.quotient(out[-1], panel_width(node))
    depth, (row, *inside) = _from_groups(loop, op.group)
    x = trace.value(lhs, (*out[:-1], depth))
    y = trace.value(panels, (*out[: op.batch], panel, row, place, *inside))
    return _widened(trace, x, op.dtype), _widened(trace, y, op.dtype), ()


def _panel_convolution(
    trace: Trace, node: Node, out: Index, loop: Index
) -> tuple[Ref, Ref, tuple[Ref, ...]]:
    op, (lhs, panels) = node.op, node.operands
    assert isinstance(op, PanelConvolution)
    taps, (channel, (inner, *inside)) = (
        loop[: len(op.window)],
        _from_groups(loop[len(op.window) :], op.group),
    )
    places: list[Linear] = []
    row: Linear = fixed(0)
    for axis, tap in enumerate(taps):
        places.append(out[axis + 1].scaled(op.strides[axis]) + tap.scaled(op.dilation[axis]))
        row = row.scaled(op.window[axis]) + tap
    row = row.scaled(dims.floor_div(lhs.tensor.shape[-1], op.group)) + inner
    panel, place = trace.quotient(out[-1], panel_width(node))
    x = trace.value(lhs, (out[0], *places, channel))
    y = trace.value(panels, (panel, row, place, *inside))
    return _widened(trace, x, op.dtype), _widened(trace, y, op.dtype), ()


def _convolution(
    trace: Trace, node: Node, out: Index, loop: Index
) -> tuple[Ref, Ref, tuple[Ref, ...]]:
    op = node.op
    assert isinstance(op, Convolution)
    lhs, rhs = node.operands
    rank = len(op.strides)
    first = op.layout == "channels_first"
    batch, channel, space = (out[0], out[1], out[2:]) if first else (out[0], out[-1], out[1:-1])
    inner, taps = (loop[0], loop[1:]) if first else (loop[-1], loop[:-1])
    extent = lhs.tensor.shape[2:] if first else lhs.tensor.shape[1:-1]
    guards: tuple[Ref, ...] = ()
    places: list[Linear] = []
    for axis in range(rank):
        place = space[axis].scaled(op.strides[axis]) + taps[axis].scaled(op.rhs_dilation[axis])
        source, mine = trace.spread(
            place.shifted(-op.low[axis]), op.lhs_dilation[axis], extent[axis]
        )
        guards += mine
        places.append(source)
    channel_in = inner
    if op.groups > 1:
        outputs = node.tensor.shape[1] if first else node.tensor.shape[-1]
        inputs = rhs.tensor.shape[1] if first else rhs.tensor.shape[-2]
        group, _ = trace.quotient(channel, dims.floor_div(outputs, op.groups))
        channel_in = group.scaled(inputs) + inner
    x_index = (batch, channel_in, *places) if first else (batch, *places, channel_in)
    y_index = (channel, inner, *taps) if first else (*taps, inner, channel)
    x = trace.value(lhs, x_index, guards)
    y = trace.value(rhs, y_index)
    return _widened(trace, x, op.dtype), _widened(trace, y, op.dtype), guards


def _collapse(nest: Nest) -> None:
    """Run adjacent axes as one loop wherever every index moves as if they were one."""
    forms = [ref.offset for ref in nest.needed() if ref.offset is not None]
    forms += [write.offset for write in nest.writes]
    nest.kept = merged_groups(nest.kept, forms)
    nest.reduced = merged_groups(nest.reduced, forms)


def merged_groups(groups: list[Group], forms: list[Linear]) -> list[Group]:
    """Adjacent groups as one wherever all forms move as if they were one; sizes of 1 dropped."""
    result: list[Group] = []
    for group in groups:
        if group.size == 1:
            continue
        if result:
            outer = result[-1]
            step = group.size
            if all(f.coefficient(outer.axis) == f.coefficient(group.axis) * step for f in forms):
                result[-1] = Group(group.axis, outer.size * group.size)
                continue
        result.append(group)
    return result
