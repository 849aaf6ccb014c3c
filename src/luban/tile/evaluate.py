"""The meaning of a tile program: run it in numpy, program after program.

`run` is bit-exact with compiled code but for transcendental functions. With check=True it also
finds what compiled code would silently get wrong; the errors are listed in `luban.tile.memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luban.core.errors import CheckError
from luban.tile.arguments import bind
from luban.tile.block_ops import Dot, Fold, Print, Scan, Take
from luban.tile.block_steps import atomic_cas, dot, fold, print_values, scan, take
from luban.tile.flow import index_values
from luban.tile.function import Function, Module, Operation, Region, Value
from luban.tile.meaning import binary, compute
from luban.tile.memory import AssertionFailed, Buffer, IndexOverflow, Shadow
from luban.tile.memory_ops import (
    Assert,
    AtomicCas,
    AtomicRmw,
    Call,
    For,
    Gather,
    If,
    Load,
    Prefetch,
    Scatter,
    Scratch,
    Store,
    While,
)
from luban.tile.op import TileOp
from luban.tile.ops import Binary, ProgramId, ThreadId
from luban.tile.text import Names, function_names, operation_text

__all__ = ["Interpreter", "run"]

Array = NDArray[Any]
Item = Any  # np.ndarray for numbers, Buffer for addresses
Environment = dict[Value, Item]


def run(
    program: Function | Module,
    arguments: Sequence[Array | int | float],
    num_programs: int = 1,
    *,
    check: bool = False,
    num_threads: int = 1,
) -> None:
    """Run programs 0 .. num_programs - 1 over the arguments, in place.

    Pointers take C-contiguous arrays of the parameter's dtype, scalars take numbers. Program p runs
    as thread p % num_threads. Raises InputError for arguments that do not fit, and the errors of
    `luban.tile.memory`: out of bounds always, the others with check=True.

    >>> from luban.tile.builder import FunctionBuilder
    >>> b = FunctionBuilder("square")
    >>> x = b.pointer("x", "f32")
    >>> v = b.load(x, b.program_id())
    >>> b.store(x, b.program_id(), v * v)
    >>> data = np.array([1, 2, 3], np.float32)
    >>> run(b.finish(), [data], num_programs=3, check=True)
    >>> data.tolist()
    [1.0, 4.0, 9.0]
    """
    module = Module.of(program)
    bound = bind(module.kernel, arguments, check=check)
    interpreter = Interpreter(module, check=check)
    for program_id in range(num_programs):
        for item in bound:
            if isinstance(item, Buffer) and item.per_thread:
                item.forget()
        interpreter.run_program(bound, program_id, program_id % num_threads)


class Interpreter:
    """Runs programs one at a time; step through `run_operation` in a debugger to watch one."""

    def __init__(self, module: Module, *, check: bool) -> None:
        self.module = module
        self.check = check
        self.program_id = 0
        self.thread_id = 0
        self.environment: Environment = {}
        self.function = module.kernel
        self._index_values: dict[Function, frozenset[Value]] = {}
        self._names: dict[Function, Names] = {}

    def run_program(self, items: Sequence[Item], program_id: int, thread_id: int) -> None:
        """Run one program on bound arguments."""
        self.program_id = program_id
        self.thread_id = thread_id
        self.run_function(self.module.kernel, items)

    def run_function(self, function: Function, items: Sequence[Item]) -> list[Item]:
        """Run a function body; gives what it yields."""
        outer = self.function, self.environment
        self.function, self.environment = function, {}
        try:
            return self.run_region(function.body, items)
        finally:
            self.function, self.environment = outer

    def run_region(self, region: Region, items: Sequence[Item]) -> list[Item]:
        """Run the operations of a region on its parameters; gives what it yields."""
        environment = self.environment
        environment.update(zip(region.params, items, strict=True))
        for operation in region.body:
            results = self.run_operation(operation)
            environment.update(zip(operation.results, results, strict=True))
        return [environment[value] for value in region.yields]

    def run_operation(self, operation: Operation) -> Sequence[Item]:
        """Run one operation on the current environment; errors say which one it was."""
        operands = [self.environment[value] for value in operation.operands]
        step = _STEPS.get(type(operation.op))
        if operation.regions and step is not None:
            return step(self, operation, operands)
        try:
            if step is not None:
                return step(self, operation, operands)
            if self.check and self._is_index(operation):
                _check_overflow(operation, operands)
            return (compute(operation.op, operands, [v.type for v in operation.operands]),)
        except CheckError as error:
            if isinstance(operation.op, Call):
                raise  # the callee's operation has been named already
            raise self.locate(error, operation) from None

    def locate(self, error: CheckError, operation: Operation) -> CheckError:
        """The error with the program, the function and the operation in front."""
        text = operation_text(operation, self.names())
        where = f"{self.function.name}, program {self.program_id}: {text}"
        return type(error)(f"{where}\n  {error.message}", hint=error.hint, loc=operation.loc)

    def names(self) -> Names:
        """The printed names of the values of the current function."""
        found = self._names.get(self.function)
        if found is None:
            found = self._names[self.function] = function_names(self.function)
        return found

    def _is_index(self, operation: Operation) -> bool:
        if not isinstance(operation.op, Binary):
            return False
        known = self._index_values.get(self.function)
        if known is None:
            known = self._index_values[self.function] = index_values(self.function)
        return operation.result in known

    def owner(self, buffer: Buffer) -> int:
        """Whose access it is: a program's, or a thread's in per-thread memory."""
        return self.thread_id if buffer.per_thread else self.program_id


_EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
}


def _check_overflow(operation: Operation, operands: Sequence[Array]) -> None:
    """Refuse i64 arithmetic that wraps on its way to an address."""
    op = operation.op
    exact = _EXACT.get(op.kind) if isinstance(op, Binary) else None
    if exact is None:
        return
    results = np.asarray(exact(operands[0].astype(object), operands[1].astype(object)))
    for value in results.reshape(-1):
        _expect_i64(int(value))


def _expect_i64(value: int) -> None:
    if not -(1 << 63) <= value < 1 << 63:
        raise IndexOverflow(
            f"index arithmetic gives {value}, beyond i64",
            hint="check the sizes, or order the arithmetic so that it stays small",
        )


def _block_index(
    op: Load | Store, index: Array, strides: Sequence[Array], check: bool
) -> tuple[Array, Array]:
    """Element index of every element, and of the first element of every row."""
    where = np.asarray(index).reshape((1,) * len(op.shape))
    low = high = int(index)
    dynamic = iter(strides)
    last_offset = 0
    for axis, (extent, static) in enumerate(zip(op.shape, op.strides, strict=True)):
        offsets = op.row_offsets[axis] if op.row_offsets is not None else None
        if offsets is not None:
            steps = np.array(offsets, dtype=np.int64)
        else:
            stride = int(next(dynamic)) if static is None else static
            steps = np.arange(extent) * np.int64(stride)
            low += min(stride * (extent - 1), 0)
            high += max(stride * (extent - 1), 0)
        if axis == len(op.shape) - 1:
            last_offset = int(steps[0])
            rows = where + last_offset
        shape = [1] * len(op.shape)
        shape[axis] = extent
        where = where + steps.reshape(shape)
    if check:
        _expect_i64(low)
        _expect_i64(high)
    return where, np.broadcast_to(rows, (*op.shape[:-1], 1)) if op.shape else where


def _load(machine: Interpreter, operation: Operation, operands: list[Item]) -> Sequence[Item]:
    op = operation.op
    assert isinstance(op, Load)
    buffer: Buffer = operands[0]
    dynamic = op.num_dynamic_strides
    where, rows = _block_index(op, operands[1], operands[2 : 2 + dynamic], machine.check)
    tail = operands[2 + dynamic :]
    _check_rows(machine, op, buffer, rows, tail)
    return (_masked_read(machine, buffer, where, tail),)


def _check_rows(
    machine: Interpreter, op: Load | Store, buffer: Buffer, rows: Array, tail: Sequence[Array]
) -> None:
    if machine.check and op.align is not None:
        if tail and op.shape:
            rows = rows[tail[0].any(axis=-1, keepdims=True)]
        if rows.size:
            buffer.check_alignment(rows, op.align)


def _masked_read(
    machine: Interpreter, buffer: Buffer, where: Array, tail: Sequence[Array]
) -> Array:
    owner = machine.owner(buffer)
    if not tail:
        return np.asarray(buffer.read(where, owner))
    mask = tail[0]
    result = np.array(tail[1]) if len(tail) > 1 else np.zeros(where.shape, dtype=buffer.data.dtype)
    result[mask] = buffer.read(where[mask], owner)
    return result


def _masked_write(
    machine: Interpreter, buffer: Buffer, where: Array, value: Array, tail: Sequence[Array]
) -> None:
    if tail:
        where, value = where[tail[0]], value[tail[0]]
    buffer.write(where.reshape(-1), value.reshape(-1), machine.owner(buffer))


def _store(machine: Interpreter, operation: Operation, operands: list[Item]) -> Sequence[Item]:
    op = operation.op
    assert isinstance(op, Store)
    buffer, index, value = operands[:3]
    dynamic = op.num_dynamic_strides
    where, rows = _block_index(op, index, operands[3 : 3 + dynamic], machine.check)
    tail = operands[3 + dynamic :]
    _check_rows(machine, op, buffer, rows, tail)
    _masked_write(machine, buffer, where, value, tail)
    return ()


def _gather(machine: Interpreter, _operation: Operation, operands: list[Item]) -> Sequence[Item]:
    return (_masked_read(machine, operands[0], operands[1], operands[2:]),)


def _scatter(machine: Interpreter, _operation: Operation, operands: list[Item]) -> Sequence[Item]:
    _masked_write(machine, operands[0], operands[1], operands[2], operands[3:])
    return ()


def _atomic(machine: Interpreter, operation: Operation, operands: list[Item]) -> Sequence[Item]:
    op = operation.op
    assert isinstance(op, AtomicRmw)
    buffer, where, value = operands[:3]
    elem = operation.operands[2].type.dtype
    mask = operands[3] if len(operands) > 3 else np.ones(where.shape, dtype=np.bool_)
    old = np.zeros(where.shape, dtype=value.dtype)
    buffer.begin_update(where[mask], machine.owner(buffer))
    for place in np.ndindex(where.shape):
        if mask[place]:
            at = where[place]
            old[place] = buffer.data[at]
            buffer.data[at] = (
                value[place]
                if op.kind == "exchange"
                else binary(op.kind, np.asarray(buffer.data[at]), np.asarray(value[place]), elem)
            )
    return (old,)


def _scratch(machine: Interpreter, operation: Operation, _operands: list[Item]) -> Sequence[Item]:
    op = operation.op
    assert isinstance(op, Scratch)
    data = np.zeros(op.count, dtype=op.dtype.numpy)
    shadow = Shadow(op.count, initialised=False) if machine.check else None
    name = machine.names()(operation.result)[1:]
    return (Buffer(name, data, op.count, op.align, shadow, per_thread=True),)


def _for(machine: Interpreter, operation: Operation, operands: list[Item]) -> Sequence[Item]:
    lower, upper, step = (int(item) for item in operands[:3])
    if step < 1:
        error = CheckError(f"step is {step}, expected at least 1", hint="count upwards")
        raise machine.locate(error, operation)
    carried = operands[3:]
    (body,) = operation.regions
    for index in range(lower, upper, step):
        carried = machine.run_region(body, [np.array(index, dtype=np.int64), *carried])
    return carried


def _while(machine: Interpreter, operation: Operation, operands: list[Item]) -> Sequence[Item]:
    condition, body = operation.regions
    carried = operands
    while bool(machine.run_region(condition, carried)[0]):
        carried = machine.run_region(body, carried)
    return carried


def _if(machine: Interpreter, operation: Operation, operands: list[Item]) -> Sequence[Item]:
    then, otherwise = operation.regions
    return machine.run_region(then if bool(operands[0]) else otherwise, ())


def _call(machine: Interpreter, operation: Operation, operands: list[Item]) -> Sequence[Item]:
    op = operation.op
    assert isinstance(op, Call)
    return machine.run_function(machine.module.function(op.callee), operands)


def _assert(machine: Interpreter, operation: Operation, operands: list[Item]) -> Sequence[Item]:
    op = operation.op
    assert isinstance(op, Assert)
    if machine.check and not bool(operands[0]):
        raise AssertionFailed(f"assertion failed: {op.message}")
    return ()


Step = Callable[[Interpreter, Operation, list[Item]], Sequence[Item]]
_STEPS: dict[type[TileOp], Step] = {
    ProgramId: lambda machine, _o, _x: (np.array(machine.program_id, dtype=np.int64),),
    ThreadId: lambda machine, _o, _x: (np.array(machine.thread_id, dtype=np.int64),),
    Load: _load,
    Store: _store,
    Gather: _gather,
    Scatter: _scatter,
    AtomicRmw: _atomic,
    Prefetch: lambda _m, _o, _x: (),
    Scratch: _scratch,
    For: _for,
    While: _while,
    If: _if,
    Call: _call,
    Assert: _assert,
    Fold: fold,
    Scan: scan,
    Dot: dot,
    Take: take,
    AtomicCas: atomic_cas,
    Print: print_values,
}
