"""What a model file says about itself, read without compiling: `luban inspect`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnx

from luban.core import dims
from luban.core.errors import LubanError
from luban.core.types import TensorType, Type
from luban.frontend.onnx.load import Source, load_model
from luban.frontend.onnx.survey import survey
from luban.frontend.onnx.value_types import SymbolNames, type_of

__all__ = ["Description", "describe"]


@dataclass(frozen=True, slots=True)
class Description:
    """A model file: its interface, its operators, its weights, and what may be trouble.

    inputs, outputs   (name, type), sizes symbolic where the file leaves them open
    symbols           symbolic sizes, each with the inputs that have it
    operators         how many nodes of each, sub-graphs included
    missing           nodes that have no translation, each with the nearest supported form
    notes             what to know before running it, such as sizes that the export has frozen
    """

    name: str
    producer: str
    ir_version: int
    opset: dict[str, int]
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    symbols: dict[str, list[str]]
    operators: dict[str, int]
    num_nodes: int
    num_weights: int
    num_parameters: int
    weight_bytes: int
    external_files: tuple[str, ...]
    metadata: dict[str, str]
    missing: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data."""
        return asdict(self)


def describe(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> Description:
    """Describe a model. Raises ModelError if it is not one."""
    source = load_model(model)
    proto = source.model
    graph = proto.graph
    names = SymbolNames()
    weights = {t.name for t in graph.initializer}
    inputs = {v.name: _type(v, names) for v in graph.input if v.name not in weights}
    outputs = {v.name: _type(v, names) for v in graph.output}
    operators = Counter(_operators(graph))
    for function in proto.functions:
        operators.update(_named(node) for node in function.node)
    producer = " ".join(filter(None, (proto.producer_name, proto.producer_version)))
    return Description(
        source.name,
        producer,
        proto.ir_version,
        {entry.domain or "ai.onnx": entry.version for entry in proto.opset_import},
        tuple((name, str(type_)) for name, type_ in inputs.items()),
        tuple((name, str(type_)) for name, type_ in outputs.items()),
        _symbols(inputs),
        dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        sum(operators.values()),
        len(graph.initializer),
        sum(int(np.prod(t.dims, dtype=np.int64)) for t in graph.initializer),
        sum(_size_bytes(t) for t in graph.initializer),
        tuple(sorted(_external(graph))),
        {entry.key: entry.value for entry in proto.metadata_props},
        tuple(map(str, survey(proto))),
        tuple(_frozen_sizes(source, inputs)),
    )


def _type(value: onnx.ValueInfoProto, names: SymbolNames) -> Type | str:
    try:
        return type_of(value.type, value.name, names)
    except LubanError as error:
        return f"unknown ({error.message})"


def _symbols(inputs: dict[str, Type | str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, type_ in inputs.items():
        if isinstance(type_, TensorType):
            for symbol in dict.fromkeys(s.name for d in type_.shape for s in dims.symbols(d)):
                found.setdefault(symbol, []).append(name)
    return found


def _named(node: onnx.NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def _operators(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield _named(node)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _operators(inner)


def _size_bytes(tensor: onnx.TensorProto) -> int:
    if tensor.HasField("raw_data"):
        return len(tensor.raw_data)
    length = [entry.value for entry in tensor.external_data if entry.key == "length"]
    return int(length[0]) if length and length[0].isdigit() else tensor.ByteSize()


def _external(graph: onnx.GraphProto) -> set[str]:
    return {
        entry.value
        for tensor in graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }


def _frozen_sizes(source: Source, inputs: dict[str, Type | str]) -> Iterator[str]:
    """Where an export has written a batch size into the file (case S3)."""
    fixed: set[int] = set()
    for name, type_ in inputs.items():
        if isinstance(type_, TensorType) and type_.rank > 1:
            first = type_.shape[0]
            if first == 1:
                yield (
                    f"input {name!r} is {type_}: its first size is fixed to 1; for other batch "
                    f"sizes try shapes={{{name!r}: {['batch', *map(str, type_.shape[1:])]}}}"
                )
            fixed.add(first if isinstance(first, int) else 1)
    graph = source.model.graph
    shapes = {t.name: t for t in graph.initializer}
    shapes |= {
        node.output[0]: attribute.t
        for node in graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    computed = set(inputs)
    for node in graph.node:
        if not computed.intersection(node.input):
            continue
        computed.update(node.output)
        if node.op_type != "Reshape" or len(node.input) < 2 or node.input[1] not in shapes:
            continue
        sizes = source.array(shapes[node.input[1]]).reshape(-1).tolist()
        if node.input[0] in computed and len(sizes) > 1 and sizes[0] in fixed:
            yield (
                f"node {node.name or node.output[0]!r}: Reshape to {sizes} fixes the first size to "
                f"{sizes[0]}: another batch size fails there; export with a dynamic batch, or "
                "write 0 (keep) or -1 (derive) in its place"
            )
