"""Loads, stores, atomics, block pointers and tensor descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from luban.frontend.kernel.table import builtin
from luban.frontend.kernel.types import PointerType
from luban.frontend.kernel.values import BlockPointer, Pointer, Tensor
from luban.tile.expr import Expr
from luban.tile.types import broadcast_shapes

if TYPE_CHECKING:
    from luban.frontend.kernel.interpret import Interpreter

__all__ = ["pointer_cast"]


def _address(run: Interpreter, pointer: Any, what: str) -> Pointer:
    if isinstance(pointer, Pointer):
        return pointer
    run.fail(
        f"tl.{what} of {run.said(pointer)}, expected pointers",
        hint="add offsets to a pointer parameter: ptr + tl.arange(0, BLOCK)",
    )


def _spread(run: Interpreter, pointer: Pointer, others: Sequence[Any]) -> Pointer:
    """Addresses in the shape that they and the other operands broadcast to."""
    shapes = [x.shape for x in (pointer, *others) if isinstance(x, (Tensor, Pointer))]
    shape = broadcast_shapes(*shapes)
    if shape is None:
        said = ", ".join(str(list(s)) for s in shapes)
        run.fail(f"shapes {said} do not broadcast", hint="extents must be equal or 1")
    return pointer.moved(run.b.broadcast(pointer.offsets, shape))


def _mask(run: Interpreter, mask: Any, shape: tuple[int, ...]) -> Expr | None:
    if mask is None or mask is True:
        return None
    found = run.truth(mask).expr
    if broadcast_shapes(found.shape, shape) != shape:
        run.fail(f"the mask is {run.said(mask)}, expected int1{list(shape)} as the addresses")
    return run.b.broadcast(found, shape)


@builtin("memory")
def load(
    run: Interpreter,
    pointer: Any,
    mask: Any = None,
    other: Any = None,
    boundary_check: Any = (),
    padding_option: Any = "",
    cache_modifier: Any = "",
    eviction_policy: Any = "",
    volatile: Any = False,
) -> Tensor:
    """Read the elements that `pointer` addresses.

    mask   int1 of the same shape: elements with 0 are not read; they are `other`, or 0 without it
    boundary_check, padding_option   of a block pointer: the axes that may leave the array
    """
    del cache_modifier, eviction_policy, volatile  # hints
    if isinstance(pointer, BlockPointer):
        axes = range(len(pointer.block)) if pointer.whole else boundary_check
        place, inside = _block_access(run, pointer, axes)
        fill = padding_option or pointer.padding
        missing = float("nan") if fill == "nan" else None
        found = run.b.gather(place.base, place.offsets, mask=inside, other=missing)
        return Tensor(found)
    place = _address(run, pointer, "load")
    place = _spread(run, place, [mask, other])
    chosen = _mask(run, mask, place.shape)
    if other is not None and chosen is None:
        other = None
    if other is None:
        return Tensor(run.b.gather(place.base, place.offsets, mask=chosen))
    given = run.b.broadcast(run.cast(other, place.element).expr, place.shape)
    return Tensor(run.b.gather(place.base, place.offsets, mask=chosen, other=given))


@builtin("memory")
def store(
    run: Interpreter,
    pointer: Any,
    value: Any,
    mask: Any = None,
    boundary_check: Any = (),
    cache_modifier: Any = "",
    eviction_policy: Any = "",
) -> None:
    """Write `value` to the elements that `pointer` addresses, where `mask` is not 0."""
    del cache_modifier, eviction_policy
    if isinstance(pointer, BlockPointer):
        axes = range(len(pointer.block)) if pointer.whole else boundary_check
        place, inside = _block_access(run, pointer, axes)
        stored = run.cast(value, place.element).expr
        run.b.scatter(place.base, place.offsets, run.b.broadcast(stored, place.shape), mask=inside)
        return
    place = _spread(run, _address(run, pointer, "store"), [value, mask])
    stored = run.cast(value, place.element).expr
    run.b.scatter(
        place.base,
        place.offsets,
        run.b.broadcast(stored, place.shape),
        mask=_mask(run, mask, place.shape),
    )


# Atomics


def _update(run: Interpreter, kind: str, pointer: Any, value: Any, mask: Any) -> Tensor:
    place = _spread(run, _address(run, pointer, f"atomic_{kind}"), [value, mask])
    given = run.cast(value, place.element).expr
    chosen = _mask(run, mask, place.shape)
    old = run.b.atomic_rmw(
        kind,  # type: ignore[arg-type]
        place.base,
        place.offsets,
        run.b.broadcast(given, place.shape),
        mask=chosen,
    )
    return Tensor(old)


@builtin("atomics")
def atomic_add(
    run: Interpreter, pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None
) -> Tensor:
    """Add to memory as one step; gives the old values."""
    del sem, scope
    return _update(run, "add", pointer, val, mask)


@builtin("atomics")
def atomic_max(
    run: Interpreter, pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None
) -> Tensor:
    """Keep the larger in memory, as one step; gives the old values."""
    del sem, scope
    return _update(run, "max", pointer, val, mask)


@builtin("atomics")
def atomic_min(
    run: Interpreter, pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None
) -> Tensor:
    """Keep the smaller in memory, as one step; gives the old values."""
    del sem, scope
    return _update(run, "min", pointer, val, mask)


@builtin("atomics")
def atomic_and(
    run: Interpreter, pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None
) -> Tensor:
    """Bitwise and with memory, as one step; gives the old values."""
    del sem, scope
    return _update(run, "and", pointer, val, mask)


@builtin("atomics")
def atomic_or(
    run: Interpreter, pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None
) -> Tensor:
    """Bitwise or with memory, as one step; gives the old values."""
    del sem, scope
    return _update(run, "or", pointer, val, mask)


@builtin("atomics")
def atomic_xor(
    run: Interpreter, pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None
) -> Tensor:
    """Bitwise exclusive or with memory, as one step; gives the old values."""
    del sem, scope
    return _update(run, "xor", pointer, val, mask)


@builtin("atomics")
def atomic_xchg(
    run: Interpreter, pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None
) -> Tensor:
    """Write to memory as one step; gives the old values."""
    del sem, scope
    return _update(run, "exchange", pointer, val, mask)


@builtin("atomics")
def atomic_cas(
    run: Interpreter, pointer: Any, cmp: Any, val: Any, sem: Any = None, scope: Any = None
) -> Tensor:
    """Write `val` where memory equals `cmp`, as one step; gives the old values."""
    del sem, scope
    place = _spread(run, _address(run, pointer, "atomic_cas"), [cmp, val])
    wanted, given = (
        run.b.broadcast(run.cast(x, place.element).expr, place.shape) for x in (cmp, val)
    )
    return Tensor(run.b.atomic_cas(place.base, place.offsets, wanted, given))


# Blocks of strided arrays


def _integers(run: Interpreter, values: Any) -> tuple[Expr, ...]:
    if isinstance(values, (Tensor, int)):
        values = (values,)
    return tuple(run.integer(value) for value in values)


def _block_access(run: Interpreter, block: BlockPointer, axes: Any) -> tuple[Pointer, Expr | None]:
    """The addresses of a block, and which of them lie inside the checked axes."""
    b = run.b
    rank = len(block.block)
    checked = {int(a) % rank for a in ((axes,) if isinstance(axes, int) else axes)}
    where = b.broadcast(block.base.offsets, block.block)
    inside: Expr | None = None
    for axis, extent in enumerate(block.block):
        shape = [1] * rank
        shape[axis] = extent
        index = b.reshape(b.arange(extent), shape) + block.offsets[axis]
        where = where + index * block.strides[axis]
        if axis in checked:
            good = b.broadcast((index >= 0) & (index < block.sizes[axis]), block.block)
            inside = good if inside is None else inside & good
    return block.base.moved(where), inside


@builtin("memory")
def make_block_ptr(
    run: Interpreter,
    base: Any,
    shape: Any,
    strides: Any,
    offsets: Any,
    block_shape: Any,
    order: Any = (),
) -> BlockPointer:
    """A block of a strided array, to load, store and `advance`.

    shape, strides, offsets   of the array, in elements, one for each axis
    block_shape               extents of the block, constants
    """
    place = _address(run, base, "make_block_ptr")
    block = tuple(int(extent) for extent in block_shape)
    return BlockPointer(
        place,
        _integers(run, shape),
        _integers(run, strides),
        _integers(run, offsets),
        block,
        tuple(order),
    )


@builtin("memory")
def advance(run: Interpreter, base: Any, offsets: Any) -> BlockPointer:
    """A block pointer moved on by this many elements along each axis."""
    if not isinstance(base, BlockPointer):
        run.fail(f"tl.advance of {run.said(base)}, expected a block pointer")
    return base.advanced(_integers(run, offsets))


@builtin("memory", "make_tensor_descriptor", "_experimental_make_tensor_descriptor")
def make_tensor_descriptor(
    run: Interpreter,
    base: Any,
    shape: Any,
    strides: Any,
    block_shape: Any,
    padding_option: Any = "zero",
) -> BlockPointer:
    """An array whose blocks are loaded and stored at offsets; what lies outside is padding."""
    found: BlockPointer = make_block_ptr(
        run, base, shape, strides, (0,) * len(block_shape), block_shape
    )
    return replace(found, whole=True, padding=padding_option)


@builtin("memory", "load_tensor_descriptor")
def load_tensor_descriptor(run: Interpreter, desc: Any, offsets: Any) -> Tensor:
    """The block of a descriptor at these offsets."""
    return load(run, replace(desc, offsets=_integers(run, offsets)))


@builtin("memory", "store_tensor_descriptor")
def store_tensor_descriptor(run: Interpreter, desc: Any, offsets: Any, value: Any) -> None:
    """Write the block of a descriptor at these offsets."""
    store(run, replace(desc, offsets=_integers(run, offsets)), value)


def pointer_cast(run: Interpreter, pointer: Pointer, wanted: PointerType) -> Pointer:
    """A pointer read as another type. Only bool and int8 are one another's equals in memory."""
    if wanted.element_ty == pointer.element:
        return pointer
    run.fail(
        f"a cast of {pointer} to {wanted}",
        hint="pass the array viewed as that type, or load and cast the numbers with bitcast=True",
    )
