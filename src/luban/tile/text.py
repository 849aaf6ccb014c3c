"""Tile programs as text: deterministic, values renumbered, and `parse` reads it back.

    program   = ["module" entry] function+            "module" only when there are several
    function  = "func" ["noinline"] name "(" params ")" ["doc" string] region
    params    = [param ("," param)*]
    param     = value ":" type [attrs]
    region    = "{" ["^" "(" value ":" type, ... ")"] operation* ["yield" value, ...] "}"
    operation = [value, ... "="] mnemonic [attrs] [literal] [value, ...] [":" type, ...] region*
    attrs     = "{" name "=" literal, ... "}"
    literal   = number | "true" | "false" | "?" | word | string | "[" literal, ... "]"
    type      = elem | "tile<" extents "x" elem ">" | "ptr<" elem ">"
    value     = "%" (number | name)

Only `constant` has a bare literal. "?" is None: a dynamic stride, an axis without row offsets.
Attributes at their default are left out. Types after ":" are those of the results. Locations are
not printed.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

from luban.tile.function import Function, Module, Operation, Param, Region, Value
from luban.tile.memory_ops import Call, If
from luban.tile.op import TileOp
from luban.tile.ops import Binary, Compare, Constant, Unary

__all__ = ["Names", "function_names", "operation_text", "to_text"]

# Fields that the mnemonic or the result types say already.
_SAID_ELSEWHERE: dict[type[TileOp], frozenset[str]] = {
    Unary: frozenset({"kind"}),
    Binary: frozenset({"kind"}),
    Compare: frozenset({"predicate"}),
    Constant: frozenset({"value", "dtype"}),
    If: frozenset({"types"}),
    Call: frozenset({"types"}),
}
_BARE_WORDS = frozenset({"kind", "cache", "access"})  # closed sets of words; other text is quoted


class Names:
    """Gives each value of a function its printed name, in order of first sight."""

    def __init__(self, function: Function | None = None) -> None:
        self._names: dict[Value, str] = {}
        self._next = 0
        if function is not None:
            for param in function.params:
                self._names[param.value] = f"%{param.name}"

    def __call__(self, value: Value) -> str:
        """The name of this value: "%" and a number, or the name of a parameter."""
        name = self._names.get(value)
        if name is None:
            name = self._names[value] = f"%{self._next}"
            self._next += 1
        return name

    def all_of(self, values: Sequence[Value]) -> str:
        """Several names, joined with commas."""
        return ", ".join([self(value) for value in values])


def _literal(field: str, value: Any) -> str:
    if value is None:
        return "?"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join([_literal(field, item) for item in value]) + "]"
    if isinstance(value, str):
        return value if field in _BARE_WORDS else json.dumps(value)
    return repr(value)  # numbers and element types


def _attributes(item: TileOp | Param, skip: frozenset[str]) -> str:
    parts = []
    for field in dataclasses.fields(item):  # type: ignore[arg-type]  # every op is a dataclass
        value = getattr(item, field.name)
        at_default = type(value) is type(field.default) and value == field.default
        if field.name not in skip and not at_default:
            parts.append(f"{field.name}={_literal(field.name, value)}")
    return "{" + ", ".join(parts) + "}" if parts else ""


def _head(operation: Operation, names: Names) -> str:
    op = operation.op
    operands = names.all_of(operation.operands)
    results = names.all_of(operation.results)
    text = f"{results} = " if results else ""
    text += op.mnemonic + _attributes(op, _SAID_ELSEWHERE.get(type(op), frozenset()))
    if isinstance(op, Constant):
        text += " " + _literal("value", op.value)
    if operands:
        text += " " + operands
    if operation.results:
        text += " : " + ", ".join([str(value.type) for value in operation.results])
    return text


def operation_text(operation: Operation, names: Names | None = None) -> str:
    """One operation on one line, its regions left out."""
    return _head(operation, names or Names()) + (" {...}" if operation.regions else "")


def _params(values: Sequence[Value], names: Names) -> str:
    return ", ".join([f"{names(value)}: {value.type}" for value in values])


def _region_lines(region: Region, names: Names, indent: str, params: str) -> Iterator[str]:
    if params:
        yield f"{indent}  ^({params})"
    for operation in region.body:
        yield from _operation_lines(operation, names, indent + "  ")
    if region.yields:
        yield f"{indent}  yield {names.all_of(region.yields)}"


def _operation_lines(operation: Operation, names: Names, indent: str) -> Iterator[str]:
    head = indent + _head(operation, names)
    for region in operation.regions:
        yield head + " {"
        yield from _region_lines(region, names, indent, _params(region.params, names))
        head = indent + "}"
    yield head


def function_names(function: Function) -> Names:
    """The names that the values of a function print with."""
    names = Names(function)
    for _ in _region_lines(function.body, names, "", ""):
        pass
    return names


def _function_lines(function: Function) -> Iterator[str]:
    names = Names(function)
    params = ", ".join(
        f"{names(param.value)}: {param.type}"
        + (" " + attributes if (attributes := _attributes(param, frozenset({"value"}))) else "")
        for param in function.params
    )
    noinline = "noinline " if function.noinline else ""
    doc = f" doc {json.dumps(function.doc)}" if function.doc else ""
    yield f"func {noinline}{function.name}({params}){doc} {{"
    yield from _region_lines(function.body, names, "", "")
    yield "}"


def to_text(program: Module | Function) -> str:
    """The program as text; equal programs give equal text.

    >>> from luban.tile.builder import FunctionBuilder
    >>> b = FunctionBuilder("double")
    >>> x = b.pointer("x", "f32", alignment=64)
    >>> b.store(x, b.program_id() * 4, b.load(x, b.program_id() * 4, (4,)) * 2.0)
    >>> print(to_text(b.finish()))
    func double(%x: ptr<f32> {alignment=64}) {
      %0 = program_id : i64
      %1 = constant 4 : i64
      %2 = mul %0, %1 : i64
      %3 = load{shape=[4], strides=[1]} %x, %2 : tile<4xf32>
      %4 = constant 2.0 : f32
      %5 = broadcast{shape=[4]} %4 : tile<4xf32>
      %6 = mul %3, %5 : tile<4xf32>
      store{shape=[4], strides=[1]} %x, %2, %6
    }
    """
    if isinstance(program, Function):
        return "\n".join(_function_lines(program))
    if len(program.functions) == 1 and program.functions[0].name == program.entry:
        return "\n".join(_function_lines(program.functions[0]))
    parts = ["\n".join(_function_lines(function)) for function in program.functions]
    return "\n\n".join([f"module {program.entry}", *parts])
