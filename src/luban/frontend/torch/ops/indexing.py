"""Reading and writing at places that other tensors name.

Negative places count from the end, where PyTorch allows it. A place outside is an error in eager
PyTorch; here reading takes the nearest place, and writing leaves it out.
"""

from __future__ import annotations

from collections.abc import Sequence

from luban.core.dims import DimLike
from luban.frontend.torch.call import Call, Operand, axis_of
from luban.frontend.torch.registry import aten
from luban.graph import build
from luban.graph.infer import broadcast_shapes
from luban.graph.ops.reduce import Cumulative
from luban.graph.ops.structure import Gather, Scatter
from luban.ir.node import Node, node

__all__: list[str] = []

_COMBINE = {
    "sum": "add",
    "add": "add",
    "prod": "multiply",
    "multiply": "multiply",
    "amax": "maximum",
    "amin": "minimum",
}


@aten("embedding.default")
def embedding(
    call: Call,
    weight: Node,
    indices: Node,
    _padding: int = -1,
    _by_frequency: bool = False,
    _sparse: bool = False,
) -> Node:
    """Rows of a table."""
    return build.take(weight, indices, 0)


@aten("index_select.default")
def index_select(call: Call, x: Node, dim: int, indices: Node) -> Node:
    """Places of an axis."""
    if not x.tensor.rank:
        return x
    places = indices if indices.tensor.rank else build.expand_dims(indices, [0])
    return build.take(x, places, axis_of(dim, x.tensor.rank))


@aten("index.Tensor")
def index(call: Call, x: Node, indices: Sequence[Node | None]) -> Node:
    """Advanced indexing: tensors of places for some axes."""
    axes, places, order, shape = _places(call, x, indices)
    rest = [axis for axis in range(x.tensor.rank) if axis not in axes]
    moved = build.transpose(x, [*axes, *rest])
    count = len(axes)
    offsets = tuple(range(len(shape), len(shape) + len(rest)))
    sizes = (*(1 for _ in axes), *(x.tensor.shape[axis] for axis in rest))
    op = Gather(offsets, tuple(range(count)), (), (), tuple(range(count)), sizes)
    return build.transpose(node(op, moved, places), order)


@aten("index_put.default", "_unsafe_index_put.default")
def index_put(
    call: Call, x: Node, indices: Sequence[Node | None], values: Node, accumulate: bool = False
) -> Node:
    """x with values written, or added, at the places that advanced indexing names."""
    if len(indices) == 1 and indices[0] is not None and indices[0].tensor.dtype.kind == "bool":
        return _put_where(x, indices[0], build.cast(values, x.tensor.dtype), accumulate)
    axes, places, order, shape = _places(call, x, indices)
    rest = [axis for axis in range(x.tensor.rank) if axis not in axes]
    moved = build.transpose(x, [*axes, *rest])
    sizes = (*shape, *(x.tensor.shape[axis] for axis in rest))
    turned = build.broadcast_to(values, [sizes[axis] for axis in order])
    updates = build.transpose(turned, _inverse(order))
    count = len(axes)
    window = tuple(range(len(shape), len(sizes)))
    numbers = tuple(range(count))
    op = Scatter("add" if accumulate else "replace", window, numbers, (), (), numbers)
    written = node(op, moved, places, build.cast(updates, x.tensor.dtype))
    return build.transpose(written, _inverse([*axes, *rest]))


def _put_where(x: Node, mask: Node, values: Node, accumulate: bool) -> Node:
    """x with values, in order, where the mask of its first axes is true."""
    rest = x.tensor.shape[mask.tensor.rank :]
    wide = build.reshape(mask, (*mask.tensor.shape, *(1 for _ in rest)))
    several = values.tensor.rank == len(rest) + 1 and values.tensor.shape[0] != 1
    if several:
        values = build.take(values, build.reshape(_count_before(mask), mask.tensor.shape), 0)
    elif values.tensor.rank == len(rest) + 1:
        values = build.squeeze(values, [0])
    values = build.broadcast_to(values, x.tensor.shape)
    if accumulate:
        values = build.binary("bitwise_or" if x.tensor.dtype.kind == "bool" else "add", x, values)
    return build.select(wide, values, x)


def _count_before(mask: Node) -> Node:
    """For each element, in order, how many before it are true: i64[count]."""
    flat = build.cast(build.reshape(mask, (mask.tensor.num_elements,)), "i64")
    return node(Cumulative("sum", 0, True, False), flat)


