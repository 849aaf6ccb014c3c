"""Reading tile programs back from text; the grammar stands in `luban.tile.text`."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any, NoReturn

from luban.core.dtypes import dtype
from luban.core.errors import LubanError, ModelError
from luban.tile.function import Function, Module, Operation, Param, Region, Value
from luban.tile.memory_ops import Call, If
from luban.tile.op import TileOp
from luban.tile.ops import Constant
from luban.tile.table import BY_MNEMONIC
from luban.tile.types import Ptr, TileType
from luban.tile.verify import MAX_NESTING

__all__ = ["parse"]

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*)
  | (?P<type>(?:tile|ptr)<[^>\n]*>)
  | (?P<value>%[A-Za-z0-9_.]+)
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<number>-?(?:\d{1,400}(?:\.\d+)?(?:e[+-]?\d+)?|inf\b|nan\b))
  | (?P<word>[A-Za-z_][A-Za-z0-9_.]*)
  | (?P<sign>[{}()\[\]=:,?^])
    """,
    re.VERBOSE,
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


def _tokens(source: str) -> list[_Token]:
    found = []
    at, line = 0, 1
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            raise ModelError(f"tile text, line {line}: unexpected {source[at : at + 20]!r}")
        kind = match.lastgroup or ""
        if kind != "space":
            found.append(_Token(kind, match.group(), line))
        line += match.group().count("\n")
        at = match.end()
    found.append(_Token("end", "end of text", line))
    return found


def parse(source: str) -> Function | Module:
    """A program from its text: a Module when it starts with `module`, else a Function.

    Only the form is checked here, types included; `verify` checks the rest. Raises ModelError with
    the line.

    >>> from luban.tile.text import to_text
    >>> source = '''func twice(%x: ptr<i32>) {
    ...   %0 = constant 0 : i64
    ...   %1 = load{shape=[], strides=[]} %x, %0 : i32
    ...   %2 = add %1, %1 : i32
    ...   store{shape=[], strides=[]} %x, %0, %2
    ... }'''
    >>> to_text(parse(source)) == source
    True
    """
    parser = _Parser(_tokens(source))
    if parser.accept("module"):
        entry = parser.take("word")
        functions = [parser.function()]
        while parser.peek().kind != "end":
            functions.append(parser.function())
        return Module(tuple(functions), entry)
    function = parser.function()
    parser.take("end")
    return function


