"""For, While, If, Call: blocks and phi nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from luban.codegen.emitter import Emitter
from luban.codegen.registers import RegisterTile
from luban.codegen.table import emits
from luban.codegen.writer import Value, type_text
from luban.core.errors import InternalError
from luban.tile.function import Operation, Region
from luban.tile.memory_ops import Assert, Call, For, If, While

__all__: list[str] = []

Parts = list[Value]  # the registers of all carried values, one after the other


@dataclass(frozen=True, slots=True)
class _Counted:
    """A `For` being emitted."""

    emitter: Emitter
    body: Region
    step: Value

    def expand(self, index: Value, carried: Parts) -> Parts:
        """One copy of the body."""
        f = self.emitter
        f.bind(self.body.params[0], [index])
        _bind_all(f, self.body, carried, first=1)
        f.run(self.body.body)
        return _flat(f, self.body, first=1)

    def expand_many(self, index: Value, carried: Parts, count: int) -> Parts:
        """Copies of the body for index, index + step, ..."""
        for _ in range(count):
            carried = self.expand(index, carried)
            index = self.emitter.addresses.add(index, self.step)
        return carried

    def loop(
        self, lower: Value, upper: Value, carried: Parts, times: int, runs: bool
    ) -> tuple[Value, Parts]:
        """A loop of `times` bodies an iteration; `runs` promises a first iteration. (next index,
        carried)
        """
        f, w = self.emitter, self.emitter.w
        stride = f.addresses.multiply(self.step, Value(str(times), "i64"))
        header, end = w.label("loop"), w.label("end")
        before = w.block
        if not runs:
            enter = w.compare("slt", lower, upper)
            ready = w.label("ready")
            w.branch(enter, ready, end)
            f.start_block(ready)
        source = w.block
        slot = w.slot()
        w.jump(header)
        with f.addresses.loop(slot):
            f.start_block(header)
            index = w.phi(lower, source)
            phis = [w.phi(part, source) for part in carried]
            f.addresses.note(index.value)
            finals = self.expand_many(index.value, [phi.value for phi in phis], times)
            following = w.binary("add", index.value, stride)
            again = w.compare("slt", following, upper)
            latch = w.block
            w.branch(again, header, end)
            w.close_phi(index, following, latch)
            for phi, final in zip(phis, finals, strict=True):
                w.close_phi(phi, final, latch)
        f.start_block(end)
        if runs:
            return following, finals
        return (
            w.merge(lower, before, following, latch),
            [w.merge(a, before, b, latch) for a, b in zip(carried, finals, strict=True)],
        )


@emits(For)
def emit_for(op: For, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """Static trip counts up to `unroll` become straight code; others a loop and what remains."""
    (body,) = operation.regions
    lower, upper, step = (f.addresses.plain(f.scalar(v)) for v in operation.operands[:3])
    carried = [
        part
        for param, value in zip(body.params[1:], operation.operands[3:], strict=True)
        for part in f.canonical(param, value)
    ]
    counted = _Counted(f, body, step)
    if lower.is_constant and upper.is_constant and step.is_constant:
        carried = _static_for(
            counted, range(int(lower.text), int(upper.text), int(step.text)), op, carried
        )
    else:
        if op.unroll > 1:
            ahead = f.addresses.multiply(step, Value(str(op.unroll - 1), "i64"))
            last = f.addresses.plain(f.addresses.subtract(upper, ahead))
            lower, carried = counted.loop(lower, last, carried, op.unroll, runs=False)
        _, carried = counted.loop(lower, upper, carried, 1, runs=False)
    return _results(f, operation, carried)


def _static_for(counted: _Counted, indices: range, op: For, carried: Parts) -> Parts:
    trips, times = len(indices), op.unroll
    if trips <= max(times, 1):
        return counted.expand_many(_i64(indices.start), carried, trips)
    whole = trips // times * times
    stop = indices.start + whole * indices.step
    _, carried = counted.loop(_i64(indices.start), _i64(stop), carried, times, runs=True)
    return counted.expand_many(_i64(stop), carried, trips - whole)


@emits(While)
def emit_while(_op: While, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """The condition region is the loop's header."""
    condition, body = operation.regions
    w = f.w
    carried = [
        part
        for param, value in zip(condition.params, operation.operands, strict=True)
        for part in f.canonical(param, value)
    ]
    header, again, end = w.label("loop"), w.label("body"), w.label("end")
    source = w.block
    slot = w.slot()
    w.jump(header)
    with f.addresses.loop(slot):
        f.start_block(header)
        phis = [w.phi(part, source) for part in carried]
        values = [phi.value for phi in phis]
        _bind_all(f, condition, values)
        f.run(condition.body)
        w.branch(f.scalar(condition.yields[0]), again, end)
        f.start_block(again)
        _bind_all(f, body, values)
        f.run(body.body)
        finals = _flat(f, body)
        for phi, final in zip(phis, finals, strict=True):
            w.close_phi(phi, final, w.block)
        w.jump(header)
    f.start_block(end)
    return _results(f, operation, values)


