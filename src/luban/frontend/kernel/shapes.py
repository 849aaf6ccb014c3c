"""Making blocks, casting them and changing their shape."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from luban.frontend.kernel.memory import pointer_cast
from luban.frontend.kernel.promote import to_tensor, together
from luban.frontend.kernel.table import builtin
from luban.frontend.kernel.types import ElementType, PointerType, element_type
from luban.frontend.kernel.values import BlockPointer, Pointer, Tensor, is_number
from luban.tile.expr import Expr
from luban.tile.types import broadcast_shapes

if TYPE_CHECKING:
    from luban.frontend.kernel.interpret import Interpreter

__all__: list[str] = []


def _extents(run: Interpreter, shape: Any) -> tuple[int, ...]:
    if isinstance(shape, int):
        shape = (shape,)
    found = []
    for extent in shape:
        if isinstance(extent, Tensor) or not isinstance(getattr(extent, "value", extent), int):
            run.fail(
                f"an extent is {run.said(extent)}, expected a constant",
                hint="declare the parameter as tl.constexpr",
            )
        found.append(int(getattr(extent, "value", extent)))
    return tuple(found)


def _flat_extents(run: Interpreter, shape: tuple[Any, ...]) -> tuple[int, ...]:
    """Extents given one by one, or as one tuple."""
    one = len(shape) == 1 and isinstance(shape[0], (tuple, list))
    return _extents(run, shape[0] if one else shape)


def _type(run: Interpreter, dtype: Any) -> ElementType:
    found = element_type(dtype)
    if not isinstance(found, ElementType):
        run.fail(f"the type is {run.said(dtype)}, expected one like tl.float32")
    return found


@builtin("blocks")
def arange(run: Interpreter, start: Any, end: Any) -> Tensor:
    """start, start + 1, ... end - 1 as int32. Both are constants, and 2**k apart."""
    for what, given in (("start", start), ("end", end)):
        if isinstance(given, Tensor) or not isinstance(given, int):
            run.fail(
                f"tl.arange: {what} is {run.said(given)}, expected a constant",
                hint="declare the parameter as tl.constexpr",
            )
    count = end - start
    if count < 1 or count & (count - 1):
        run.fail(
            f"tl.arange({start}, {end}) has {count} elements, expected a power of two",
            hint="round up with triton.next_power_of_2 and mask what is beyond",
        )
    found = run.b.arange(count, "i32")
    return Tensor(found + start if start else found)


@builtin("blocks")
def full(run: Interpreter, shape: Any, value: Any, dtype: Any = None) -> Tensor:
    """A block of one number."""
    extents = _extents(run, shape)
    wanted = _type(run, dtype) if dtype is not None else run.tensor(value).type
    return Tensor(run.b.broadcast(run.cast(value, wanted).expr, extents))


@builtin("blocks")
def zeros(run: Interpreter, shape: Any, dtype: Any) -> Tensor:
    """A block of zeros."""
    return full(run, shape, 0, dtype)


@builtin("blocks")
def zeros_like(run: Interpreter, input: Any) -> Tensor:
    """Zeros in the shape and type of another block."""
    return full(run, input.shape, 0, input.type)


@builtin("blocks", "cast", "to", method=True)
def cast(
    run: Interpreter, input: Any, dtype: Any, fp_downcast_rounding: Any = None, bitcast: Any = False
) -> Any:
    """The same numbers in another type, or with `bitcast` the same bits."""
    if fp_downcast_rounding not in (None, "rtne"):
        run.fail(f"rounding {fp_downcast_rounding!r}, expected 'rtne' (to nearest even)")
    wanted = element_type(dtype)
    if isinstance(input, Pointer):
        if isinstance(wanted, PointerType):
            return pointer_cast(run, input, wanted)
        run.fail(f"a cast of {input} to {run.said(dtype)}", hint="addresses are no numbers here")
    found = _type(run, dtype)
    if is_number(input):
        return to_tensor(run.b, input, found)
    given = run.tensor(input)
    if not bitcast:
        return run.cast(given, found)
    if given.type.primitive_bitwidth != found.primitive_bitwidth:
        run.fail(f"bitcast of {given} to {found}: the widths differ")
    return given if given.type == found else Tensor(run.b.bitcast(given.expr, found.dtype))


def _reshape(run: Interpreter, x: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(x, Pointer):
        return x.moved(run.b.reshape(x.offsets, shape))
    given = run.tensor(x)
    if -1 in shape:
        known = prod(extent for extent in shape if extent != -1)
        shape = tuple(prod(given.shape) // known if n == -1 else n for n in shape)
    if prod(shape) != prod(given.shape):
        run.fail(f"{given} to shape {list(shape)}, expected {prod(given.shape)} elements")
    if given.shape == shape:
        return given
    if not given.shape:
        return Tensor(run.b.broadcast(given.expr, shape))
    return Tensor(run.b.reshape(given.expr, shape))


@builtin("shapes", "reshape", "view", method=True)
def reshape(run: Interpreter, input: Any, *shape: Any, can_reorder: Any = False) -> Any:
    """The same elements in another shape, in row-major order."""
    del can_reorder
    return _reshape(run, input, _flat_extents(run, shape))


@builtin("shapes", method=True)
def ravel(run: Interpreter, x: Any, can_reorder: Any = False) -> Any:
    """The elements in one axis."""
    del can_reorder
    return _reshape(run, x, (prod(x.shape),))


@builtin("shapes", method=True)
def expand_dims(run: Interpreter, input: Any, axis: Any) -> Any:
    """An axis of extent 1 more, or several."""
    given = input if isinstance(input, Pointer) else run.tensor(input)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    rank = len(given.shape) + len(axes)
    places = {a % rank for a in axes}
    rest = iter(given.shape)
    return _reshape(run, given, tuple(1 if a in places else next(rest) for a in range(rank)))


@builtin("shapes", method=True)
def broadcast_to(run: Interpreter, input: Any, *shape: Any) -> Any:
    """Repeat along axes of extent 1."""
    extents = _flat_extents(run, shape)
    given = input if isinstance(input, Pointer) else run.tensor(input)
    if broadcast_shapes(given.shape, extents) != extents:
        run.fail(f"{given} does not broadcast to {list(extents)}")
    if isinstance(given, Pointer):
        return given.moved(run.b.broadcast(given.offsets, extents))
    return Tensor(run.b.broadcast(given.expr, extents))


@builtin("shapes")
def broadcast(run: Interpreter, input: Any, other: Any) -> tuple[Tensor, Tensor]:
    """Two blocks in their common shape."""
    left, right = run.tensor(input), run.tensor(other)
    shape = broadcast_shapes(left.shape, right.shape)
    if shape is None:
        run.fail(f"{left} and {right} do not broadcast")
    return tuple(Tensor(run.b.broadcast(x.expr, shape)) for x in (left, right))  # type: ignore[return-value]


@builtin("shapes", "trans", method=True)
def trans(run: Interpreter, input: Any, *dims: Any) -> Any:
    """Axes exchanged: the last two, or in the order given."""
    given = input if isinstance(input, Pointer) else run.tensor(input)
    rank = len(given.shape)
    order = _flat_extents(run, dims) if dims else (*range(rank - 2), rank - 1, rank - 2)
    if sorted(a % rank for a in order) != list(range(rank)) or rank < 2:
        run.fail(f"axes {list(order)} of {given}, expected each of its axes once")
    order = tuple(a % rank for a in order)
    if isinstance(given, Pointer):
        return given.moved(run.b.transpose(given.offsets, order))
    return Tensor(run.b.transpose(given.expr, order))


@builtin("shapes", method=True)
def permute(run: Interpreter, input: Any, *dims: Any) -> Any:
    """Axes in another order."""
    return trans(run, input, *dims)


@builtin("shapes")
def join(run: Interpreter, a: Any, b: Any) -> Tensor:
    """Two blocks side by side along a new last axis."""
    left, right = together(run.b, run.tensor(a), run.tensor(b))
    shape = broadcast_shapes(left.shape, right.shape) or ()
    parts = [
        run.b.reshape(run.b.broadcast(x.expr, shape), (*shape, 1))
        if shape
        else run.b.broadcast(x.expr, (1,))
        for x in (left, right)
    ]
    return Tensor(run.b.concat(parts, len(shape)))


@builtin("shapes", method=True)
def split(run: Interpreter, a: Any) -> tuple[Tensor, Tensor]:
    """The two halves along a last axis of extent 2."""
    given = run.tensor(a)
    if not given.shape or given.shape[-1] != 2:
        run.fail(f"tl.split of {given}, expected a last axis of extent 2")
    before = given.shape[:-1]

    def half(index: int) -> Tensor:
        offsets = (*[0] * len(before), index)
        part = run.b.extract_slice(given.expr, offsets, (*before, 1))
        return Tensor(run.b.reshape(part, before))

    return half(0), half(1)


@builtin("shapes")
def interleave(run: Interpreter, a: Any, b: Any) -> Tensor:
    """Elements of two blocks in turn along the last axis."""
    joined = join(run, a, b)
    shape = joined.shape[:-1]
    if not shape:
        return joined
    found: Tensor = _reshape(run, joined, (*shape[:-1], 2 * shape[-1]))
    return found


@builtin("shapes")
def cat(run: Interpreter, input: Any, other: Any, can_reorder: Any = False, dim: Any = 0) -> Tensor:
    """One block behind the other."""
    del can_reorder
    left, right = together(run.b, run.tensor(input), run.tensor(other))
    return Tensor(run.b.concat([left.expr, right.expr], int(dim)))


@builtin("shapes")
def flip(run: Interpreter, x: Any, dim: Any = None) -> Tensor:
    """The elements in opposite order along an axis, the last unless given."""
    given = run.tensor(x)
    axis = len(given.shape) - 1 if dim is None else int(dim) % len(given.shape)
    extent = given.shape[axis]
    return Tensor(run.b.take(given.expr, _index(run, given.shape, axis, extent - 1), axis))


def _index(run: Interpreter, shape: tuple[int, ...], axis: int, last: int) -> Expr:
    around = [1] * len(shape)
    around[axis] = shape[axis]
    return run.b.broadcast(run.b.reshape(last - run.b.arange(shape[axis]), around), shape)


@builtin("shapes", method=True)
def gather(run: Interpreter, src: Any, index: Any, axis: Any) -> Tensor:
    """Elements of a block, looked up along an axis."""
    given, where = run.tensor(src), run.tensor(index)
    return Tensor(run.b.take(given.expr, where.expr, int(axis) % len(given.shape)))


@builtin("shapes", "python.len")
def length(run: Interpreter, x: Any) -> int:
    """Python's len(): of a tuple, or the first extent of a block."""
    if isinstance(x, (Tensor, Pointer, BlockPointer)):
        return int(x.shape[0])
    del run
    return len(x)
