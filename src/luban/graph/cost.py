"""What a node costs: operations to do and bytes to move, symbolic like the sizes.

One row for each primitive. Operations are those that are done, a multiply-add being two, by kind of
arithmetic (see core.hardware); where an algorithm does fewer than the definition asks for, as
Winograd's does, the definition's are counted beside them, so that speeds stay comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.errors import InternalError
from luban.core.types import TensorType, TupleType, Type
from luban.graph.ops.coded import CodedDot, PanelCodedDot, coded_depth
from luban.graph.ops.contract import Convolution, DotGeneral
from luban.graph.ops.control import If, Loop, Scan
from luban.graph.ops.data import Constant, DimensionSize, HostCall, Iota, Nonzero, RandomBits
from luban.graph.ops.elementwise import (
    BINARY,
    COMPARE,
    UNARY,
    UNARY_BOOL,
    Bitcast,
    Cast,
    Select,
)
from luban.graph.ops.fusion import Fusion, Once
from luban.graph.ops.packed import PackPanels, PanelConvolution, PanelDot, panel_depth
from luban.graph.ops.reduce import ArgReduce, Cumulative, Reduce, ReduceWindow, Sort, TopK
from luban.graph.ops.structure import (
    BroadcastInDim,
    Concatenate,
    DynamicReshape,
    DynamicSlice,
    DynamicUpdateSlice,
    Gather,
    Pad,
    Reshape,
    Reverse,
    Scatter,
    Slice,
    Transpose,
)
from luban.graph.ops.winograd import TAPS, Matrix, WinogradConvolution, transforms
from luban.ir.node import GetItem, Graph, Node, Op, Parameter

__all__ = ["COSTS", "Bytes", "Cost", "bytes_moved", "cost_of", "product_terms", "size_bytes"]

# Operations of an element where it is not one: about the arithmetic of docs/concepts/maths.md.
_MATHS = {
    "rsqrt": 2,
    "exp": 12,
    "expm1": 16,
    "log": 16,
    "log1p": 18,
    "sin": 20,
    "cos": 20,
    "tan": 36,
    "asin": 20,
    "acos": 20,
    "atan": 24,
    "sinh": 24,
    "cosh": 16,
    "tanh": 20,
    "asinh": 30,
    "acosh": 26,
    "atanh": 26,
    "erf": 24,
    "logistic": 16,
    "power": 40,
    "atan2": 30,
    "remainder": 8,
    "floor_mod": 10,
}
_RANDOM = 100  # ten rounds of Philox
_COMPARISONS = 8  # of an element that is sorted: passes over its digits
_BY_GROUP = {4: "i8", 2: "bf16"}  # products that one instruction adds up
_SELECTING = (Gather, Slice, DynamicSlice)


@dataclass(frozen=True, slots=True)
class Cost:
    """The arithmetic of a node.

    operations   done, by kind of arithmetic
    saved        that the definition has beyond them
    """

    operations: Mapping[str, DimLike] = field(default_factory=dict)
    saved: DimLike = 0

    @property
    def done(self) -> DimLike:
        """Operations of all kinds."""
        total: DimLike = 0
        for count in self.operations.values():
            total = total + count
        return total

    @property
    def definition(self) -> DimLike:
        """Operations that the definition asks for."""
        return self.done + self.saved

    def __add__(self, other: Cost) -> Cost:
        kinds = {**self.operations, **other.operations}
        each = {k: self.operations.get(k, 0) + other.operations.get(k, 0) for k in kinds}
        return Cost(each, self.saved + other.saved)


_FREE = Cost()


def _operations(count: DimLike, kind: str = "f32") -> Cost:
    return Cost({kind: count})


def _elements(n: Node) -> Cost:
    return _operations(n.tensor.num_elements)


def _elementwise(n: Node) -> Cost:
    return _operations(n.tensor.num_elements * _MATHS.get(n.op.name, 1))


def _given(n: Node) -> Cost:
    return _operations(n.operands[0].tensor.num_elements)


def _sorted(n: Node) -> Cost:
    return _operations(n.operands[0].tensor.num_elements * _COMPARISONS)


def _nothing(_: Node) -> Cost:
    return _FREE


def product_terms(n: Node) -> DimLike:
    """The terms that one element of a product sums up; 0 for other operations."""
    match n.op:
        case DotGeneral(lhs_contract=axes):
            shape = n.operands[0].tensor.shape
            return dims.num_elements(shape[axis] for axis in axes)
        case PanelDot() | PanelConvolution():
            return panel_depth(n)
        case CodedDot() | PanelCodedDot():
            return coded_depth(n)
        case WinogradConvolution():
            return n.operands[0].tensor.shape[-1] * TAPS**2
        case Convolution(layout="channels_first"):
            return dims.num_elements(n.operands[1].tensor.shape[1:])
        case Convolution():
            return dims.num_elements(n.operands[1].tensor.shape[:-1])
    return 0


def _product(n: Node) -> Cost:
    kind = _BY_GROUP.get(getattr(n.op, "group", 1), "f32")
    return _operations(2 * n.tensor.num_elements * product_terms(n), kind)


def _coded(n: Node) -> Cost:
    """One product of bytes for each digit, or one of f32."""
    digits = n.operands[0].tensor.shape[-2] if isinstance(n.op, PanelCodedDot) else 1
    total = 2 * n.tensor.num_elements * coded_depth(n)
    if n.operands[0].tensor.dtype.is_float:
        return _operations(total)
    return Cost({_BY_GROUP[4]: total * digits}, total - total * digits)


def _winograd(n: Node) -> Cost:
    """Products at every point of a tile, the image into tiles, tiles into the result."""
    assert isinstance(n.op, WinogradConvolution)
    matrices, tile = transforms(n.op.tile), n.op.tile
    points = tile + TAPS - 1
    batch, height, width, columns = n.tensor.shape
    channels = n.operands[0].tensor.shape[-1]
    tiles = batch * dims.ceil_div(height, tile) * dims.ceil_div(width, tile)
    image = _coefficients(matrices.image) * 2 * points
    result = _coefficients(matrices.result) * (points + tile)
    products = tiles * 2 * points**2 * channels * columns
    moved = tiles * (image * channels + result * columns)
    if n.op.filter_axes == 1:  # once at least; a kernel repeats it for each of its blocks
        moved += 2 * points * _coefficients(matrices.filters) * channels * columns
    done = _operations(products, _BY_GROUP.get(n.op.group, "f32")) + _operations(moved)
    return Cost(done.operations, _product(n).done - done.done)


def _coefficients(matrix: Matrix) -> int:
    """Operations of a 1-D pass, about: one for each coefficient that is not 0."""
    return sum(value != 0 for row in matrix for value in row)


def _window(n: Node) -> Cost:
    assert isinstance(n.op, ReduceWindow)
    return _operations(n.tensor.num_elements * prod(n.op.window))


def _scatter(n: Node) -> Cost:
    assert isinstance(n.op, Scatter)
    updates = n.operands[2].tensor.num_elements
    return _FREE if n.op.combine == "replace" else _operations(updates)


def _random(n: Node) -> Cost:
    return _operations(n.tensor.num_elements * _RANDOM)


def _body(n: Node) -> Cost:
    assert isinstance(n.op, (Fusion, Once))
    return sum(map(cost_of, n.op.body.nodes()), _FREE)


# Control flow and host calls do their work in programs of their own, or in Python.
_MOVING: tuple[type[Op], ...] = (
    BroadcastInDim,
    Reshape,
    DynamicReshape,
    Transpose,
    Slice,
    DynamicSlice,
    DynamicUpdateSlice,
    Pad,
    Concatenate,
    Reverse,
    Gather,
    PackPanels,
    Bitcast,
    Constant,
    Iota,
    DimensionSize,
    GetItem,
    Parameter,
    If,
    Loop,
    Scan,
    HostCall,
)
_BY_ELEMENT = (*UNARY.values(), *UNARY_BOOL.values(), *BINARY.values(), *COMPARE.values())

COSTS: dict[type[Op], Callable[[Node], Cost]] = {
    **dict.fromkeys(_BY_ELEMENT, _elementwise),
    **dict.fromkeys((Select, Cast), _elements),
    **dict.fromkeys(_MOVING, _nothing),
    **dict.fromkeys((Reduce, ArgReduce, Cumulative, Nonzero), _given),
    **dict.fromkeys((Sort, TopK), _sorted),
    **dict.fromkeys((DotGeneral, Convolution, PanelDot, PanelConvolution), _product),
    **dict.fromkeys((Fusion, Once), _body),
    **dict.fromkeys((CodedDot, PanelCodedDot), _coded),
    WinogradConvolution: _winograd,
    ReduceWindow: _window,
    Scatter: _scatter,
    RandomBits: _random,
}


def cost_of(n: Node) -> Cost:
    """The operations of a node; of a fusion, those of all nodes in it.

    >>> from luban.graph import build
    >>> from luban.core.types import tensor
    >>> x = build.parameter("x", tensor("f32", "n", 64))
    >>> w = build.parameter("w", tensor("f32", 64, 8))
    >>> print(cost_of(build.matmul(x, w)).done, cost_of(build.exp(x)).done)
    1024*n 768*n

    Raises InternalError for a primitive without a row.
    """
    count = COSTS.get(type(n.op))
    if count is None:
        raise InternalError(f"{n.op.name} has no cost: add a row to graph/cost.py", loc=n.loc)
    return count(n)


def size_bytes(given: Type) -> DimLike:
    """The bytes of a tensor, or of all tensors of a tuple; 0 for what has no bytes."""
    match given:
        case TensorType():
            return given.size_bytes
        case TupleType():
            total: DimLike = 0
            for item in given.items:
                total = total + size_bytes(item)
            return total
    return 0


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes that a kernel must move: read of each parameter, written of each result.

    What lies between its nodes stays in registers and near caches.
    """

    read: tuple[DimLike, ...]
    written: tuple[DimLike, ...]


def bytes_moved(body: Graph) -> Bytes:
    """Each parameter read once and each result written once, as if caches held the rest.

    A parameter that is only looked up in, or cut from, counts what is taken of it.
    """
    users: dict[Node, list[Node]] = {p: [] for p in body.parameters}
    for n in body.nodes():
        for operand in dict.fromkeys(n.operands):
            if operand in users:
                users[operand].append(n)
    read = tuple(_read(p, users[p], body) for p in body.parameters)
    return Bytes(read, tuple(size_bytes(result.type) for result in body.results))


def _read(parameter: Node, users: list[Node], body: Graph) -> DimLike:
    whole = size_bytes(parameter.type)
    taken: DimLike = 0
    for user in users:
        looks_up = isinstance(user.op, _SELECTING) and user.operands[0] is parameter
        if not looks_up or parameter in user.operands[1:]:
            return whole
        taken = taken + size_bytes(user.type)
    return whole if parameter in body.results else dims.minimum(whole, taken)
