"""Every operator with every element type that the standard allows, on the models of the node tests.

A node test gives valid inputs; they are cast to each type of each type variable in turn.
What is asked is whether the model is translated and runs; the node tests check the values.
"""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from luban.core.dtypes import DType
from luban.core.errors import LubanError
from luban.frontend.onnx import import_model
from luban.frontend.onnx.load import ELEMENT_TYPES
from luban.graph.evaluate import evaluate
from luban.graph.ops.data import HostCall
from luban.ir.node import Graph
from tests.frontend.onnx.backend_cases import cases

Operator = tuple[str, str]
"""Domain and name."""

_CODES = {element: code for code, element in ELEMENT_TYPES.items()}
_NAMES = {
    onnx.TensorProto.DataType.Name(code).lower(): element for code, element in ELEMENT_TYPES.items()
}
_MAX_TEMPLATES = 12


@dataclass(frozen=True)
class Template:
    """A node test with one node: the model, its inputs by name, and the variable of each."""

    model: onnx.ModelProto
    inputs: Mapping[str, Any]
    variables: Mapping[str, str]
    schema: onnx.defs.OpSchema


@dataclass(frozen=True)
class Row:
    """What runs of one operator, what does not, and what no node test has an input for."""

    operator: Operator
    runs: tuple[str, ...]
    fails: tuple[str, ...]
    untried: tuple[str, ...]
    on_host: bool


@cache
def templates() -> Mapping[Operator, Sequence[Template]]:
    """The node tests of one node, by operator."""
    found: dict[Operator, list[Template]] = defaultdict(list)
    for case in cases().values():
        graph = case.model.graph
        if len(graph.node) == 1 and "_expanded" not in case.name:
            node = graph.node[0]
            found[node.domain, node.op_type].append(_template(case))
    return found


def _template(case: Any) -> Template:
    (node,) = case.model.graph.node
    version = {entry.domain: entry.version for entry in case.model.opset_import}[node.domain]
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    formal = schema.inputs
    variables = {
        name: formal[min(i, len(formal) - 1)].type_str for i, name in enumerate(node.input) if name
    }
    inputs, _ = case.data_sets[0]
    values = (numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v for v in inputs)
    named = dict(zip((value.name for value in case.model.graph.input), values, strict=True))
    return Template(case.model, named, variables, schema)


def row(operator: Operator) -> Row:
    """The types of all its variables, each tried until one node test runs with it."""
    given = list(islice(templates()[operator], _MAX_TEMPLATES))
    found: dict[str, list[str]] = {"runs": [], "fails": [], "untried": []}
    on_host = False
    for name in _type_names(given[0].schema):
        outcome = "untried" if name in _NAMES else "fails"
        for model, values in _retyped(given, name):
            graph = _ran(model, values)
            outcome = "fails" if graph is None else "runs"
            if graph is not None:
                on_host |= any(isinstance(n.op, HostCall) for n in graph.nodes())
                break
        found[outcome].append(str(_NAMES.get(name, name)))
    runs, fails, untried = (tuple(names) for names in found.values())
    return Row(operator, runs, fails, untried, on_host)


def _type_names(schema: onnx.defs.OpSchema) -> list[str]:
    """The element types that some input's variable allows, in the standard's order."""
    used = {formal.type_str for formal in schema.inputs}
    texts = [
        text
        for constraint in schema.type_constraints
        if constraint.type_param_str in used
        for text in constraint.allowed_type_strs
    ]
    matches = (re.fullmatch(r"tensor\((\w+)\)", text) for text in texts)
    return list(dict.fromkeys(match[1] for match in matches if match))


def _retyped(given: Iterable[Template], name: str) -> Iterator[tuple[onnx.ModelProto, Any]]:
    """Models and inputs with that type for one fitting variable, or for all of them."""
    if name not in _NAMES:
        return
    for template in given:
        fitting = [
            constraint.type_param_str
            for constraint in template.schema.type_constraints
            if f"tensor({name})" in constraint.allowed_type_strs
        ]
        for chosen in (*([v] for v in fitting), fitting):
            changed = _with_type(template, chosen, _NAMES[name])
            if changed is not None:
                yield changed


def _with_type(
    template: Template, chosen: Sequence[str], element: DType
) -> tuple[onnx.ModelProto, Mapping[str, Any]] | None:
    model = onnx.ModelProto()
    model.CopyFrom(template.model)
    for output in model.graph.output:
        output.ClearField("type")
    values = dict(template.inputs)
    changed = False
    for value in model.graph.input:
        given = values[value.name]
        variable = template.variables.get(value.name)
        is_tensor = value.type.WhichOneof("value") == "tensor_type"
        if variable in chosen and is_tensor and isinstance(given, np.ndarray | np.generic):
            values[value.name] = _cast(np.asarray(given), element)
            value.type.tensor_type.elem_type = _CODES[element]
            changed = True
    return (model, values) if changed else None


def _ran(model: onnx.ModelProto, values: Mapping[str, Any]) -> Graph | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = import_model(model).graph
            evaluate(graph, values)
    except (LubanError, TypeError, ValueError):
        return None
    return graph


def _cast(array: np.ndarray[Any, Any], element: DType) -> np.ndarray[Any, Any]:
    if element.kind == "string":
        texts = [str(item) for item in array.ravel()]
        return np.array(texts, object).reshape(array.shape)
    if array.dtype.kind in "OUS":
        return np.ones(array.shape, element.numpy)
    if element.kind in ("uint", "bool"):
        array = np.abs(array.astype(np.float64))
    with np.errstate(all="ignore"):
        return array.astype(np.float32).astype(element.numpy)
