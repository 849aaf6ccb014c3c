"""Reads the text form of graphs. The grammar stands in `luban.graph.text`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from luban.core import dims
from luban.core.dims import Dim, DimLike
from luban.core.dtypes import DTYPES, DType
from luban.core.errors import InternalError, LubanError, ModelError
from luban.core.types import OptionalType, SequenceType, TensorType, TupleType, Type, type_of_array
from luban.graph.build import parameter
from luban.graph.meaning.context import Array
from luban.graph.ops import PRIMITIVES
from luban.graph.ops.data import Literal
from luban.ir.node import Graph, Node, node

__all__ = ["parse_graph"]

T = TypeVar("T")

_TOKEN = re.compile(
    r"""(?P<skip>(\s|\#[^\n]*)+)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<number>-?(?:0x[0-9a-fA-F]+|inf|nan|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w]))
      | (?P<ident>[A-Za-z_][A-Za-z_0-9.]*)
      | (?P<range>\.\.)
      | (?P<sign>[@%(){}\[\]<>,:=])""",
    re.VERBOSE,
)


def parse_graph(text: str, literals: Mapping[str, Array] | None = None) -> Graph:
    """The last graph of a text; `literals` holds the arrays of its external literals by name.

    Raises ModelError with line and column, what was found and what was expected.

    >>> parse_graph("graph @f(%x: f32[n]) { %0 = exp(%x) : f32[n]  return %0 }").results[0]
    <exp : f32[n]>
    """
    parser = _Parser(text, literals or {})
    graph = parser.graph()
    while not parser.at_end():
        graph = parser.graph()
    return graph


class _Parser:
    """A recursive descent over the grammar: one method for each of its rules."""

    def __init__(self, text: str, literals: Mapping[str, Array]) -> None:
        self.text = text
        self.place = 0
        self.literals = literals
        self.graphs: dict[str, Graph] = {}
        self.known: dict[str, Dim] = {}
        self._skip()

    # Tokens

    def _skip(self) -> None:
        found = _TOKEN.match(self.text, self.place)
        if found and found.lastgroup == "skip":
            self.place = found.end()

    def at_end(self) -> bool:
        return self.place == len(self.text)

    def fail(self, expected: str, at: int | None = None) -> ModelError:
        place = self.place if at is None else at
        before = self.text[:place]
        line, column = before.count("\n") + 1, place - (before.rfind("\n") + 1) + 1
        found = self.text[place:].split("\n")[0][:20] or "the end"
        return ModelError(f"line {line}, column {column}: found {found!r}, expected {expected}")

    def peek(self) -> str:
        found = _TOKEN.match(self.text, self.place)
        return found.group() if found else ""

    def take(self, kind: str, what: str) -> str:
        found = _TOKEN.match(self.text, self.place)
        if not found or found.group(kind) is None:
            raise self.fail(what)
        self.place = found.end()
        self._skip()
        return found.group()

    def expect(self, sign: str) -> None:
        if self.peek() != sign:
            raise self.fail(repr(sign))
        self.place += len(sign)
        self._skip()

    def accept(self, sign: str) -> bool:
        if self.peek() != sign:
            return False
        self.expect(sign)
        return True

    def several(self, item: Callable[[], T], end: str) -> list[T]:
        """Items between commas up to the closing sign; a comma may follow the last."""
        found: list[T] = []
        while not self.accept(end):
            found.append(item())
            if self.peek() != end:
                self.expect(",")
        return found

    def string(self) -> str:
        at = self.place
        try:
            return str(json.loads(self.take("string", "a string")))
        except json.JSONDecodeError:
            raise self.fail("a string with JSON escapes", at) from None

    def integer(self) -> int:
        at = self.place
        try:
            return int(self.take("number", "a whole number"))
        except ValueError:
            raise self.fail("a whole number", at) from None

    def name(self) -> str:
        if self.peek().startswith('"'):
            return self.string()
        kind = "number" if self.peek().isdigit() else "ident"
        return self.take(kind, "a name")

    # Grammar

    def graph(self) -> Graph:
        if not self.accept("graph"):
            raise self.fail("'graph'")
        self.expect("@")
        name = self.name()
        self.known = dict(self.several(self.bound, "]")) if self.accept("[") else {}
        self.expect("(")
        values: dict[str, Node] = {}
        parameters = tuple(self.several(lambda: self.parameter(values), ")"))
        self.expect("{")
        while not self.accept("return"):
            self.node(values)
        results = self.several(lambda: self.result(values), "}")
        names = tuple(label for _, label in results if label is not None)
        if names and len(names) < len(results):
            raise self.fail("a name for each result or for none")
        found = Graph(name, parameters, tuple(r for r, _ in results), names)
        self.graphs[name] = found
        return found

    def bound(self) -> tuple[str, Dim]:
        at = self.place
        name = self.take("ident", "a dimension name")
        self.expect(":")
        low = self.integer()
        self.expect("..")
        high = self.integer() if self.peek().isdigit() else dims.UNBOUNDED
        try:
            return name, dims.symbol(name, low, high)
        except LubanError as error:
            raise self.fail(f"the bounds of a size: {error.message}", at) from error

    def declare(self, values: dict[str, Node], make: Callable[[str], Node]) -> Node:
        at = self.place
        self.expect("%")
        name = self.name()
        if name in values:
            raise self.fail(f"a new value: %{name} exists already", at)
        values[name] = made = make(name)
        return made

    def parameter(self, values: dict[str, Node]) -> Node:
        def make(name: str) -> Node:
            self.expect(":")
            return parameter(name, self.type())

        return self.declare(values, make)

    def node(self, values: dict[str, Node]) -> None:
        def make(_: str) -> Node:
            self.expect("=")
            at = self.place
            op_name = self.take("ident", "an operation")
            if op_name not in PRIMITIVES:
                raise self.fail("the name of a primitive", at)
            self.expect("(")
            operands = self.several(lambda: self.value(values), ")")
            pairs = self.several(self.pair, "}") if self.accept("{") else []
            try:
                made = node(PRIMITIVES[op_name](**dict(pairs)), *operands)
            except (TypeError, ValueError, AttributeError, InternalError, LubanError) as error:
                raise self.fail(f"a fitting {op_name}: {error}", at) from error
            self.expect(":")
            at = self.place
            if self.type() != made.type:
                raise self.fail(f"the type {made.type}", at)
            return made

        self.declare(values, make)

    def value(self, values: dict[str, Node]) -> Node:
        at = self.place
        self.expect("%")
        name = self.name()
        if name not in values:
            raise self.fail("a value that is defined above", at)
        return values[name]

    def result(self, values: dict[str, Node]) -> tuple[Node, str | None]:
        found = self.value(values)
        return found, self.string() if self.accept("as") else None

    def pair(self) -> tuple[str, object]:
        name = self.take("ident", "an attribute name")
        self.expect("=")
        return name, self.attribute()

    def attribute(self) -> object:
        token = self.peek()
        if token in ("true", "false", "none"):
            self.expect(token)
            return {"true": True, "false": False, "none": None}[token]
        if token.startswith('"'):
            return self.string()
        if self.accept("("):
            return tuple(self.several(self.attribute, ")"))
        if self.accept("<"):
            size = self.size(">")
            self.expect(">")
            return size
        if self.accept("@"):
            return self.sub_graph()
        if token in ("literal", "external"):
            return self.literal()
        if token in DTYPES or token in ("seq", "optional"):
            return self.dtype_or_type()
        text = self.take("number", "an attribute")
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)

    def sub_graph(self) -> Graph:
        at = self.place
        name = self.name()
        if name not in self.graphs:
            raise self.fail("the name of a graph that is defined above", at)
        return self.graphs[name]

    def dtype_or_type(self) -> DType | Type:
        found = _TOKEN.match(self.text, self.place)
        assert found is not None
        if found.group() in DTYPES and not self.text.startswith("[", found.end()):
            return DTYPES[self.take("ident", "a dtype")]
        return self.type()

    def type(self) -> Type:
        if self.accept("("):
            return TupleType(tuple(self.several(self.type, ")")))
        for word, kind in (("seq", SequenceType), ("optional", OptionalType)):
            if self.accept(word):
                self.expect("<")
                item = self.type()
                self.expect(">")
                return kind(item)
        return self.tensor_type()

    def tensor_type(self) -> TensorType:
        at = self.place
        element = DTYPES.get(self.take("ident", "a type"))
        if element is None:
            raise self.fail("one of " + ", ".join(DTYPES), at)
        self.expect("[")
        return TensorType(element, tuple(self.several(lambda: self.size("]"), "]")))

    def size(self, end: str) -> DimLike:
        """A dimension: everything up to a comma or the closing sign outside brackets."""
        at, depth = self.place, 0
        while not self.at_end():
            char = self.text[self.place]
            if not depth and char in ("," + end):
                break
            depth += (char == "(") - (char == ")")
            self.place += 1
        try:
            return dims.parse(self.text[at : self.place].strip(), self.known)
        except LubanError as error:
            raise self.fail(f"a dimension: {error.message}", at) from error

    def literal(self) -> Literal:
        external = self.peek() == "external"
        self.expect(self.peek())
        self.expect("(")
        type_ = self.tensor_type()
        self.expect(",")
        at = self.place
        array = self.external(type_) if external else self.inline(type_)
        if type_of_array(array) != type_:
            raise self.fail(f"an array of type {type_}, not {type_of_array(array)}", at)
        label = self.string() if self.accept(",") else ""
        self.expect(")")
        return Literal(array, label)

    def external(self, type_: TensorType) -> Array:
        at = self.place
        name = self.string()
        if name not in self.literals:
            raise self.fail(f"the name of a given array of type {type_}", at)
        return self.literals[name]

    def inline(self, type_: TensorType) -> Array:
        at = self.place
        self.expect("[")
        items = self.several(self.item, "]")
        try:
            array = _array(items, type_.dtype).reshape(type_.static_shape)
        except (ValueError, OverflowError, TypeError) as error:
            raise self.fail(f"the elements of {type_}: {error}", at) from error
        array.flags.writeable = False
        return array

    def item(self) -> Any:
        token = self.peek()
        if token.startswith('"'):
            return self.string()
        if token in ("true", "false"):
            self.expect(token)
            return token == "true"
        return self.take("number", "an element")


def _array(items: list[Any], element: DType) -> Array:
    if element.kind == "string":
        return np.array(items, dtype=object)
    if element.kind == "bool":
        return np.array(items, dtype=np.bool_)
    if element.is_integer:
        wide = np.uint64 if element.kind == "uint" else np.int64
        numbers = np.array([int(i) for i in items], wide)
        if len(numbers) and not element.lowest <= numbers.min() <= numbers.max() <= element.highest:
            raise ValueError(f"expected {element.lowest} to {element.highest}")
        return numbers.astype(element.numpy)
    parts: dict[str, np.dtype[Any]] = {"c64": np.dtype(np.float32), "c128": np.dtype(np.float64)}
    storage = parts.get(element.name, element.numpy)
    patterns = np.zeros(len(items), f"u{storage.itemsize}")
    values: Array = patterns.view(storage)
    for i, item in enumerate(items):
        if item.startswith("0x"):
            patterns[i] = int(item, 16)
        else:
            values[i] = float(item)
    whole: Array = values.view(element.numpy)
    return whole
