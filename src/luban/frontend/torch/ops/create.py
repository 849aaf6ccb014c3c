"""Tensors from nothing: constants, ranges, random numbers.

Random numbers come from a seed that each call of the graph is given: a stream of Philox bits for
each operator, another one than eager PyTorch's, the same again under the same `torch.manual_seed`.
"""

from __future__ import annotations

import math
from typing import Any

from luban.core.dims import DimLike
from luban.frontend.torch.call import Call, Operand
from luban.frontend.torch.registry import aten
from luban.graph import build
from luban.graph.ops.data import RandomBits
from luban.ir.node import Node, node

__all__: list[str] = []

_BITS_OF_F32 = 24


@aten("full.default")
def full(call: Call, _size: Any, value: Operand, **_options: Any) -> Node:
    """One value everywhere."""
    return call.spread(value)


@aten("full_like.default", "new_full.default")
def full_like(call: Call, _x: Node, *rest: Any, **_options: Any) -> Node:
    """One value everywhere, in the shape of another tensor or a given one."""
    return call.spread(rest[-1])


@aten("scalar_tensor.default")
def scalar_tensor(call: Call, value: Operand, **_options: Any) -> Node:
    """A number."""
    return call.operand(value, call.type.dtype)


@aten(
    "zeros.default",
    "zeros_like.default",
    "new_zeros.default",
    "empty.memory_format",
    "empty_like.default",
    "empty_strided.default",
    "new_empty.default",
    "new_empty_strided.default",
    "empty_permuted.default",
)
def zeros(call: Call, *_given: Any, **_options: Any) -> Node:
    """Zeros; also where PyTorch leaves memory as it is."""
    return call.spread(0)


@aten("ones.default", "ones_like.default", "new_ones.default")
def ones(call: Call, *_given: Any, **_options: Any) -> Node:
    """Ones."""
    return call.spread(1)


@aten("arange.start_step")
def arange(call: Call, start: Operand, end: Operand, step: Operand = 1, **_options: Any) -> Node:
    """start, start + step, ... before end."""
    element = call.type.dtype
    wide = "f64" if element.is_float else "i64"
    index = build.cast(build.iota(call.type.shape, 0), wide)
    scaled = build.multiply(index, call.operand(step, wide))
    return build.cast(build.add(scaled, call.operand(start, wide)), element, saturate=False)


@aten("prims.iota.default", "iota.default")
def iota(call: Call, _length: DimLike, *, start: int, step: int, **_options: Any) -> Node:
    """start, start + step, ..."""
    index = build.iota(call.type.shape, 0)
    return build.cast(build.add(build.multiply(index, step), start), call.type.dtype)


@aten("rand.default", "rand_like.default", "uniform.default")
def rand(call: Call, *given: Any, **_options: Any) -> Node:
    """Uniform numbers from 0 to 1, 1 left out; `uniform` has a range."""
    low, high = (
        (given[1], given[2]) if call.target == "uniform.default" and len(given) > 2 else (0, 1)
    )
    wide = _uniform(call, call.type.shape)
    if (low, high) != (0, 1):
        wide = build.add(build.multiply(wide, float(high - low)), float(low))
    return build.cast(wide, call.type.dtype)


@aten("randn.default", "randn_like.default")
def randn(call: Call, *_given: Any, **_options: Any) -> Node:
    """Normal numbers with mean 0 and deviation 1, two uniform ones for each (Box and Muller)."""
    radius = build.subtract(build.lift(1.0, _one()), _uniform(call, call.type.shape))
    angle = build.multiply(_uniform(call, call.type.shape), 2 * math.pi)
    root = build.sqrt(build.multiply(build.log(radius), -2.0))
    return build.cast(build.multiply(root, build.cos(angle)), call.type.dtype)


@aten("bernoulli.default", "bernoulli.p")
def bernoulli(call: Call, x: Node, p: float | None = None, **_options: Any) -> Node:
    """1 with probability p, or with that which x states; else 0."""
    threshold = build.cast(x, "f32") if p is None else float(p)
    return build.cast(build.less(_uniform(call, call.type.shape), threshold), call.type.dtype)


@aten("native_dropout.default")
def native_dropout(call: Call, x: Node, p: float, train: bool | None = True) -> tuple[Node, Node]:
    """Elements left out with probability p, the others scaled; and which were kept."""
    if train is False or p == 0:
        return x, build.full(x.tensor.shape, True, "bool")
    kept = build.greater_equal(_uniform(call, x.tensor.shape), float(p))
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return build.multiply(build.select(kept, x, 0), scale), kept


@aten("randint.low", "randint.default")
def randint(call: Call, *given: Any, **_options: Any) -> Node:
    """Whole numbers from a range."""
    low, high = (given[0], given[1]) if call.target == "randint.low" else (0, given[0])
    bits = build.cast(node(RandomBits(call.type.shape), call.next_key()), "i64")
    return build.cast(build.add(build.floor_mod(bits, int(high - low)), int(low)), call.type.dtype)


def _one() -> Node:
    return build.constant(1.0, "f32")


def _uniform(call: Call, shape: tuple[DimLike, ...]) -> Node:
    """f32 from 0 to 1, each a multiple of 2**-24."""
    bits = node(RandomBits(shape), call.next_key())
    top = build.shift_right(bits, 32 - _BITS_OF_F32)
    return build.multiply(build.cast(top, "f32"), 2.0**-_BITS_OF_F32)


@aten("_assert_async.msg", "_assert_async.default", "_assert_tensor_metadata.default")
def assertion(call: Call, *_given: Any, **_options: Any) -> None:
    """What eager PyTorch asserts of values is not looked at."""
    return
