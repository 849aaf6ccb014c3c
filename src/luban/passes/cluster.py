"""What fusion knows of nodes: which have a place in kernels, which are views; the cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

from luban.core.dims import Shape
from luban.core.types import TensorType
from luban.graph.ops.coded import PanelCodedDot
from luban.graph.ops.contract import Convolution, DotGeneral
from luban.graph.ops.data import Constant, DimensionSize, Iota, RandomBits
from luban.graph.ops.elementwise import Bitcast, Cast, ElementwiseOp, Select
from luban.graph.ops.packed import PackPanels, PanelConvolution, PanelDot
from luban.graph.ops.reduce import ArgReduce, Cumulative, Reduce, ReduceWindow, Sort, TopK
from luban.graph.ops.structure import (
    BroadcastInDim,
    Concatenate,
    DynamicSlice,
    Gather,
    Pad,
    Reshape,
    Reverse,
    Scatter,
    Slice,
    Transpose,
)
from luban.graph.ops.winograd import WinogradConvolution
from luban.ir.node import Node

__all__ = [
    "CONTRACTIONS",
    "ELEMENTWISE",
    "KERNEL_OPS",
    "ONE_TO_ONE",
    "PANELLED",
    "SOLITARY",
    "VIEWS",
    "Cluster",
    "inlined_constant",
    "is_copy",
    "reads_once",
    "reduced_axes",
    "squeezed",
    "streamed",
    "streams",
]

VIEWS = (
    BroadcastInDim,
    Transpose,
    Slice,
    Reverse,
    Reshape,
    Pad,
    Gather,
    DynamicSlice,
    Concatenate,
    PackPanels,
)
ELEMENTWISE = (ElementwiseOp, Select, Cast, Bitcast, RandomBits)
PANELLED = (PanelDot, PanelConvolution, WinogradConvolution, PanelCodedDot)
CONTRACTIONS = (DotGeneral, Convolution, ReduceWindow, *PANELLED)
KERNEL_OPS = (*VIEWS, *ELEMENTWISE, *CONTRACTIONS, Reduce, ArgReduce, Cumulative, Iota, Scatter)
SOLITARY = (Sort, TopK)  # a kernel of their own, with nothing fused
_STRIDED = (BroadcastInDim, Transpose, Slice, Reshape)  # an element's place is linear in its index
ONE_TO_ONE = (Transpose, Slice, Reverse, Reshape, Pad)


@dataclass(slots=True, eq=False)
class Cluster:
    """Nodes that will be one kernel. `space` is the shape that elementwise members have."""

    number: int
    kind: str  # loop, rows, running, contraction, scatter
    space: Shape
    axes: tuple[int, ...] = ()
    members: dict[Node, None] = field(default_factory=dict)

    @property
    def kept(self) -> Shape:
        """The space without the reduced axes."""
        return tuple(size for i, size in enumerate(self.space) if i not in self.axes)

    @property
    def kept_ones(self) -> Shape:
        """The space with the reduced axes of size 1."""
        return tuple(1 if i in self.axes else size for i, size in enumerate(self.space))

    def takes(self, shape: Shape) -> bool:
        """True if elementwise nodes of this shape can be members."""
        if self.kind == "scatter":
            return False  # all updates must be in before anything reads the result
        return shape == self.space or (self.kind == "rows" and shape in (self.kept, self.kept_ones))


def reduced_axes(n: Node) -> tuple[int, ...]:
    """The axes that a reduction removes."""
    assert isinstance(n.op, (Reduce, ArgReduce))
    return n.op.axes if isinstance(n.op, Reduce) else (n.op.axis,)


def streams(n: Node) -> bool:
    """True if the node's kernel reads its first operand along its last axis."""
    match n.op:
        case Convolution(layout=layout):
            return layout == "channels_last"
        case ReduceWindow(window=window):
            return len(window) >= 3 and window[0] == window[-1] == 1
    return isinstance(n.op, PANELLED)


def streamed(operand: Node) -> Node:
    """What must be in memory so that a product reads its rows as streams.

    The first view on the way that is not linear, or the operand if its rows are not contiguous.
    """
    current = operand
    last = operand.tensor.rank - 1
    while isinstance(current.op, _STRIDED):
        match current.op:
            case Transpose(permutation=permutation):
                last = permutation[last]
            case Slice(strides=strides) if strides[last] != 1:
                return operand
            case BroadcastInDim(axes=axes) if last in axes:
                last = axes.index(last)
            case BroadcastInDim():
                return operand
            case Reshape():
                source = current.operands[0].tensor.shape
                if squeezed(current.tensor.shape) != squeezed(source):
                    break  # only a new name for what is in memory
                if current.tensor.shape[last] == 1:
                    return operand
                place = sum(size != 1 for size in current.tensor.shape[:last])
                last = [i for i, size in enumerate(source) if size != 1][place]
        current = current.operands[0]
    return current if last == current.tensor.rank - 1 else operand


def reads_once(n: Node) -> bool:
    """True unless the node reads elements more than once, or in an order that data decides."""
    return not isinstance(n.op, VIEWS) or isinstance(n.op, (*ONE_TO_ONE, Concatenate))


def is_copy(n: Node) -> bool:
    """True for a view that takes a kernel to be in memory; a reshape only renames memory."""
    return isinstance(n.op, (*VIEWS, Iota)) and not isinstance(n.op, Reshape)


def squeezed(shape: Shape) -> Shape:
    """The sizes other than 1."""
    return tuple(size for size in shape if size != 1)


def inlined_constant(n: Node) -> bool:
    """True for a number that stands in the kernel itself."""
    if isinstance(n.op, DimensionSize):
        return True
    if not isinstance(n.op, Constant) or not isinstance(n.type, TensorType):
        return False
    array = n.op.value.array
    return array.size == 1 and array.dtype.kind != "O"
