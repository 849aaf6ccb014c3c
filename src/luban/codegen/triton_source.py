"""Block programs as source text of the Triton language, for compilers of accelerators.

The text is a module with one kernel, and a helper for each region of a fold or scan. It runs under
Triton, and through our own front end, which is how it is tested where there is no accelerator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isinf, isnan

from luban.core.dtypes import DType
from luban.core.errors import UnsupportedError
from luban.tile.block_ops import Dot, Fold, Print, Scan, Take
from luban.tile.function import Function, Module, Operation, Region, Value
from luban.tile.memory_ops import (
    Assert,
    AtomicCas,
    AtomicRmw,
    For,
    Gather,
    If,
    Scatter,
    While,
)
from luban.tile.op import TileOp
from luban.tile.ops import (
    Arange,
    Binary,
    Bitcast,
    Broadcast,
    Cast,
    Compare,
    Concat,
    Constant,
    ExtractSlice,
    Fma,
    ProgramId,
    Reshape,
    Select,
    Transpose,
    Unary,
)

__all__ = ["triton_source"]

_HEADER = """import triton
import triton.language as tl
from triton.language.extra import libdevice
"""
_GRID = {"grid_x": 0, "grid_y": 1, "grid_z": 2}
_TYPES = {
    "bool": "int1", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
    "f8e4m3fn": "float8e4nv", "f8e5m2": "float8e5", "f8e4m3fnuz": "float8e4b8",
    "f8e5m2fnuz": "float8e5b16",
}  # fmt: skip
_UNARY = {
    "neg": "-{0}", "abs": "tl.abs({0})", "not": "~{0}", "sqrt": "tl.sqrt({0})",
    "rsqrt": "tl.rsqrt({0})", "exp": "tl.exp({0})", "exp2": "tl.exp2({0})", "log": "tl.log({0})",
    "log2": "tl.log2({0})", "sin": "tl.sin({0})", "cos": "tl.cos({0})", "erf": "tl.erf({0})",
    "floor": "tl.floor({0})", "ceil": "tl.ceil({0})", "logistic": "tl.sigmoid({0})",
    "is_nan": "{0} != {0}", "is_inf": "tl.abs({0}) == float('inf')",
    "sign": "({0} > 0).to({1}) - ({0} < 0).to({1})",
    "round": "libdevice.rint({0})", "trunc": "libdevice.trunc({0})",
    "popcount": "libdevice.popc({0})",
}  # fmt: skip
_BINARY = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "rem": "{0} % {1}",
    "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}", "shl": "{0} << {1}",
    "minnum": "tl.minimum({0}, {1})", "maxnum": "tl.maximum({0}, {1})",
    "pow": "libdevice.pow({0}, {1})", "atan2": "libdevice.atan2({0}, {1})",
    "mulhi": "tl.umulhi({0}, {1})",
}  # fmt: skip
_COMPARES = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_PLAIN_FOLDS = {"sum": "tl.sum", "maxnum": "tl.max", "minnum": "tl.min", "xor": "tl.xor_sum"}
_STEPS = {"sum": "add", "prod": "mul"}


def triton_source(program: Module | Function) -> str:
    """The source of a block program.

    Parameters named grid_x, grid_y and grid_z become the grid's extents. Raises UnsupportedError,
    with every case, for what the language has no words for.
    """
    kernel = Module.of(program).kernel
    writer = _Writer(kernel)
    writer.write()
    if writer.missing:
        raise UnsupportedError(
            f"{kernel.name} has no Triton source", items=sorted(set(writer.missing))
        )
    return "\n\n\n".join([_HEADER.rstrip(), *writer.helpers, "\n".join(writer.lines)]) + "\n"


def _type(dtype: DType) -> str:
    name = dtype.name
    if name in _TYPES:
        return f"tl.{_TYPES[name]}"
    return (
        "tl." + name.replace("i", "int", 1)
        if name[0] == "i"
        else "tl." + name.replace("u", "uint", 1)
    )


def _shape(shape: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


class _Writer:
    """Writes one kernel, line by line."""

    def __init__(self, kernel: Function) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self.helpers: list[str] = []
        self.missing: list[str] = []
        self.names: dict[Value, str] = {}
        self.depth = 1

    def write(self) -> None:
        """The whole function."""
        shown = []
        for param in self.kernel.params:
            axis = _GRID.get(param.name)
            if axis is None:
                self.names[param.value] = param.name
                shown.append(param.name)
        self.lines += ["@triton.jit", f"def {self.kernel.name}({', '.join(shown)}):"]
        for param in self.kernel.params:
            if param.name in _GRID:
                self.define(param.value, f"tl.num_programs({_GRID[param.name]}).to(tl.int64)")
        self.region(self.kernel.body)
        if len(self.lines) == 2:
            self.line("pass")

    def line(self, text: str) -> None:
        """One line, indented."""
        self.lines.append("    " * self.depth + text)

    def name(self, value: Value) -> str:
        """The name of a value."""
        return self.names[value]

    def define(self, value: Value, text: str) -> None:
        """A name for a value, set to an expression."""
        self.names[value] = f"v{len(self.names)}"
        self.line(f"{self.names[value]} = {text}")

    def region(self, region: Region) -> None:
        """The operations of a region."""
        for operation in region.body:
            self.operation(operation)

    def operation(self, operation: Operation) -> None:
        """One operation: a statement, or an expression for its result."""
        statement = _STATEMENTS.get(type(operation.op))
        if statement is not None:
            statement(self, operation)
            return
        expression = _EXPRESSIONS.get(type(operation.op))
        names = [self.name(value) for value in operation.operands]
        text = expression(self, operation, names) if expression is not None else None
        if text is None:
            self.missing.append(f"{operation.op.mnemonic} to {operation.result.type}")
            text = "None"
        self.define(operation.result, text)

    # Statements

    def store(self, operation: Operation) -> None:
        """tl.store."""
        pointer, offsets, value, *mask = map(self.name, operation.operands)
        end = f", mask={mask[0]}" if mask else ""
        self.line(f"tl.store({pointer} + {offsets}, {value}{end})")

    def check(self, operation: Operation) -> None:
        """tl.device_assert."""
        op = operation.op
        assert isinstance(op, Assert)
        self.line(f"tl.device_assert({self.name(operation.operands[0])}, {op.message!r})")

    def show(self, operation: Operation) -> None:
        """tl.device_print."""
        op = operation.op
        assert isinstance(op, Print)
        values = operation.operands[1:] if op.masked else operation.operands
        parts = [repr(op.prefix), *map(self.name, values), f"hex={op.hexadecimal}"]
        self.line(f"tl.device_print({', '.join(parts)})")

    def assign(self, targets: Sequence[Value], values: Sequence[Value]) -> None:
        """Set names, all at once."""
        if targets:
            left = ", ".join(self.name(target) for target in targets)
            self.line(f"{left} = {', '.join(self.name(value) for value in values)}")

    def carry(self, params: Sequence[Value], starts: Sequence[Value]) -> None:
        """Names for carried values, set to where they start."""
        for param, start in zip(params, starts, strict=True):
            self.define(param, self.name(start))

    def alias(self, results: Sequence[Value], values: Sequence[Value]) -> None:
        """Results that are other values under their names."""
        for result, value in zip(results, values, strict=True):
            self.names[result] = self.name(value)

    def loop(self, operation: Operation) -> None:
        """A for statement."""
        (region,) = operation.regions
        lower, upper, step = (self.name(v) for v in operation.operands[:3])
        index, *carried = region.params
        self.carry(carried, operation.operands[3:])
        self.names[index] = f"i{len(self.names)}"
        self.line(f"for {self.names[index]} in range({lower}, {upper}, {step}):")
        self.depth += 1
        before = len(self.lines)
        self.region(region)
        self.assign(carried, region.yields)
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1
        self.alias(operation.results, carried)

    def while_loop(self, operation: Operation) -> None:
        """A while statement; its condition is computed before it and at its end."""
        condition, body = operation.regions
        self.carry(body.params, operation.operands)
        self.alias(condition.params, body.params)
        self.region(condition)
        test = condition.yields[0]
        flag = f"go{len(self.names)}"
        self.line(f"{flag} = {self.name(test)}")
        self.line(f"while {flag}:")
        self.depth += 1
        self.region(body)
        self.assign(body.params, body.yields)
        self.region(condition)
        self.line(f"{flag} = {self.name(test)}")
        self.depth -= 1
        self.alias(operation.results, body.params)

    def branch(self, operation: Operation) -> None:
        """An if statement."""
        for result in operation.results:
            self.names[result] = f"v{len(self.names)}"
        condition = self.name(operation.operands[0])
        for head, region in zip((f"if {condition}:", "else:"), operation.regions, strict=True):
            if head == "else:" and not region.body and not region.yields:
                continue
            self.line(head)
            self.depth += 1
            before = len(self.lines)
            self.region(region)
            self.assign(operation.results, region.yields)
            if len(self.lines) == before:
                self.line("pass")
            self.depth -= 1

    def fold(self, operation: Operation) -> None:
        """A reduction or scan."""
        op = operation.op
        assert isinstance(op, (Fold, Scan))
        names = [self.name(value) for value in operation.operands]
        elem = operation.operands[0].type.dtype
        wide = elem.bits >= 32
        if isinstance(op, Fold) and op.kind in _PLAIN_FOLDS and wide:
            self.define(operation.result, f"{_PLAIN_FOLDS[op.kind]}({names[0]}, {op.axis})")
            return
        helper = self.helper(operation)
        given = names[0] if len(names) == 1 else f"({', '.join(names)})"
        if isinstance(op, Fold):
            call = f"tl.reduce({given}, {op.axis}, {helper})"
        else:
            call = f"tl.associative_scan({given}, {op.axis}, {helper}, reverse={op.reverse})"
        if len(names) == 1:
            self.define(operation.result, call)
            return
        for result in operation.results:
            self.names[result] = f"v{len(self.names)}"
        self.line(f"{', '.join(map(self.name, operation.results))} = {call}")

    def helper(self, operation: Operation) -> str:
        """A function for a region, or for the step of a kind; its name."""
        op = operation.op
        assert isinstance(op, (Fold, Scan))
        name = f"{self.kernel.name}_combine{len(self.helpers)}"
        inner = _Writer(self.kernel)
        inner.names = dict(self.names)
        if operation.regions:
            (region,) = operation.regions
            for param in region.params:
                inner.names[param] = f"v{len(inner.names)}"
            parameters = [inner.names[param] for param in region.params]
            inner.region(region)
            results = ", ".join(inner.name(value) for value in region.yields)
        else:
            elem = operation.operands[0].type.dtype
            parameters = ["x", "y"]
            kind = _STEPS.get(op.kind, op.kind)
            results = _binary_text(kind, "x", "y", elem) or "None"
        self.missing += inner.missing
        head = ["@triton.jit", f"def {name}({', '.join(parameters)}):"]
        self.helpers.append("\n".join([*head, *inner.lines, f"    return {results}"]))
        return name


# Expressions


def _constant(_w: _Writer, operation: Operation, _names: Sequence[str]) -> str:
    op = operation.op
    assert isinstance(op, Constant)
    value = op.value
    text = repr(value)
    if isinstance(value, float) and (isnan(value) or isinf(value)):
        text = f"float('{value}')"
    return f"tl.full([], {text}, {_type(op.dtype)})"


def _arange(_w: _Writer, operation: Operation, _names: Sequence[str]) -> str | None:
    op = operation.op
    assert isinstance(op, Arange)
    if op.n & (op.n - 1):
        return None
    return f"tl.arange(0, {op.n}).to({_type(op.dtype)})"


def _unary(_w: _Writer, operation: Operation, names: Sequence[str]) -> str:
    op = operation.op
    assert isinstance(op, Unary)
    form = _UNARY.get(op.kind, f"libdevice.{op.kind}({{0}})")
    return form.format(names[0], _type(operation.operands[0].type.dtype))


def _binary_text(kind: str, x: str, y: str, elem: DType) -> str | None:
    if kind in ("min", "max"):
        word = "minimum" if kind == "min" else "maximum"
        nan = ", propagate_nan=tl.PropagateNan.ALL" if elem.is_float else ""
        return f"tl.{word}({x}, {y}{nan})"
    if kind == "div":
        if not elem.is_float:
            return f"{x} // {y}"
        return f"({x} / {y}).to({_type(elem)})" if elem.bits < 32 else f"{x} / {y}"
    if kind in ("shr_logical", "shr_arithmetic"):
        signed = elem.kind == "int"
        if signed == (kind == "shr_arithmetic"):
            return f"{x} >> {y}"
        other = f"tl.{'u' if signed else ''}int{elem.bits}"
        return f"({x}.to({other}, bitcast=True) >> {y}.to({other})).to({_type(elem)}, bitcast=True)"
    form = _BINARY.get(kind)
    text = form.format(x, y) if form is not None else None
    if text is not None and kind == "rem" and elem.is_float and elem.bits < 32:
        return f"({text}).to({_type(elem)})"
    return text


def _binary(_w: _Writer, operation: Operation, names: Sequence[str]) -> str | None:
    op = operation.op
    assert isinstance(op, Binary)
    return _binary_text(op.kind, names[0], names[1], operation.operands[0].type.dtype)


def _compare(_w: _Writer, operation: Operation, names: Sequence[str]) -> str:
    op = operation.op
    assert isinstance(op, Compare)
    return f"{names[0]} {_COMPARES[op.predicate]} {names[1]}"


def _cast(_w: _Writer, operation: Operation, names: Sequence[str]) -> str:
    op = operation.op
    assert isinstance(op, (Cast, Bitcast))
    same = ", bitcast=True" if isinstance(op, Bitcast) else ""
    return f"{names[0]}.to({_type(op.dtype)}{same})"


def _reshape(_w: _Writer, operation: Operation, names: Sequence[str]) -> str:
    op = operation.op
    assert isinstance(op, (Broadcast, Reshape))
    if not op.shape and operation.operands[0].type.shape:
        return f"tl.sum(tl.reshape({names[0]}, [1]), 0)"
    word = "broadcast_to" if isinstance(op, Broadcast) else "reshape"
    given = names[0]
    missing = len(op.shape) - len(operation.operands[0].type.shape)
    if isinstance(op, Broadcast) and missing and operation.operands[0].type.shape:
        given = f"{given}[{'None, ' * missing}{', '.join(':' * (len(op.shape) - missing))}]"
    return f"tl.{word}({given}, {_shape(op.shape)})"


def _transpose(_w: _Writer, operation: Operation, names: Sequence[str]) -> str:
    op = operation.op
    assert isinstance(op, Transpose)
    return f"tl.permute({names[0]}, {_shape(op.permutation)})"


def _slice(_w: _Writer, operation: Operation, names: Sequence[str]) -> str | None:
    """One half of a last axis of extent 2; nothing else has a name in the language."""
    op = operation.op
    assert isinstance(op, ExtractSlice)
    given = operation.operands[0].type.shape
    halves = given[-1] == 2 and op.shape == (*given[:-1], 1) and not any(op.offsets[:-1])
    if not halves:
        return None
    return f"tl.reshape(tl.split({names[0]})[{op.offsets[-1]}], {_shape(op.shape)})"


def _concat(_w: _Writer, operation: Operation, names: Sequence[str]) -> str | None:
    op = operation.op
    assert isinstance(op, Concat)
    shape = operation.operands[0].type.shape
    if len(names) != 2:
        return None
    if op.axis == len(shape) - 1 and shape[-1] == 1:
        parts = [f"tl.reshape({name}, {_shape(shape[:-1])})" for name in names]
        return (
            f"tl.join({', '.join(parts)})" if len(shape) > 1 else f"tl.join({names[0]}, {names[1]})"
        )
    return f"tl.cat({names[0]}, {names[1]}, can_reorder=True)" if len(shape) == 1 else None


def _load(_w: _Writer, _operation: Operation, names: Sequence[str]) -> str:
    pointer, offsets, *rest = names
    ends = [f", {word}={name}" for word, name in zip(("mask", "other"), rest, strict=False)]
    return f"tl.load({pointer} + {offsets}{''.join(ends)})"


def _atomic(_w: _Writer, operation: Operation, names: Sequence[str]) -> str:
    op = operation.op
    assert isinstance(op, AtomicRmw)
    pointer, offsets, value, *mask = names
    word = "xchg" if op.kind == "exchange" else op.kind
    end = f", mask={mask[0]}" if mask else ""
    return f"tl.atomic_{word}({pointer} + {offsets}, {value}{end})"


def _program(_w: _Writer, _operation: Operation, _names: Sequence[str]) -> str:
    ids = [f"tl.program_id({axis}).to(tl.int64)" for axis in range(3)]
    counts = [f"tl.num_programs({axis})" for axis in range(2)]
    return f"{ids[0]} + {counts[0]} * ({ids[1]} + {counts[1]} * {ids[2]})"


Expression = Callable[[_Writer, Operation, Sequence[str]], str | None]
_EXPRESSIONS: dict[type[TileOp], Expression] = {
    Constant: _constant,
    Arange: _arange,
    Unary: _unary,
    Binary: _binary,
    Compare: _compare,
    Select: lambda _w, _o, n: f"tl.where({n[0]}, {n[1]}, {n[2]})",
    Fma: lambda _w, _o, n: f"tl.fma({n[0]}, {n[1]}, {n[2]})",
    Cast: _cast,
    Bitcast: _cast,
    Broadcast: _reshape,
    Reshape: _reshape,
    Transpose: _transpose,
    ExtractSlice: _slice,
    Concat: _concat,
    Take: lambda _w, o, n: f"tl.gather({n[0]}, {n[1]}, {o.op.axis})",  # type: ignore[attr-defined]
    Dot: lambda _w, _o, n: f"tl.dot({n[0]}, {n[1]}, {n[2]}, input_precision='ieee')",
    Gather: _load,
    AtomicRmw: _atomic,
    AtomicCas: lambda _w, _o, n: f"tl.atomic_cas({n[0]} + {n[1]}, {n[2]}, {n[3]})",
    ProgramId: _program,
}
_STATEMENTS: dict[type[TileOp], Callable[[_Writer, Operation], None]] = {
    Scatter: _Writer.store,
    Assert: _Writer.check,
    Print: _Writer.show,
    For: _Writer.loop,
    While: _Writer.while_loop,
    If: _Writer.branch,
    Fold: _Writer.fold,
    Scan: _Writer.fold,
}