class _Parser:
    """Recursive descent over the tokens."""

    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.values: dict[str, Value] = {}

    def peek(self) -> _Token:
        """The next token."""
        return self.tokens[self.at]

    def fail(self, message: str) -> NoReturn:
        """Raise ModelError with the current line."""
        raise ModelError(f"tile text, line {self.peek().line}: {message}")

    def take(self, kind: str) -> str:
        """The next token, which must be of this kind."""
        token = self.peek()
        if token.kind != kind:
            self.fail(f"got {token.text!r}, expected {'the end' if kind == 'end' else f'a {kind}'}")
        self.at += 1
        return token.text

    def accept(self, text: str) -> bool:
        """Take the next token if it is this sign or word."""
        token = self.peek()
        if token.text == text and token.kind in ("sign", "word"):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Take this sign or word."""
        if not self.accept(text):
            self.fail(f"got {self.peek().text!r}, expected {text!r}")

    def list_of(self, item: Callable[[], Any], end: str) -> list[Any]:
        """Items with commas between, up to `end`, which is taken."""
        items: list[Any] = []
        while not self.accept(end):
            if items:
                self.expect(",")
            items.append(item())
        return items

    def function(self) -> Function:
        """One function."""
        self.expect("func")
        noinline = self.accept("noinline")
        name = self.take("word")
        self.values = {}
        self.expect("(")
        params = tuple(self.list_of(self.param, ")"))
        doc = self.string() if self.accept("doc") else ""
        body = self.region(tuple(param.value for param in params), depth=0)
        return Function(name, params, body, noinline, doc)

    def param(self) -> Param:
        """One parameter of a function."""
        value = self.define_typed()
        attributes = self.attributes()
        known = {field.name for field in dataclasses.fields(Param)} - {"value"}
        self.refuse_unknown(attributes, known, f"%{value.name}")
        return Param(value, **attributes)

    def define_typed(self) -> Value:
        """`%name: type`, a new value."""
        name = self.take("value")[1:]
        self.expect(":")
        return self.define(name, self.type())

    def define(self, name: str, given: TileType) -> Value:
        """A new value of this name."""
        if name in self.values:
            self.fail(f"%{name} is defined twice")
        value = self.values[name] = Value(given, "" if name.isdecimal() else name)
        return value

    def use(self) -> Value:
        """A value that was defined before."""
        token = self.peek()
        name = self.take("value")[1:]
        if name not in self.values:
            raise ModelError(f"tile text, line {token.line}: %{name} is not defined")
        return self.values[name]

    def uses(self) -> tuple[Value, ...]:
        """Values with commas between; maybe none."""
        if self.peek().kind != "value":
            return ()
        found = [self.use()]
        while self.accept(","):
            found.append(self.use())
        return tuple(found)

    def type(self) -> TileType:
        """A type."""
        token = self.peek()
        self.at += 1
        try:
            if token.kind == "word":
                return TileType(dtype(token.text))
            if token.kind == "type" and token.text.startswith("ptr<"):
                return TileType(Ptr(dtype(token.text[4:-1])))
            if token.kind == "type":
                *extents, elem = token.text[5:-1].split("x")
                return TileType(dtype(elem), tuple(int(extent) for extent in extents))
        except (LubanError, ValueError) as error:
            raise ModelError(f"tile text, line {token.line}: type {token.text}: {error}") from None
        raise ModelError(f"tile text, line {token.line}: got {token.text!r}, expected a type")

    def region(self, params: tuple[Value, ...] | None, depth: int) -> Region:
        """A body; its parameters are read unless given."""
        if depth > MAX_NESTING:
            self.fail(f"nested deeper than {MAX_NESTING} regions")
        self.expect("{")
        if params is None:
            params = ()
            if self.accept("^"):
                self.expect("(")
                params = tuple(self.list_of(self.define_typed, ")"))
        body = []
        yields: tuple[Value, ...] = ()
        while not self.accept("}"):
            if self.accept("yield"):
                yields = self.uses()
                self.expect("}")
                break
            body.append(self.operation(depth))
        return Region(params, tuple(body), yields)

    def operation(self, depth: int) -> Operation:
        """One operation with its regions."""
        line = self.peek().line
        names = []
        if self.peek().kind == "value":
            names = [self.take("value")[1:]]
            while self.accept(","):
                names.append(self.take("value")[1:])
            self.expect("=")
        mnemonic = self.take("word")
        if mnemonic not in BY_MNEMONIC:
            raise ModelError(f"tile text, line {line}: unknown operation {mnemonic!r}")
        attributes = self.attributes()
        value = self.literal("value") if BY_MNEMONIC[mnemonic][0] is Constant else None
        operands = self.uses()
        types = [self.type()] if self.accept(":") else []
        while types and self.accept(","):
            types.append(self.type())
        try:
            op = self.op(mnemonic, attributes, value, tuple(types))
            inferred = op.infer(*[operand.type for operand in operands])
        except (LubanError, TypeError, ValueError) as error:
            raise ModelError(f"tile text, line {line}: {error}") from None
        if list(inferred) != types or len(names) != len(types):
            found = ", ".join(map(str, inferred)) or "nothing"
            raise ModelError(f"tile text, line {line}: {mnemonic} gives {found}")
        regions = []
        while self.peek().text == "{":
            regions.append(self.region(None, depth + 1))
        results = tuple(self.define(name, to) for name, to in zip(names, types, strict=True))
        return Operation(op, operands, results, tuple(regions))

    def op(
        self, mnemonic: str, attributes: dict[str, Any], value: Any, types: tuple[TileType, ...]
    ) -> TileOp:
        """The op that the mnemonic, the attributes and the result types say."""
        kind, said = BY_MNEMONIC[mnemonic]
        fields = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
        self.refuse_unknown(attributes, fields - set(said), mnemonic)
        if kind is Constant and len(types) == 1:
            attributes = {"value": value, "dtype": types[0].dtype}
        elif kind in (If, Call):
            attributes = attributes | {"types": types}
        return kind(**attributes, **said)

    def attributes(self) -> dict[str, Any]:
        """`{name=literal, ...}`, empty when there are none."""
        found: dict[str, Any] = {}
        following = self.tokens[self.at + 1 : self.at + 3]
        if [token.kind for token in following] != ["word", "sign"] or following[1].text != "=":
            return found  # a region, or something else
        if not self.accept("{"):
            return found

        def one() -> None:
            name = self.take("word")
            self.expect("=")
            if name in found:
                self.fail(f"attribute {name} is given twice")
            found[name] = self.literal(name)

        self.list_of(one, "}")
        return found

    def string(self) -> str:
        """A quoted string."""
        try:
            return str(json.loads(self.take("string")))
        except ValueError as error:
            self.at -= 1
            self.fail(f"bad string: {error}")

    def literal(self, field: str, depth: int = 0) -> Any:
        """An attribute's value."""
        token = self.peek()
        if token.kind == "string":
            return self.string()
        if depth > 4:
            self.fail("lists nested too deeply")
        self.at += 1
        match token.kind, token.text:
            case "sign", "?":
                return None
            case "sign", "[":
                return tuple(self.list_of(lambda: self.literal(field, depth + 1), "]"))
            case "word", "true" | "false":
                return token.text == "true"
            case "word", word:
                return dtype(word) if field == "dtype" else word
            case "number", text:
                return float(text) if re.search(r"[.enf]", text) else int(text)
        raise ModelError(f"tile text, line {token.line}: got {token.text!r}, expected a literal")

    def refuse_unknown(self, given: dict[str, Any], known: set[str], where: str) -> None:
        """Refuse attributes that the op or parameter does not have."""
        for name in given:
            if name not in known:
                self.fail(f"{where} has no attribute {name}, expected {', '.join(sorted(known))}")
