"""What has no translation, listed for the whole model before anything is built."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx

from luban.core.errors import LubanError, ModelError
from luban.frontend.onnx import registry
from luban.frontend.onnx.functions import Functions, has_standard_body, schema_of
from luban.frontend.onnx.load import element_type

__all__ = ["Missing", "survey"]


@dataclass(frozen=True, slots=True)
class Missing:
    """A node that cannot be translated, and what comes nearest."""

    path: str
    op: str
    domain: str
    opset: int
    types: str
    nearest: str

    def __str__(self) -> str:
        domain = self.domain or "ai.onnx"
        form = f"{domain}.{self.op} (opset {self.opset}) of ({self.types})"
        return f"{self.path}: {form}; {self.nearest}"


def survey(model: onnx.ModelProto) -> list[Missing]:
    """Every node of the model without a translation, those in sub-graphs and functions included.

    Raises ModelError for names that are no text: protobuf hands them out as bytes.
    """
    functions = Functions(model.functions)
    opset = {("" if e.domain == "ai.onnx" else e.domain): e.version for e in model.opset_import}
    found = list(_graph(model.graph, "", opset or {"": 1}, functions, {}))
    for function in functions.protos:
        versions = {
            ("" if e.domain == "ai.onnx" else e.domain): e.version for e in function.opset_import
        }
        found += _nodes(function.node, function.name, {**opset, **versions}, functions, {})
    return found


def _graph(
    graph: onnx.GraphProto,
    path: str,
    opset: Mapping[str, int],
    functions: Functions,
    outer: Mapping[str, str],
) -> Iterator[Missing]:
    types = dict(outer)
    types |= {v.name: _type_text(v.type) for v in (*graph.value_info, *graph.input, *graph.output)}
    types |= {t.name: _text(t.data_type, list(t.dims)) for t in graph.initializer}
    values = (*graph.input, *graph.output, *graph.initializer)
    _check_texts((v.name for v in values), path or graph.name)
    yield from _nodes(graph.node, path, opset, functions, types)


def _nodes(
    nodes: Iterator[onnx.NodeProto],
    path: str,
    opset: Mapping[str, int],
    functions: Functions,
    types: Mapping[str, str],
) -> Iterator[Missing]:
    for index, proto in enumerate(nodes):
        texts = (proto.op_type, proto.domain, proto.name, *proto.input, *proto.output)
        _check_texts(texts, f"{path} node {index}")
        name = proto.name or f"{proto.op_type}_{index}"
        place = f"{path}/{name}" if path else name
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        version = opset.get(domain, 1)
        if not _is_known(domain, proto, version, functions):
            given = ", ".join(types.get(n, "?") if n else "none" for n in proto.input)
            nearest = _nearest(domain, proto.op_type, version)
            yield Missing(place, proto.op_type, domain, version, given, nearest)
        for attribute in proto.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graph(attribute.g, place, opset, functions, types)


def _check_texts(texts: Iterable[object], place: str) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise ModelError(
                f"{place}: the name {text!r} is no UTF-8 text",
                hint="the file is damaged: download or export it again",
            )


def _is_known(domain: str, proto: onnx.NodeProto, opset: int, functions: Functions) -> bool:
    return (
        functions.local(domain, proto) is not None
        or registry.find(domain, proto.op_type, opset) is not None
        or has_standard_body(domain, proto.op_type, opset)
    )


def _nearest(domain: str, op: str, opset: int) -> str:
    versions = registry.supported_versions(domain, op)
    if versions:
        return f"supported from opset {min(versions)} on: use onnx.version_converter"
    close = difflib.get_close_matches(op, registry.names(domain), 1, 0.75)
    if close:
        return f"did you mean {close[0]}?"
    if domain and op in registry.names(""):
        return f"ai.onnx.{op} is supported"
    if not domain and op in registry.names("com.microsoft"):
        return f"com.microsoft.{op} is supported"
    known = (
        "" if schema_of(domain, op, opset) else ", unknown to the installed onnx package as well"
    )
    return f"nothing near it is supported{known}: express it through other operators"


def _type_text(proto: onnx.TypeProto) -> str:
    if proto.WhichOneof("value") != "tensor_type":
        return (proto.WhichOneof("value") or "?").removesuffix("_type")
    if not proto.tensor_type.HasField("shape"):
        return _text(proto.tensor_type.elem_type, ["..."])
    return _text(
        proto.tensor_type.elem_type,
        [
            d.dim_param or (d.dim_value if d.HasField("dim_value") else "?")
            for d in proto.tensor_type.shape.dim
        ],
    )


def _text(code: int, sizes: list[int | str]) -> str:
    try:
        element = str(element_type(code))
    except LubanError:
        element = f"type {code}"
    return f"{element}[{','.join(map(str, sizes))}]"
