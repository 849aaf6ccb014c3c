"""Tile programs: values, operations in order, regions, functions, modules.

A program is an ordered tree, never interned. Every value has one definition and is visible after
it, also inside later regions. Objects are compared by identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from luban.core.errors import CheckError
from luban.core.loc import Loc
from luban.tile.op import TileOp
from luban.tile.types import TileType

__all__ = ["Access", "Function", "Module", "Operation", "Param", "Region", "Value"]

Access = Literal["read", "write", "read_write"]


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A result of an operation, or a parameter of a region. Printing renumbers `name`."""

    type: TileType
    name: str = ""

    def __repr__(self) -> str:
        return f"<{self.name or 'value'}: {self.type}>"


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A body with parameters; `yields` are the values that it hands back."""

    params: tuple[Value, ...] = ()
    body: tuple[Operation, ...] = ()
    yields: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One step of a program."""

    op: TileOp
    operands: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()
    regions: tuple[Region, ...] = ()
    loc: Loc | None = field(default=None, repr=False)

    @property
    def result(self) -> Value:
        """The only result."""
        (only,) = self.results
        return only


@dataclass(frozen=True, slots=True, eq=False)
class Param:
    """A parameter of a function: its value and what the caller promises.

    Scalars: `multiple_of` divides the value. Pointers:
    access      what the function does with the memory; what is "write" only starts as poison in
                checked mode
    alignment   the address is a multiple of this many bytes (0: of one element); if it is less than
                an element, the function's loads claim nothing of their addresses
    noalias     name of a group: memory of different groups never overlaps; None may overlap
                anything
    extent      elements that may be touched: a number, or a sum of products of numbers and scalar
                parameters ("m*k + 4")
    per_thread  one area for each thread, found with `thread_id`; nothing in it outlives a program
    """

    value: Value
    access: Access = "read_write"
    alignment: int = 0
    noalias: str | None = None
    extent: int | str | None = None
    multiple_of: int = 1
    per_thread: bool = False
    doc: str = ""

    @property
    def name(self) -> str:
        """The parameter's name."""
        return self.value.name

    @property
    def type(self) -> TileType:
        """The parameter's type."""
        return self.value.type

    @property
    def is_pointer(self) -> bool:
        """True for an address, False for a number."""
        return self.value.type.is_pointer


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A tile function.

    `body.params` are the values of `params`; `body.yields` are what it returns to a `call`.
    noinline: keep it a function of its own in compiled code (a shared micro-kernel).
    """

    name: str
    params: tuple[Param, ...]
    body: Region
    noinline: bool = False
    doc: str = ""

    @property
    def result_types(self) -> tuple[TileType, ...]:
        """Types of what a `call` gets back; kernels return nothing."""
        return tuple(value.type for value in self.body.yields)

    def operations(self) -> Iterator[Operation]:
        """Every operation in program order, those inside regions too."""
        return walk(self.body)

    def param(self, name: str) -> Param:
        """The parameter of this name. Raises CheckError when there is none."""
        for param in self.params:
            if param.name == name:
                return param
        names = ", ".join(param.name for param in self.params)
        raise CheckError(f"{self.name} has no parameter {name!r}", hint=f"it has {names or 'none'}")


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """Functions that call each other; `entry` is the kernel that a grid launches."""

    functions: tuple[Function, ...]
    entry: str

    @property
    def kernel(self) -> Function:
        """The entry function."""
        return self.function(self.entry)

    def function(self, name: str) -> Function:
        """The function of this name. Raises CheckError when there is none."""
        for function in self.functions:
            if function.name == name:
                return function
        names = ", ".join(function.name for function in self.functions)
        raise CheckError(f"the module has no function {name!r}", hint=f"it has {names or 'none'}")

    @staticmethod
    def of(program: Module | Function) -> Module:
        """A module as it is, a function as a module of one."""
        return Module((program,), program.name) if isinstance(program, Function) else program


def walk(region: Region) -> Iterator[Operation]:
    """Every operation of a region in program order, those of inner regions after their owner."""
    stack = [iter(region.body)]
    while stack:
        for operation in stack[-1]:
            yield operation
            if operation.regions:
                stack.append(iter([inner for part in operation.regions for inner in part.body]))
                break
        else:
            stack.pop()