def _places(
    call: Call, x: Node, indices: Sequence[Node | None]
) -> tuple[list[int], Node, list[int], tuple[DimLike, ...]]:
    """Indexed axes; their places [*shape, axes]; the order of axes that PyTorch gives; the shape.

    That order is of [*shape, *other axes]: the shape stands where the first indexed axis was, if
    they are neighbours, else in front.
    """
    axes = [axis for axis, given in enumerate(indices) if given is not None]
    listed = [given for given in indices if given is not None]
    if any(
        given.tensor.dtype.kind == "bool" or given.tensor.dtype.name == "u8" for given in listed
    ):
        raise call.wrong("places given as a mask: how many there are, only the run knows")
    shape = broadcast_shapes(*(given.tensor.shape for given in listed))
    columns = []
    for axis, given in zip(axes, listed, strict=True):
        place = build.broadcast_to(_from_the_end(given, x.tensor.shape[axis]), shape)
        columns.append(build.expand_dims(place, [len(shape)]))
    first = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    rest = list(range(len(shape), len(shape) + x.tensor.rank - len(axes)))
    order = [*rest[:first], *range(len(shape)), *rest[first:]]
    return axes, build.concatenate(columns, len(shape)), order, shape


def _from_the_end(places: Node, size: DimLike) -> Node:
    wide = build.cast(places, "i64")
    return build.select(build.less(wide, 0), build.add(wide, build.dimension(size)), wide)


def _inverse(order: Sequence[int]) -> list[int]:
    return [order.index(axis) for axis in range(len(order))]


@aten("gather.default")
def gather(call: Call, x: Node, dim: int, index: Node, *, sparse_grad: bool = False) -> Node:
    """Elements whose place along one axis another tensor states."""
    if not x.tensor.rank:
        return build.broadcast_to(x, index.tensor.shape)
    if not index.tensor.rank:
        return build.reshape(build.take(build.reshape(x, (x.tensor.num_elements,)), index, 0), ())
    if 0 in index.tensor.shape:
        return build.full(index.tensor.shape, 0, x.tensor.dtype)
    places = _all_places(index, axis_of(dim, x.tensor.rank))
    rank = x.tensor.rank
    numbers = tuple(range(rank))
    return node(Gather((), numbers, (), (), numbers, (1,) * rank), x, places)


@aten("scatter.src", "scatter.value")
def scatter(call: Call, x: Node, dim: int, index: Node, source: Operand) -> Node:
    """x with elements written at stated places of one axis."""
    return _scattered(call, "replace", x, dim, index, source)


@aten("scatter_add.default")
def scatter_add(call: Call, x: Node, dim: int, index: Node, source: Node) -> Node:
    """x with elements added at stated places of one axis."""
    return _scattered(call, "add", x, dim, index, source)


@aten("scatter.reduce", "scatter.value_reduce")
def scatter_reduced(
    call: Call, x: Node, dim: int, index: Node, source: Operand, *, reduce: str
) -> Node:
    """x with elements added to, or multiplied into, stated places of one axis."""
    return _scattered(call, _COMBINE[reduce], x, dim, index, source)


@aten("scatter_reduce.two")
def scatter_reduce(
    call: Call,
    x: Node,
    dim: int,
    index: Node,
    source: Node,
    reduce: str,
    *,
    include_self: bool = True,
) -> Node:
    """x with elements combined at stated places of one axis."""
    if reduce == "mean":
        return _scattered_means(call, x, dim, index, source, include_self)
    if not include_self:
        empty = {"sum": 0.0, "prod": 1.0}.get(reduce)
        if empty is None:
            element = x.tensor.dtype
            empty = element.lowest if reduce == "amax" else element.highest
        x = scatter(call, x, dim, index, empty)
    return _scattered(call, _COMBINE[reduce], x, dim, index, source)


def _scattered_means(
    call: Call, x: Node, dim: int, index: Node, source: Node, include_self: bool
) -> Node:
    """The mean of what comes to each place; x where nothing does."""
    element = x.tensor.dtype
    one = build.full(x.tensor.shape, 1, element)
    many = _scattered(call, "add", one, dim, index, 1)  # with the element that was there
    if include_self:
        total = _scattered(call, "add", x, dim, index, source)
        return _quotient(total, many)
    from_nothing = _scattered(
        call, "add", build.full(x.tensor.shape, 0, element), dim, index, source
    )
    some = build.greater(many, 1)
    count = build.select(some, build.subtract(many, 1), many)
    return build.select(some, _quotient(from_nothing, count), x)