@emits(If)
def emit_if(_op: If, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """Two blocks that meet; one of them alone when the condition is known."""
    w = f.w
    condition = f.scalar(operation.operands[0])
    if condition.is_constant:
        chosen = operation.regions[0 if condition.text == "true" else 1]
        f.run(chosen.body)
        return [f.tile(value) for value in chosen.yields]
    labels = [w.label("then"), w.label("else")]
    end = w.label("end")
    w.branch(condition, *labels)
    ends: list[str] = []
    outcomes: list[Parts] = []
    for label, region in zip(labels, operation.regions, strict=True):
        f.start_block(label)
        f.run(region.body)
        outcomes.append(
            [
                part
                for result, value in zip(operation.results, region.yields, strict=True)
                for part in f.canonical(result, value)
            ]
        )
        ends.append(w.block)
        w.jump(end)
    f.start_block(end)
    merged = [
        a if a == b else w.merge(a, ends[0], b, ends[1]) for a, b in zip(*outcomes, strict=True)
    ]
    return _results(f, operation, merged)


@emits(Call)
def emit_call(op: Call, f: Emitter, operation: Operation) -> Sequence[RegisterTile]:
    """A direct call; arguments and results travel in registers, part by part."""
    callee = Emitter(f.context, f.context.module.function(op.callee))
    arguments = [
        part.typed
        for param, value in zip(callee.function.body.params, operation.operands, strict=True)
        for part in f.tile_in(value, callee.lanes(param)).parts
    ]
    arguments += [v.typed for v in (f.program_id, f.thread_id, f.scratch)]
    kind = return_type(callee)
    call = f"call {kind} @{f.context.symbols[op.callee]}({', '.join(arguments)})"
    if kind == "void":
        f.w.line(call)
        return []
    f.w.write_deferred()
    packed = f.w.result(call, kind)
    parts = []
    for number, (elem, lanes) in enumerate(_return_parts(callee)):
        parts.append(f.w.result(f"extractvalue {kind} {packed.text}, {number}", elem, lanes))
    results = []
    for result, inner in zip(operation.results, callee.function.body.yields, strict=True):
        count = len(callee.part_types(inner))
        callee.bind(inner, parts[:count])
        del parts[:count]
        results.append(callee.tile_in(inner, callee.lanes(inner)))
        if result.type != inner.type:
            raise InternalError(f"call of {op.callee} gives {inner.type}, not {result.type}")
    return results


def _return_parts(callee: Emitter) -> list[tuple[str, int]]:
    return [part for value in callee.function.body.yields for part in callee.part_types(value)]


def return_type(callee: Emitter) -> str:
    """LLVM's return type of a tile function: nothing, or a struct of registers."""
    parts = _return_parts(callee)
    return "{ " + ", ".join(type_text(*part) for part in parts) + " }" if parts else "void"


@emits(Assert)
def emit_assert(_op: Assert, _f: Emitter, _operation: Operation) -> Sequence[RegisterTile]:
    """Checked mode is the evaluator's; compiled code trusts the program."""
    return []


def _i64(number: int) -> Value:
    return Value(str(number), "i64")


def _bind_all(f: Emitter, region: Region, parts: Parts, first: int = 0) -> None:
    position = 0
    for param in region.params[first:]:
        count = len(f.part_types(param))
        f.bind(param, parts[position : position + count])
        position += count


def _flat(f: Emitter, region: Region, first: int = 0) -> Parts:
    """Registers of what a loop body yields, in the form of its parameters."""
    return [
        part
        for param, value in zip(region.params[first:], region.yields, strict=True)
        for part in f.canonical(param, value)
    ]


def _results(f: Emitter, operation: Operation, parts: Parts) -> list[RegisterTile]:
    results = []
    position = 0
    for value in operation.results:
        count = len(f.part_types(value))
        f.bind(value, parts[position : position + count])
        position += count
        results.append(f.tile(value))
    return results
