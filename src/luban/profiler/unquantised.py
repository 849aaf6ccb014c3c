"""The float32 twin of a quantised ONNX model: the same layers by the same names, no codes.

Weights are what their codes stand for; steps that quantise or dequantise values are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["Twin", "unquantised"]

Array = np.ndarray[Any, Any]

_PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm")
_INTEGER_PRODUCTS = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
_LINEAR_PRODUCTS = {"QLinearMatMul": "MatMul", "QLinearConv": "Conv"}


@dataclass(frozen=True, slots=True)
class Layer:
    """One product with quantised factors.

    result   the value that both models have: floats, or codes with a scale and a zero point
    scale, zero_point   of those codes; None for floats
    """

    name: str
    op: str
    result: str
    scale: Array | None = None
    zero_point: Array | None = None


@dataclass(frozen=True, slots=True)
class Twin:
    """The float32 model, and the layers that are quantised in the other."""

    model: onnx.ModelProto
    layers: tuple[Layer, ...]


def unquantised(model: onnx.ModelProto) -> Twin:
    """The float32 twin. Node names are kept, and made where there are none.

    Reads the forms of quantisation that tools write: QuantizeLinear and DequantizeLinear round
    products, QLinearConv and QLinearMatMul, DynamicQuantizeLinear with MatMulInteger or
    ConvInteger. Other nodes stay as they are.
    """
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    return _Rewrite(twin).run()


@dataclass(slots=True)
class _Rewrite:
    model: onnx.ModelProto
    constants: dict[str, Array] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)
    made: list[onnx.NodeProto] = field(default_factory=list)
    added: list[onnx.TensorProto] = field(default_factory=list)
    floats: set[str] = field(default_factory=set)  # values that are codes in the quantised model

    def run(self) -> Twin:
        graph = self.model.graph
        self.constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant":
                for attribute in node.attribute:
                    if attribute.name == "value":
                        self.constants[node.output[0]] = numpy_helper.to_array(attribute.t)
        dequantised = {n.output[0] for n in graph.node if n.op_type == "DequantizeLinear"}
        for number, node in enumerate(graph.node):
            node.name = node.name or f"{node.op_type}_{number}"
            self._visit(node, dequantised)
        del graph.node[:]
        graph.node.extend(self.made)
        graph.initializer.extend(self.added)
        del graph.value_info[:]  # types of codes
        return Twin(self.model, tuple(self.layers))

    def _visit(self, node: onnx.NodeProto, dequantised: set[str]) -> None:
        handler = _HANDLERS.get(node.op_type)
        if handler is not None:
            handler(self, node)
            return
        if node.op_type in _PRODUCTS and dequantised & set(node.input[:2]):
            self.layers.append(Layer(node.name, node.op_type, node.output[0]))
        if self.floats & set(node.input):  # moves codes about, such as pooling
            self.floats.update(node.output)
        self.made.append(node)

    def constant(self, name: str, value: Array, like: str = "") -> str:
        """A new constant; `like` only makes its name readable."""
        label = f"{name}{like}"
        self.added.append(numpy_helper.from_array(np.ascontiguousarray(value), label))
        return label

    def same(self, source: str, target: str) -> None:
        """One value under another name."""
        self.made.append(helper.make_node("Identity", [source], [target], f"{target}/float"))

    def floats_of(self, inputs: Sequence[str], axis: int) -> Array | None:
        """What the codes of (codes, scale, zero point) stand for, if they are constants."""
        if any(name and name not in self.constants for name in inputs):
            return None
        codes, scale = (self.constants[name] for name in inputs[:2])
        zero = self.constants[inputs[2]] if len(inputs) > 2 and inputs[2] else np.zeros((), "i4")
        wide = codes.astype(np.float64) - _along(zero, codes, axis).astype(np.float64)
        return np.asarray(wide * _along(scale, codes, axis), np.float32)

    def quantize(self, node: onnx.NodeProto) -> None:
        """A value that stays the float that it was, but for what codes cannot be below."""
        zero = self.constants.get(node.input[2]) if len(node.input) > 2 else None
        self.floats.add(node.output[0])
        if self._cuts_at_zero(zero):
            label = f"{node.output[0]}/float"
            self.made.append(helper.make_node("Relu", [node.input[0]], [node.output[0]], label))
        else:
            self.same(node.input[0], node.output[0])

    def _cuts_at_zero(self, zero_point: Array | None) -> bool:
        """True if 0 is the lowest code: tools leave out a Relu before such a step."""
        if zero_point is None or zero_point.dtype.kind not in "iu":
            return False
        return bool((zero_point == np.iinfo(zero_point.dtype).min).all())

    def dequantize(self, node: onnx.NodeProto) -> None:
        """A constant's floats, or a value as it is."""
        value = self.floats_of(node.input, _attribute(node, "axis", 1))
        if node.input[0] in self.floats:
            self.same(node.input[0], node.output[0])
        elif value is None:
            self.made.append(node)  # of codes that were looked up in a constant table
        else:
            self.same(self.constant(node.output[0], value, "/value"), node.output[0])

    def quantize_dynamically(self, node: onnx.NodeProto) -> None:
        """The value itself, with scale 1 and zero point 0."""
        self.floats.add(node.output[0])
        self.same(node.input[0], node.output[0])
        if len(node.output) > 1 and node.output[1]:
            one = self.constant(node.output[1], np.array(1, np.float32), "/value")
            self.same(one, node.output[1])
        if len(node.output) > 2 and node.output[2]:
            zero = self.constant(node.output[2], np.array(0, np.float32), "/value")
            self.same(zero, node.output[2])

    def integer_product(self, node: onnx.NodeProto) -> None:
        """A product of floats whose weights are codes less their zero point."""
        op = _INTEGER_PRODUCTS[node.op_type]
        inputs = list(node.input[:2])
        if inputs[1] in self.constants:
            zero = self.constants.get(node.input[3]) if len(node.input) > 3 else None
            codes = self.constants[inputs[1]].astype(np.float32)
            less = (
                0 if zero is None else _along(zero, codes, codes.ndim - 1 if op == "MatMul" else 0)
            )
            inputs[1] = self.constant(node.output[0], codes - less, "/weights")
        made = helper.make_node(op, inputs, [node.output[0]], node.name)
        made.attribute.extend(node.attribute)
        self.made.append(made)
        self.layers.append(Layer(node.name, node.op_type, self._scaled(node.output[0])))

    def _scaled(self, name: str) -> str:
        """Where an integer sum has become a float: behind a cast and a product with the scales."""
        for op in ("Cast", "Mul"):
            users = [n for n in self.model.graph.node if name in n.input]
            if len(users) != 1 or users[0].op_type != op:
                return ""
            name = users[0].output[0]
        return name

    def linear_product(self, node: onnx.NodeProto) -> None:
        """A product of floats, as QLinearConv and QLinearMatMul mean it."""
        op = _LINEAR_PRODUCTS[node.op_type]
        self.floats.add(node.output[0])
        x, _, _, *weights = node.input[:6]
        channels = 0 if op == "Conv" else -1
        value = self.floats_of(weights, channels)
        inputs = [x, weights[0] if value is None else self.constant(node.name, value, "/weights")]
        if len(node.input) > 8 and node.input[8] in self.constants:
            scales = self.constants[node.input[1]] * self.constants[weights[1]]
            bias = self.constants[node.input[8]].astype(np.float64) * scales
            inputs.append(self.constant(node.name, bias.astype(np.float32), "/bias"))
        scale, zero = (self.constants.get(name) for name in node.input[6:8])
        cut = self._cuts_at_zero(zero)
        whole = f"{node.output[0]}/whole" if cut else node.output[0]
        made = helper.make_node(op, inputs, [whole], node.name)
        made.attribute.extend(node.attribute)
        self.made.append(made)
        if cut:
            self.made.append(helper.make_node("Relu", [whole], [node.output[0]], f"{whole}/cut"))
        self.layers.append(Layer(node.name, node.op_type, node.output[0], scale, zero))


def _along(value: Array, codes: Array, axis: int) -> Array:
    """One number, or one for each place of an axis, broadcast over the codes."""
    if value.size == 1:
        return value.reshape(())
    if value.ndim != 1:
        return value
    return value.reshape([-1 if i == axis % codes.ndim else 1 for i in range(codes.ndim)])


def _attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((int(a.i) for a in node.attribute if a.name == name), default)


_HANDLERS: dict[str, Callable[[_Rewrite, onnx.NodeProto], None]] = {
    "QuantizeLinear": _Rewrite.quantize,
    "DequantizeLinear": _Rewrite.dequantize,
    "DynamicQuantizeLinear": _Rewrite.quantize_dynamically,
    **dict.fromkeys(_INTEGER_PRODUCTS, _Rewrite.integer_product),
    **dict.fromkeys(_LINEAR_PRODUCTS, _Rewrite.linear_product),
}