def _quotient(total: Node, count: Node) -> Node:
    """Integers are rounded down, as PyTorch does."""
    if total.tensor.dtype.is_float:
        return build.divide(total, count)
    return build.divide(build.subtract(total, build.floor_mod(total, count)), count)


def _scattered(call: Call, combine: str, x: Node, dim: int, index: Node, source: Operand) -> Node:
    element, rank = x.tensor.dtype, x.tensor.rank
    if not rank:
        flat = _scattered(
            call, combine, build.reshape(x, (1,)), 0, build.reshape(index, (1,)),
            build.reshape(source, (1,)) if isinstance(source, Node) else source,
        )  # fmt: skip
        return build.reshape(flat, ())
    if isinstance(source, Node):
        updates = build.cast(source, element)
        for axis, size in enumerate(index.tensor.shape):
            updates = build.slice_axis(updates, axis, 0, size)
    else:
        updates = build.broadcast_to(call.operand(source, element), index.tensor.shape)
    if 0 in index.tensor.shape:
        return x
    if element.kind == "bool":  # one or the other, this and that
        combine = {"add": "maximum", "multiply": "minimum"}.get(combine, combine)
        x, updates = build.cast(x, "u8"), build.cast(updates, "u8")
    numbers = tuple(range(rank))
    op = Scatter(combine, (), numbers, (), (), numbers)
    return build.cast(node(op, x, _all_places(index, axis_of(dim, rank)), updates), element)


def _all_places(index: Node, axis: int) -> Node:
    """[*index shape, rank]: the own place along each axis, and the stated one along `axis`."""
    shape = index.tensor.shape
    columns = [
        build.cast(index, "i64") if i == axis else build.iota(shape, i) for i in range(len(shape))
    ]
    return build.concatenate([build.expand_dims(c, [len(shape)]) for c in columns], len(shape))


@aten("index_add.default")
def index_add(
    call: Call, x: Node, dim: int, index: Node, source: Node, *, alpha: float = 1
) -> Node:
    """x with slices added at places of an axis."""
    if not x.tensor.rank:
        return build.add(x, build.reshape(build.multiply(source, alpha), ()))
    axis = axis_of(dim, x.tensor.rank)
    rank = x.tensor.rank
    places = build.expand_dims(
        build.reshape(build.cast(index, "i64"), (index.tensor.num_elements,)), [1]
    )
    moved = build.transpose(source, [axis, *(i for i in range(rank) if i != axis)])
    target = build.transpose(x, [axis, *(i for i in range(rank) if i != axis)])
    updates = moved if alpha == 1 else build.multiply(moved, alpha)
    op = Scatter("add", tuple(range(1, rank)), (0,), (), (), (0,))
    back = _inverse([axis, *(i for i in range(rank) if i != axis)])
    return build.transpose(node(op, target, places, build.cast(updates, x.tensor.dtype)), back)


@aten("masked_scatter.default")
def masked_scatter(call: Call, x: Node, mask: Node, source: Node) -> Node:
    """x with the elements of `source`, in order, where the mask is true."""
    shape = call.type.shape
    chosen = build.broadcast_to(mask, shape)
    before = _count_before(chosen)
    values = build.reshape(source, (source.tensor.num_elements,))
    taken = build.take(values, build.reshape(before, shape), 0)
    return build.select(chosen, taken, build.broadcast_to(x, shape))


@aten("masked_scatter_backward.default")
def masked_scatter_backward(call: Call, grad: Node, mask: Node, _sizes: Sequence[DimLike]) -> Node:
    """The gradients of those elements that were written, in order, then zeros."""
    count = call.type.num_elements
    chosen = build.broadcast_to(mask, grad.tensor.shape)
    total = chosen.tensor.num_elements
    flat = build.reshape(chosen, (total,))
    places = build.select(flat, _count_before(chosen), build.dimension(count))  # else outside
    target = build.full((count,), 0, grad.tensor.dtype)
    op = Scatter("replace", (), (0,), (), (), (0,))
    updates = build.reshape(grad, (total,))
    return build.reshape(node(op, target, build.expand_dims(places, [1]), updates), call.type.shape)
