"""Tile programs to LLVM IR text.

A kernel becomes two functions: the program itself, whose pointers are real parameters that can be
`noalias`, and the entry `NAME(ptr args, i64 program_id, i64 thread_id)`, which loads them from
8-byte slots. On request `NAME_range(ptr args, i64 lo, i64 hi, i64 thread_id)` loads them once for
many programs. The text depends on nothing but the tile program and the target, so it serves as a
cache key.
"""

from __future__ import annotations

import hashlib
import re

from luban.codegen import atomics, casts, control, matrix, memory, shapes
from luban.codegen.emitter import Emitter, ModuleContext
from luban.codegen.narrow import from_memory
from luban.codegen.registers import memory_elem
from luban.codegen.writer import Value, Writer
from luban.core.errors import InternalError
from luban.native.target import Target
from luban.tile.function import Function, Module, Operation
from luban.tile.memory_ops import Scratch

__all__ = ["emit", "emit_named", "scratch_bytes"]

# Importing these files fills the table of emit functions.
EMITTER_FILES = (atomics, casts, control, matrix, memory, shapes)
_SCRATCH_ALIGN = 64


def emit(program: Module | Function, target: Target, *, range_entry: bool = False) -> str:
    """LLVM IR text of one kernel, whose symbol is the entry function's name.

    range_entry  whether to add `NAME_range`, which costs a fifth of a small kernel's compile time

    Raises InternalError if an op has no emit function.

    >>> from luban.native.target import named_target
    >>> from luban.tile import FunctionBuilder
    >>> b = FunctionBuilder("double")
    >>> x = b.pointer("x", "f32")
    >>> b.store(x, b.program_id() * 8, b.load(x, b.program_id() * 8, (8,)) * 2.0)
    >>> print(emit(b.finish(), named_target("avx2")))
    define internal void @double.program(ptr %p0, ...
      ...fmul <8 x float>...
    """
    module = Module.of(program)
    symbols = {f.name: _quoted(f"{f.name}.program") for f in module.functions}
    offsets, total = _scratch_layout(module)
    context = ModuleContext(target, module, symbols, offsets)
    texts = [_function(context, function) for function in module.functions]
    texts.append(_entry(context, total))
    if range_entry:
        texts.append(_range_entry(context, total))
    attributes = f"attributes #0 = {{ {target.function_attributes} }}"
    declarations = "\n".join(sorted(context.declarations.values()))
    return "\n\n".join([*texts, *context.parts.values(), declarations, attributes]) + "\n"


