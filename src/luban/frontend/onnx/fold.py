"""Values of constant expressions, found on demand while a model is read.

Only what a handler asks for is computed (axes, pads, scales, ...), and only if every leaf is a
small constant or a fixed size. Folding whole models is a pass, not this.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from luban.core.types import TensorType
from luban.graph.evaluate import evaluate
from luban.graph.ops.control import sub_graphs
from luban.graph.ops.data import Constant, DimensionSize, HostCall, Iota, RandomBits
from luban.graph.sizes import symbolic_value
from luban.ir.node import Graph, Node, Parameter

__all__ = ["folded"]

_MAX_ELEMENTS = 4096
_known: WeakKeyDictionary[Node, bool] = WeakKeyDictionary()


def folded(x: Node) -> np.ndarray[Any, Any] | None:
    """The value of x if it is a constant or follows from small ones and fixed sizes, else None."""
    if isinstance(x.op, Constant):
        return x.op.value.array
    if not isinstance(x.type, TensorType):
        return None
    sizes = symbolic_value(x)
    if sizes is not None and all(isinstance(size, int) for size in sizes.ravel()):
        return np.array(sizes.tolist(), x.type.dtype.numpy).reshape(sizes.shape)
    if not _is_known(x):
        return None
    (result,) = evaluate(Graph("fold", (), (x,)), {})
    return np.asarray(result)


def _is_known(x: Node) -> bool:
    """True if all that x needs is small and pure, with constants as leaves. Walks with a stack."""
    stack = [x]
    while stack:
        current = stack[-1]
        if current in _known:
            stack.pop()
            continue
        if not _may_fold(current):
            _known[current] = False
        elif open_operands := [o for o in current.operands if o not in _known]:
            stack.extend(open_operands)
        else:
            _known[current] = all(_known[o] for o in current.operands)
    return _known[x]


def _may_fold(x: Node) -> bool:
    if not isinstance(x.type, TensorType) or not x.type.is_static:
        return False
    if isinstance(x.op, Parameter | HostCall | RandomBits) or sub_graphs(x.op):
        return False
    if isinstance(x.op, DimensionSize):
        return isinstance(x.op.size, int)
    count = x.type.num_elements
    return isinstance(count, int) and (count <= _MAX_ELEMENTS or isinstance(x.op, Iota))
