"""The host step of `run_time`: builds one ONNX node with the values at hand, and evaluates it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx

from luban.core.errors import InternalError
from luban.core.loc import Loc
from luban.core.types import TensorType, Type
from luban.frontend.onnx.context import RunTimeValueNeeded
from luban.frontend.onnx.importer import Importer
from luban.frontend.onnx.load import Source
from luban.frontend.onnx.run_time import STEP
from luban.frontend.onnx.scope import Failed, Scope
from luban.graph import build
from luban.graph.evaluate import evaluate
from luban.graph.host import host
from luban.graph.ops.data import Constant, Literal
from luban.ir.node import Graph, Node, node

__all__: list[str] = []

_SMALL = 1024


@host(STEP)
def node_at_run_time(options: Mapping[str, Any], values: Sequence[Any]) -> tuple[Any, ...]:
    """The results of one ONNX node, translated now that its inputs are known."""
    types: tuple[Type | None, ...] = options["types"]
    stated = [t for t in types if t is not None]
    is_oracle = any(
        isinstance(t, TensorType) and t.dtype.is_float and v.dtype == np.float64 != t.dtype.numpy
        for t, v in zip(stated, values, strict=True)
    )
    frozen = tuple(sorted(options.items(), key=lambda item: item[0]))
    last: Exception | None = None
    for with_floats in (False, True):
        known = tuple(
            _literal(t, v, with_floats=with_floats) for t, v in zip(stated, values, strict=True)
        )
        actual = tuple(_actual(t, v) for t, v in zip(stated, values, strict=True))
        try:
            graph = _built(frozen, known, actual)
        except RunTimeValueNeeded as needed:
            last = needed
            continue
        inputs = [v for v, literal in zip(values, known, strict=True) if literal is None]
        return tuple(evaluate(graph, inputs, precision="float64" if is_oracle else "model"))
    raise InternalError("a node needs a value that none of its inputs gives") from last


def _literal(type_: Type, value: Any, *, with_floats: bool) -> Literal | None:
    """The value as a constant: integers that are small, or everything at the second try."""
    if not isinstance(type_, TensorType):
        return None
    if not with_floats and (type_.dtype.is_float or value.size > _SMALL):
        return None
    return Literal(np.asarray(value).astype(type_.dtype.numpy, copy=False))


def _actual(type_: Type, value: Any) -> Type:
    """The type with the sizes at hand; the oracle holds every float in float64."""
    if not isinstance(type_, TensorType):
        return type_
    element = "f64" if type_.dtype.is_float and value.dtype == np.float64 else type_.dtype
    return type_.with_shape(np.shape(value)).with_dtype(element)


@lru_cache(maxsize=64)
def _built(
    options: tuple[tuple[str, Any], ...],
    known: tuple[Literal | None, ...],
    types: tuple[Type, ...],
) -> Graph:
    given = dict(options)
    proto = onnx.NodeProto.FromString(given["node"])
    functions = [onnx.FunctionProto.FromString(content) for content in given["functions"]]
    opset = dict(given["opset"])
    model = onnx.ModelProto(functions=functions)
    importer = Importer(Source(model, "run time", None), at_run_time=True)
    parameters: list[Node] = []
    inputs: list[Node | None] = []
    rest = iter(zip(known, types, strict=True))
    for i, stated in enumerate(given["types"]):
        if stated is None:
            inputs.append(None)
            continue
        literal, actual = next(rest)
        if literal is not None:
            inputs.append(node(Constant(literal)))
        else:
            parameters.append(build.parameter(f"input_{i}", actual))
            inputs.append(parameters[-1])
    results = importer.apply(proto, inputs, Scope("", opset), Loc("run time", proto.op_type))
    if importer.failures or any(isinstance(r, Failed) for r in results):
        raise InternalError(f"{proto.op_type} at run time: {importer.failures}")
    used = [r for r, name in zip(results, proto.output, strict=False) if name]
    return Graph("run_time", tuple(parameters), tuple(r for r in used if isinstance(r, Node)))