def emit_named(program: Module | Function, target: Target, prefix: str) -> tuple[str, str]:
    """(symbol, text): what `emit` gives, under a symbol made of `prefix` and its own content."""
    module = Module.of(program)
    text = emit(module, target)
    symbol = f"{prefix}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return symbol, re.sub(rf"@{re.escape(_quoted(module.entry))}(?=[.(])", f"@{symbol}", text)


def _quoted(symbol: str) -> str:
    r"""A symbol as LLVM's text takes it: bare, or quoted with the odd bytes in hexadecimal.

    >>> print(_quoted("gemm_6x64"), _quoted("a b"))
    gemm_6x64 "a\20b"
    """
    if re.fullmatch(r"[A-Za-z$._-][\w$.-]*", symbol, re.ASCII):
        return symbol
    escaped = (chr(b) if chr(b).isalnum() and b < 128 else f"\\{b:02X}" for b in symbol.encode())
    return f'"{"".join(escaped)}"'


def scratch_bytes(program: Module | Function) -> int:
    """Bytes of scratch memory that each thread needs, a multiple of 64; 0 without `Scratch`.

    A kernel with scratch has one more slot after its parameters: the address of the memory of all
    threads, aligned to 64 bytes; thread t uses `scratch_bytes` bytes from address + t *
    scratch_bytes.
    """
    return _scratch_layout(Module.of(program))[1]


def _scratch_layout(module: Module) -> tuple[dict[Operation, int], int]:
    """Byte offset of every `Scratch`, each with its own place, and the total."""
    offsets: dict[Operation, int] = {}
    end = 0
    for function in module.functions:
        for operation in function.operations():
            if isinstance(operation.op, Scratch):
                align = max(operation.op.align, _SCRATCH_ALIGN)
                end = -(-end // align) * align
                offsets[operation] = end
                end += operation.op.count * operation.op.dtype.size_bytes
    return offsets, -(-end // _SCRATCH_ALIGN) * _SCRATCH_ALIGN


def _function(context: ModuleContext, function: Function) -> str:
    """One tile function."""
    f = Emitter(context, function)
    parameters = []
    for number, param in enumerate(function.params):
        parts: list[Value] = []
        for elem, lanes in f.part_types(param.value):
            value = Value(f"%p{number}" + (f".{len(parts)}" if lanes else ""), elem, lanes)
            parts.append(value)
            flags = ""
            if param.is_pointer:
                if _is_alone(function, number):
                    flags = " noalias"
                    f.addresses.note_alone(value)
                flags += f" align {param.alignment}" if param.alignment > 1 else ""
            parameters.append(f"{value.type}{flags} {value.text}")
        f.bind(param.value, parts)
        f.addresses.note(parts[0])
    for value in (f.program_id, f.thread_id, f.scratch):
        parameters.append(value.typed)
        f.addresses.note(value)
    f.run(function.body.body)
    results = [
        part for value in function.body.yields for part in f.tile_in(value, f.lanes(value)).parts
    ]
    kind = control.return_type(f)
    if results:
        packed = Value("poison", kind)
        for number, part in enumerate(results):
            packed = f.w.result(f"insertvalue {kind} {packed.text}, {part.typed}, {number}", kind)
        f.w.line(f"ret {kind} {packed.text}")
    else:
        f.w.line("ret void")
    context.declarations.update(f.w.declarations)
    symbol = context.symbols[function.name]
    inline = " noinline" if function.noinline else ""
    return f.w.text(f"define internal {kind} @{symbol}({', '.join(parameters)}){inline} #0")


def _is_alone(function: Function, number: int) -> bool:
    """Whether no other pointer parameter may reach the same memory."""
    group = function.params[number].noalias
    if group is None:
        return False
    others = (p for i, p in enumerate(function.params) if p.is_pointer and i != number)
    return all(other.noalias is not None and other.noalias != group for other in others)


def _load_arguments(context: ModuleContext, w: Writer, total: int) -> list[Value]:
    """Kernel parameters from the 8-byte slots, and the scratch base behind them."""
    slots = Value("%args", "ptr")
    values = []
    for number, param in enumerate(context.module.kernel.params):
        kind = param.type
        where = w.offset(slots, 8 * number)
        if kind.is_pointer:
            values.append(w.load(where, "ptr", 0, 8))
        elif kind.shape:
            raise InternalError(
                f"{context.module.entry} has a tile parameter {param.name}: a kernel takes "
                "pointers and scalars, only functions that are called take tiles"
            )
        else:
            stored = w.load(where, memory_elem(kind.dtype), 0, 8)
            values.append(from_memory(w, kind.dtype, stored))
    where = w.offset(slots, 8 * len(context.module.kernel.params))
    values.append(w.load(where, "ptr", 0, 8) if total else Value("null", "ptr"))
    return values


def _scratch_of_thread(w: Writer, base: Value, total: int) -> Value:
    if not total:
        return base
    size = Value(str(total), "i64")
    return w.offset(base, w.binary("mul", Value("%thread_id", "i64"), size))


def _entry(context: ModuleContext, total: int) -> str:
    w = Writer(context.target)
    *arguments, base = _load_arguments(context, w, total)
    scratch = _scratch_of_thread(w, base, total)
    given = [*arguments, Value("%program_id", "i64"), Value("%thread_id", "i64"), scratch]
    symbol = context.symbols[context.module.entry]
    w.line(f"call void @{symbol}({', '.join(v.typed for v in given)})")
    w.line("ret void")
    name = _quoted(context.module.entry)
    return w.text(f"define void @{name}(ptr %args, i64 %program_id, i64 %thread_id) #0")


def _range_entry(context: ModuleContext, total: int) -> str:
    w = Writer(context.target)
    *arguments, base = _load_arguments(context, w, total)
    scratch = _scratch_of_thread(w, base, total)
    low, high = Value("%lo", "i64"), Value("%hi", "i64")
    w.branch(w.compare("slt", low, high), "loop", "end")
    w.start_block("loop")
    program = w.phi(low, "entry")
    given = [*arguments, program.value, Value("%thread_id", "i64"), scratch]
    symbol = context.symbols[context.module.entry]
    w.line(f"call void @{symbol}({', '.join(v.typed for v in given)})")
    following = w.binary("add", program.value, Value("1", "i64"))
    w.close_phi(program, following, "loop")
    w.branch(w.compare("slt", following, high), "loop", "end")
    w.start_block("end")
    w.line("ret void")
    name = _quoted(f"{context.module.entry}_range")
    return w.text(f"define void @{name}(ptr %args, i64 %lo, i64 %hi, i64 %thread_id) #0")
