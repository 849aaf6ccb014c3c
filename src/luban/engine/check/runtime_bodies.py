"""Bodies of control flow in other runtimes: each is a model of its own, run turn by turn.

No runtime shows what happens inside a loop. But a body is a graph: with what it uses from outside
as inputs it is a model, whose values can be exposed like any other's. The turns are driven here,
by ONNX's rules, on what the runtime itself gave in the turn before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from luban.engine.check.report import Finding, Layer

__all__ = ["BodyCheck", "captured_names", "check_bodies", "control_graphs"]

# (a body as a model, its inputs) -> (layers, what is wrong, its outputs)
CheckModel = Callable[
    [onnx.ModelProto, Mapping[str, Any]], tuple[list[Layer], Finding | None, list[Any]]
]


@dataclass(slots=True)
class BodyCheck:
    """What was found inside one node: the worst of all turns for each value, the first fault."""

    layers: dict[str, Layer] = field(default_factory=dict)
    finding: Finding | None = None


def control_graphs(node: onnx.NodeProto) -> dict[str, onnx.GraphProto]:
    """The bodies of a node by attribute name."""
    return {a.name: a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH}


def captured_names(graph: onnx.GraphProto) -> list[str]:
    """Names that a body uses and does not make, those of bodies inside included."""
    made = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    found: dict[str, None] = {}
    for node in graph.node:
        inner = [name for body in control_graphs(node).values() for name in captured_names(body)]
        found |= dict.fromkeys(n for n in (*node.input, *inner) if n and n not in made)
        made.update(node.output)
    found |= dict.fromkeys(v.name for v in graph.output if v.name not in made)
    return list(found)


def check_bodies(
    node: onnx.NodeProto, model: onnx.ModelProto, values: Mapping[str, Any], check: CheckModel
) -> BodyCheck:
    """Check the bodies of If, Loop or Scan turn by turn.

    model    the model that the node is in
    values   what the runtime gives for the node's inputs and for what its bodies capture
    check    checks a model on inputs
    """
    found = BodyCheck()
    place = node.name or node.output[0]

    def run(attribute: str, given: Sequence[Any], turn: str) -> list[Any]:
        graph = control_graphs(node)[attribute]
        names = [v.name for v in graph.input]
        inputs = dict(zip(names, given, strict=True))
        inputs |= {name: values[name] for name in captured_names(graph)}
        layers, finding, results = check(_model_of(graph, model, inputs), inputs)
        for layer in layers:
            named = replace(layer, name=f"{place}/{layer.name}")
            before = found.layers.get(named.name)
            if before is None or named.closeness > before.closeness:
                found.layers[named.name] = named
        if finding is not None:
            found.finding = replace(finding, detail=f"in {turn} of {place}, {finding.detail}")
        return results

    given = [values[name] if name else None for name in node.input]
    drive = {"If": _if, "Loop": _loop, "Scan": _scan}[node.op_type]
    for attribute, operands, turn, done in drive(node, given):
        done(run(attribute, operands, turn))
        if found.finding is not None:
            break
    return found


# A turn: (attribute of the body, its inputs, what to call it, who takes its outputs).
Turns = Iterator[tuple[str, list[Any], str, Callable[[list[Any]], None]]]


def _if(_node: onnx.NodeProto, given: Sequence[Any]) -> Turns:
    name = "then_branch" if bool(np.all(given[0])) else "else_branch"
    yield name, [], name, lambda _results: None


def _loop(_node: onnx.NodeProto, given: Sequence[Any]) -> Turns:
    limit, condition, *carried = given
    going = True if condition is None else bool(np.all(condition))
    state = [np.asarray(going), *carried]
    turn = 0

    def done(results: list[Any]) -> None:
        state[:] = results[: len(state)]

    while bool(np.all(state[0])) and (limit is None or turn < int(np.asarray(limit).reshape(()))):
        yield "body", [np.asarray(turn, np.int64), *state], f"turn {turn}", done
        turn += 1


def _scan(node: onnx.NodeProto, given: Sequence[Any]) -> Turns:
    options = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    count = options["num_scan_inputs"]
    state, scanned = list(given[:-count]), given[-count:]
    axes = options.get("scan_input_axes", [0] * count)
    backwards = options.get("scan_input_directions", [0] * count)
    rows = [
        np.moveaxis(np.flip(x, axis) if flip else x, axis, 0)
        for x, axis, flip in zip(scanned, axes, backwards, strict=True)
    ]

    def done(results: list[Any]) -> None:
        state[:] = results[: len(state)]

    for turn in range(len(rows[0])):
        slices = [np.ascontiguousarray(x[turn]) for x in rows]
        yield "body", [*state, *slices], f"turn {turn}", done


def _model_of(
    graph: onnx.GraphProto, outer: onnx.ModelProto, inputs: Mapping[str, Any]
) -> onnx.ModelProto:
    """A body as a model: what it takes and captures are inputs, of any sizes."""
    body = onnx.GraphProto()
    body.CopyFrom(graph)
    body.name = graph.name or "body"
    del body.input[:]
    for name, value in inputs.items():
        array = np.asarray(value)
        element = helper.np_dtype_to_tensor_dtype(array.dtype)
        body.input.append(helper.make_tensor_value_info(name, element, [None] * array.ndim))
    own = {v.name for v in body.input} | {t.name for t in body.initializer}
    for output in body.output:
        if output.name in own:  # handed on as it is: runtimes want a node in between
            inner = f"{output.name}/handed_on"
            body.node.append(helper.make_node("Identity", [output.name], [inner]))
            output.name = inner
    model = onnx.ModelProto(ir_version=outer.ir_version)
    model.opset_import.extend(outer.opset_import)
    model.functions.extend(outer.functions)
    model.graph.CopyFrom(body)
    return model
