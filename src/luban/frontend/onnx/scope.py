"""Names and what they stand for, level by level, while a model is read.

A sub-graph that becomes a closed `Graph` captures what it uses from outside: the outer node
becomes an operand, and a parameter stands for it inside. Constants, and integers that are known as
sizes, are repeated inside instead, so that axes and shapes stay known there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from luban.core.types import TensorType
from luban.graph import build
from luban.graph.ops.data import Constant
from luban.graph.sizes import symbolic_value
from luban.ir.node import Node

__all__ = ["Failed", "Scope", "Value", "declared_types", "of_sizes"]


@dataclass(frozen=True, slots=True)
class Failed:
    """Stands for a value whose node has no translation: its users are left out."""

    reason: str


Value = Node | Failed


@dataclass(slots=True)
class Scope:
    """One level of names.

    `closed` levels become graphs of their own and capture. `attributes` and `absent` (inputs left
    out at the call) are those of the function whose body this is.
    """

    path: str
    opset: Mapping[str, int]
    parent: Scope | None = None
    closed: bool = False
    is_function: bool = False
    attributes: Mapping[str, onnx.AttributeProto] = field(default_factory=dict)
    declared: Mapping[str, onnx.TypeProto] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    lazy: dict[str, Callable[[], Node]] = field(default_factory=dict)
    captured: dict[Node, Node] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)

    def find(self, name: str) -> Value | None:
        """What the name stands for here or further out; None if nothing has it."""
        found = self.values.get(name)
        if found is not None:
            return found
        if name in self.lazy:
            self.values[name] = found = self.lazy.pop(name)()
            return found
        outer = self.parent.find(name) if self.parent else None
        if isinstance(outer, Node) and self.closed:
            return self._inside(name, outer)
        return outer

    def is_absent(self, name: str) -> bool:
        """True for an input of the enclosing function that its call leaves out."""
        return name in self.absent or (self.parent is not None and self.parent.is_absent(name))

    def _inside(self, name: str, outer: Node) -> Node:
        if isinstance(outer.op, Constant):
            return outer
        if outer in self.captured:
            return self.captured[outer]
        known = symbolic_value(outer) if isinstance(outer.type, TensorType) else None
        inside = (
            of_sizes(known, outer)
            if known is not None
            else build.parameter(f"{self.path}/{name}", outer.type)
        )
        if known is None:
            self.captured[outer] = inside
        self.values[name] = inside
        return inside


def declared_types(graph: onnx.GraphProto) -> dict[str, onnx.TypeProto]:
    """What a graph states about the types of its values."""
    stated = (*graph.value_info, *graph.output)
    return {v.name: v.type for v in stated if v.type.WhichOneof("value")}


def of_sizes(sizes: np.ndarray[Any, Any], like: Node) -> Node:
    """A node with these sizes as elements and the dtype of `like` that depends on no other node."""
    flat = list(sizes.ravel())
    vector = build.shape_vector(flat)
    return build.reshape(build.cast(vector, like.tensor.dtype), sizes.shape)
