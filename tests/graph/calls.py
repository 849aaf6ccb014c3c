"""Run a builder of nodes on arrays: the shortest way from a primitive to its value."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from luban.core.dims import symbol
from luban.core.types import TensorType, type_of_array
from luban.graph import build
from luban.graph.evaluate import evaluate
from luban.graph.meaning.context import Array, Precision
from luban.graph.verify import verify
from luban.ir.node import Graph, Node, Op, node, results_of

__all__ = ["apply", "call", "symbolic"]


def call(
    function: Callable[..., Node | tuple[Node, ...]],
    *arrays: Any,
    precision: Precision = "model",
    types: Iterable[TensorType] | None = None,
) -> Any:
    """The value (a tuple of several) of `function` of one parameter for each array."""
    given = [np.asarray(a) for a in arrays]
    declared = list(types) if types is not None else [type_of_array(a) for a in given]
    parameters = tuple(build.parameter(f"p{i}", t) for i, t in enumerate(declared))
    built = function(*parameters)
    results = built if isinstance(built, tuple) else (built,)
    graph = Graph("test", parameters, results)
    verify(graph)
    values = evaluate(graph, given, precision=precision)
    return values[0] if len(values) == 1 else values


def apply(op: Op, *arrays: Any, precision: Precision = "model") -> Any:
    """The value of one op on arrays, a tuple if it has several results."""
    return call(lambda *operands: results_of(node(op, *operands)), *arrays, precision=precision)


def symbolic(*arrays: Array) -> list[TensorType]:
    """The arrays' types with a symbol of its own for every axis."""
    return [
        type_of_array(a).with_shape(symbol(f"a{i}_{axis}") for axis in range(a.ndim))
        for i, a in enumerate(arrays)
    ]
