"""What a handler is given besides its inputs: attributes, versions, known values, sub-graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import onnx

from luban.core.dims import UNBOUNDED, Dim, DimLike
from luban.core.dtypes import DType
from luban.core.errors import ModelError, UnsupportedError
from luban.core.loc import Loc
from luban.core.types import Type
from luban.frontend.onnx.fold import folded
from luban.frontend.onnx.load import element_type
from luban.frontend.onnx.scope import Scope
from luban.graph.ops.data import HostCall
from luban.graph.sizes import symbolic_value
from luban.ir.node import Node, node, results_of

if TYPE_CHECKING:
    from luban.frontend.onnx.importer import Importer

__all__ = ["NodeContext", "RunTimeValueNeeded"]

Int = int  # the context has methods called int and float
Float = float


class RunTimeValueNeeded(Exception):
    """Raised by a handler that needs a value which only the run knows.

    The importer then turns the node into a host step that is built once the value is there.
    `results` states the types of the results where the handler knows more of them than ONNX infers.
    """

    def __init__(self, value: Node, results: Sequence[Type] | None = None) -> None:
        super().__init__("a value is known at run time only")
        self.value = value
        self.results = results


class _Required:
    """Marks an attribute that has no default."""


REQUIRED = _Required()


@dataclass(frozen=True, slots=True)
class NodeContext:
    """One ONNX node on its way into the graph."""

    proto: onnx.NodeProto
    opset: Int
    loc: Loc
    scope: Scope
    importer: Importer
    attributes: Mapping[str, onnx.AttributeProto]

    @property
    def op(self) -> str:
        """The operator's name."""
        return self.proto.op_type

    @property
    def domain(self) -> str:
        """The operator's domain; "" for the standard's."""
        return "" if self.proto.domain == "ai.onnx" else self.proto.domain

    @property
    def num_outputs(self) -> Int:
        """How many results the node states; left-out ones in between count."""
        return len(self.proto.output)

    def output_used(self, index: Int) -> bool:
        """True if the node has that result and gives it a name."""
        return index < len(self.proto.output) and bool(self.proto.output[index])

    def declared_type(self, index: Int) -> onnx.TypeProto | None:
        """What the model states about a result, if it does."""
        if not self.output_used(index):
            return None
        return self.scope.declared.get(self.proto.output[index])

    # Attributes. An absent one gives the default; without a default it is a ModelError.

    def has(self, name: str) -> bool:
        """True if the attribute is given."""
        return name in self.attributes

    @overload
    def int(self, name: str) -> Int: ...
    @overload
    def int(self, name: str, default: Int) -> Int: ...
    @overload
    def int(self, name: str, default: None) -> Int | None: ...
    def int(self, name: str, default: Int | None | _Required = REQUIRED) -> Int | None:
        """An integer attribute."""
        found: Int | None = self._attribute(name, onnx.AttributeProto.INT, default)
        return found

    @overload
    def float(self, name: str) -> Float: ...
    @overload
    def float(self, name: str, default: Float) -> Float: ...
    @overload
    def float(self, name: str, default: None) -> Float | None: ...
    def float(self, name: str, default: Float | None | _Required = REQUIRED) -> Float | None:
        """A float attribute: the double nearest to the stored f32."""
        found: Float | None = self._attribute(name, onnx.AttributeProto.FLOAT, default)
        return found

    @overload
    def text(self, name: str) -> str: ...
    @overload
    def text(self, name: str, default: str) -> str: ...
    @overload
    def text(self, name: str, default: None) -> str | None: ...
    def text(self, name: str, default: str | None | _Required = REQUIRED) -> str | None:
        """A text attribute."""
        found: str | None = self._attribute(name, onnx.AttributeProto.STRING, default)
        return found

    @overload
    def ints(self, name: str) -> tuple[Int, ...]: ...
    @overload
    def ints(self, name: str, default: Sequence[Int]) -> tuple[Int, ...]: ...
    @overload
    def ints(self, name: str, default: None) -> tuple[Int, ...] | None: ...
    def ints(
        self, name: str, default: Sequence[Int] | None | _Required = REQUIRED
    ) -> tuple[Int, ...] | None:
        """A list of integers."""
        found: tuple[Int, ...] | None = self._attribute(name, onnx.AttributeProto.INTS, default)
        return found

    @overload
    def floats(self, name: str) -> tuple[Float, ...]: ...
    @overload
    def floats(self, name: str, default: Sequence[Float]) -> tuple[Float, ...]: ...
    @overload
    def floats(self, name: str, default: None) -> tuple[Float, ...] | None: ...
    def floats(
        self, name: str, default: Sequence[Float] | None | _Required = REQUIRED
    ) -> tuple[Float, ...] | None:
        """A list of floats."""
        found: tuple[Float, ...] | None = self._attribute(name, onnx.AttributeProto.FLOATS, default)
        return found

    @overload
    def texts(self, name: str) -> tuple[str, ...]: ...
    @overload
    def texts(self, name: str, default: Sequence[str]) -> tuple[str, ...]: ...
    @overload
    def texts(self, name: str, default: None) -> tuple[str, ...] | None: ...
    def texts(
        self, name: str, default: Sequence[str] | None | _Required = REQUIRED
    ) -> tuple[str, ...] | None:
        """A list of texts."""
        found: tuple[str, ...] | None = self._attribute(name, onnx.AttributeProto.STRINGS, default)
        return found

    def array(self, name: str) -> np.ndarray[Any, Any] | None:
        """A tensor attribute as an array; None if absent."""
        proto = self._attribute(name, onnx.AttributeProto.TENSOR, None)
        return None if proto is None else self.importer.source.array(proto, f"attribute {name!r}")

    def dtype(self, name: str, default: DType | None = None) -> DType:
        """An element type attribute such as `to` or `dtype`."""
        code = self.int(name, None) if default is not None else self.int(name)
        if code is None:
            assert default is not None
            return default
        return element_type(code)

    def body(self, name: str) -> onnx.GraphProto:
        """A sub-graph attribute."""
        proto: onnx.GraphProto = self._attribute(name, onnx.AttributeProto.GRAPH, REQUIRED)
        return proto

    def _attribute(self, name: str, kind: Int, default: Any) -> Any:
        proto = self.attributes.get(name)
        if proto is None:
            if default is REQUIRED:
                raise ModelError(f"{self.op} has no attribute {name!r}", loc=self.loc)
            return tuple(default) if isinstance(default, list) else default
        if proto.type != kind:
            given, wanted = (onnx.AttributeProto.AttributeType.Name(k) for k in (proto.type, kind))
            raise ModelError(
                f"{self.op}: attribute {name!r} is {given}, expected {wanted}", loc=self.loc
            )
        return _VALUES[kind](proto)

    # Values that are known while the graph is built.

    def constant_value(self, x: Node | None) -> np.ndarray[Any, Any] | None:
        """The value of a constant or an expression over small ones and fixed sizes, else None."""
        return None if x is None else folded(x)

    def sizes(self, x: Node | None) -> tuple[DimLike, ...] | None:
        """The elements of a small integer tensor as sizes, possibly symbolic; None if not known."""
        if x is None:
            return None
        value = symbolic_value(x)
        if value is not None:
            return tuple(value.ravel())
        constant = folded(x)
        return None if constant is None else tuple(Int(v) for v in constant.ravel())

    def static(self, x: Node) -> np.ndarray[Any, Any]:
        """The constant value. If it is not known, the node is built at run time, as a host step."""
        value = folded(x)
        if value is None:
            raise RunTimeValueNeeded(x)
        return value

    def static_sizes(self, x: Node) -> tuple[DimLike, ...]:
        """The elements as sizes. If not known, the node is built at run time, as a host step."""
        value = self.sizes(x)
        if value is None:
            raise RunTimeValueNeeded(x)
        return value

    def fresh(self, hint: str, low: Int = 0, high: Int = UNBOUNDED) -> Dim:
        """A size that only the run knows; say what it counts."""
        return self.importer.names.fresh(hint, low, high)

    # Building through others.

    def call(
        self,
        op: str,
        *inputs: Node | None,
        domain: str = "",
        opset: Int | None = None,
        num_outputs: Int = 1,
        attributes: Mapping[str, Any] | None = None,
    ) -> tuple[Node, ...]:
        """The results of another ONNX operator, at this model's version or the stated one."""
        return self.importer.call(
            self, op, inputs, attributes or {}, domain=domain, opset=opset, num_outputs=num_outputs
        )

    def host_call(
        self, function: str, inputs: Sequence[Node], results: Sequence[Type], **options: Any
    ) -> tuple[Node, ...]:
        """The results of a host function: a step in Python that `explain` lists."""
        call = HostCall(function, tuple(sorted(options.items())), tuple(results))
        return results_of(node(call, *inputs))

    def unsupported(self, what: str, nearest: str | None = None) -> UnsupportedError:
        """An error to raise for a form that has no translation; `nearest` says what would work."""
        return UnsupportedError(
            f"{self.op} (opset {self.opset}): {what}", hint=nearest, loc=self.loc
        )

    def wrong(self, what: str, hint: str | None = None) -> ModelError:
        """An error to raise for a node that the operator's specification rules out."""
        return ModelError(f"{self.op} (opset {self.opset}): {what}", hint=hint, loc=self.loc)


_VALUES: dict[int, Any] = {
    onnx.AttributeProto.INT: lambda a: int(a.i),
    onnx.AttributeProto.FLOAT: lambda a: float(a.f),
    onnx.AttributeProto.STRING: lambda a: a.s.decode("utf-8", "replace"),
    onnx.AttributeProto.INTS: lambda a: tuple(a.ints),
    onnx.AttributeProto.FLOATS: lambda a: tuple(a.floats),
    onnx.AttributeProto.STRINGS: lambda a: tuple(s.decode("utf-8", "replace") for s in a.strings),
    onnx.AttributeProto.TENSOR: lambda a: a.t,
    onnx.AttributeProto.GRAPH: lambda a: a.g,
}
