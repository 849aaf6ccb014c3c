"""State while one tile function is turned into one LLVM function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from luban.codegen.addresses import Addresses
from luban.codegen.layout import choose_lanes
from luban.codegen.registers import (
    RegisterTile,
    chunks,
    rechunk,
    register_elem,
    scalar_tile,
    uniform_tile,
)
from luban.codegen.table import EMITTERS, emitter_of
from luban.codegen.writer import Value, Writer
from luban.core.errors import InternalError
from luban.native.target import Target
from luban.tile.function import Function, Module, Operation
from luban.tile.function import Value as TileValue
from luban.tile.types import TileType

__all__ = ["Emitter", "ModuleContext"]


@dataclass(slots=True)
class ModuleContext:
    """What the functions of one module share.

    symbols         tile function name -> LLVM function name
    scratch_offsets byte offset of each `Scratch` operation in the thread's scratch memory
    parts           text of tables and out-of-line functions by symbol, in order of first use
    """

    target: Target
    module: Module
    symbols: Mapping[str, str]
    scratch_offsets: Mapping[Operation, int]
    declarations: dict[str, str] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)


class Emitter:
    """One function: its text so far, and the register tile of each tile value."""

    def __init__(self, context: ModuleContext, function: Function) -> None:
        self.context = context
        self.target = context.target
        self.function = function
        self.w = Writer(context.target)
        self.addresses = Addresses(self.w)
        self.tiles: dict[TileValue, RegisterTile] = {}
        self.program_id = Value("%program_id", "i64")
        self.thread_id = Value("%thread_id", "i64")
        self.scratch = Value("%scratch", "ptr")
        self._lanes = choose_lanes(function, context.target)
        pointers = [param for param in function.params if param.is_pointer and param.alignment]
        self._loads_anywhere = any(p.alignment < p.type.pointee.size_bytes for p in pointers)

    def load_alignment(self, claimed: int) -> int:
        """What a load may claim of its address, in bytes: nothing if some pointer promises less."""
        return 1 if self._loads_anywhere else claimed

    # Tiles

    def lanes(self, value: TileValue) -> int:
        """The chunk size chosen for a tile value."""
        return self._lanes.get(value, 1)

    def tile(self, value: TileValue) -> RegisterTile:
        """The register tile of a value that was emitted before."""
        found = self.tiles.get(value)
        if found is None:
            raise InternalError(f"{value!r} of {self.function.name} is used before it is computed")
        return found

    def tile_in(self, value: TileValue, lanes: int) -> RegisterTile:
        """The register tile of `value` in chunks of `lanes`."""
        found = self.tile(value)
        if found.lanes == lanes:
            return found
        return rechunk(self.w, found, lanes)

    def scalar(self, value: TileValue) -> Value:
        """The register of a scalar or pointer."""
        return self.tile(value).parts[0]

    def result(
        self, operation: Operation, parts: Sequence[Value], lanes: int | None = None
    ) -> tuple[RegisterTile]:
        """The parts of an operation's only result, as what an emit function returns."""
        value = operation.result
        kind = value.type
        if not kind.shape:
            return (scalar_tile(parts[0]),)
        lanes = self.lanes(value) if lanes is None else lanes
        return (RegisterTile(register_elem(kind.dtype), kind.shape, lanes, tuple(parts)),)

    def canonical(self, value: TileValue, given: TileValue) -> Sequence[Value]:
        """Parts of `given` in the form that `value`, to which it flows, is kept in."""
        found = self.tile_in(given, self.lanes(value))
        if found.elem == "i64" and not found.shape:
            return (self.addresses.plain(found.parts[0]),)
        return found.parts

    def bind(self, value: TileValue, parts: Sequence[Value]) -> None:
        """Say that these registers, in the chosen chunks, hold `value`."""
        kind = value.type
        if kind.is_pointer or not kind.shape:
            self.bind_tile(value, scalar_tile(parts[0]))
        else:
            elem = register_elem(kind.dtype)
            self.bind_tile(value, RegisterTile(elem, kind.shape, self.lanes(value), tuple(parts)))

    def bind_tile(self, value: TileValue, found: RegisterTile) -> None:
        """Say what register tile a value is."""
        self.tiles[value] = found
        if found.elem == "i64" and not found.shape:
            self.addresses.note(found.parts[0])

    def part_types(self, value: TileValue) -> list[tuple[str, int]]:
        """(element, lanes) of the registers that `bind` wants for a value."""
        kind = value.type
        if kind.is_pointer:
            return [("ptr", 0)]
        elem = register_elem(kind.dtype)
        if not kind.shape:
            return [(elem, 0)]
        row = [
            (elem, size if size > 1 else 0) for _, size in chunks(kind.shape[-1], self.lanes(value))
        ]
        return row * (kind.num_elements // kind.shape[-1])

    def splat(self, value: Value, kind: TileType, lanes: int) -> RegisterTile:
        """A scalar repeated to the shape of a type."""
        return uniform_tile(self.w, value, kind.shape, lanes)

    # Structure

    def start_block(self, label: str) -> None:
        """Instructions from here on belong to block `label`."""
        self.w.start_block(label)
        self.addresses.start_block()

    def run(self, operations: Sequence[Operation]) -> None:
        """Emit operations in order."""
        for operation in operations:
            op = operation.op
            emit = EMITTERS.get(type(op)) or emitter_of(op)
            for value, result in zip(operation.results, emit(op, self, operation), strict=True):
                self.bind_tile(value, result)

    def out_of_line(self, symbol: str, text: str) -> None:
        """Add a function or table to the module, once."""
        self.context.parts.setdefault(symbol, text)
