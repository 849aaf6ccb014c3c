"""The rules that every tile program keeps. `verify` raises CheckError with the operation and why.

Rules: names are identifiers and unique; every value has one definition and is used after it, inside
its region or deeper; result types are what `infer` says; regions have the parameters and yields
of their op; scratch stands at the top of a function; thread ids only reach indices into per-thread
pointers; align claims follow from declared alignments; "read" pointers are not written; calls fit
their callee and do not recurse; a kernel takes pointers and scalars and returns nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn, get_args

from luban.core.errors import CheckError, InternalError, LubanError
from luban.tile.arguments import extent_elements
from luban.tile.block_ops import Fold, Scan, combine_types
from luban.tile.flow import address_operands
from luban.tile.function import Access, Function, Module, Operation, Param, Region, Value
from luban.tile.memory_ops import (
    AtomicCas,
    AtomicRmw,
    Call,
    For,
    If,
    Load,
    Prefetch,
    Scatter,
    Scratch,
    Store,
    While,
)
from luban.tile.ops import Constant, ThreadId
from luban.tile.table import OPS
from luban.tile.text import Names, function_names, operation_text
from luban.tile.types import BOOL, I64, TileType

__all__ = ["MAX_NESTING", "verify"]

MAX_NESTING = 64  # regions in regions
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_WRITERS = (Store, Scatter, AtomicRmw, AtomicCas)
# What `infer` may raise on attributes of a wrong Python type.
_MALFORMED = (LubanError, InternalError, TypeError, ValueError, AttributeError, IndexError)


def verify(program: Function | Module) -> None:
    """Check every rule of the tile IR. Raises CheckError for the first that is broken.

    >>> from luban.tile.ops import Unary
    >>> x = Value(TileType(BOOL.elem), "x")
    >>> wrong = Operation(Unary("exp"), (x,), (Value(BOOL),))
    >>> verify(Function("f", (Param(x),), Region((x,), (wrong,))))
    Traceback (most recent call last):
    luban.core.errors.CheckError: f: %0 = exp %x : bool
      tile exp: operand is bool, expected floats
    hint: types below 8 bits and fp8 are storage only: cast first
    """
    module = Module.of(program)
    names = [function.name for function in module.functions]
    if len(set(names)) != len(names):
        raise CheckError(f"functions {', '.join(map(str, names))}, expected different names")
    kernel = module.kernel
    for function in module.functions:
        _FunctionCheck(module, function).run()
    for param in kernel.params:
        if param.type.shape:
            raise CheckError(
                f"{kernel.name}: the entry takes %{param.name}: {param.type}",
                hint="a kernel takes pointers and scalars; tiles go to called functions only",
            )
    if kernel.body.yields:
        raise CheckError(f"{kernel.name}: the entry returns values", hint="store them instead")
    _refuse_recursion(module)


def _refuse_recursion(module: Module) -> None:
    calls = {
        function.name: [o.op.callee for o in function.operations() if isinstance(o.op, Call)]
        for function in module.functions
    }
    done: set[str] = set()
    for start in calls:
        stack = [(start, iter(calls[start]))]
        active = [start]
        while stack:
            callee = next(stack[-1][1], None)
            if callee is None:
                done.add(stack.pop()[0])
                active.pop()
            elif callee in active:
                raise CheckError(
                    f"{' -> '.join([*active, callee])}: a function calls itself",
                    hint="use a loop",
                )
            elif callee not in done:
                stack.append((callee, iter(calls[callee])))
                active.append(callee)


class _FunctionCheck:
    """One walk over a function."""

    def __init__(self, module: Module, function: Function) -> None:
        self.module = module
        self.function = function
        self.defined: set[Value] = set()
        self.visible: set[Value] = set()
        self.from_thread: set[Value] = set()
        self.constants: dict[Value, object] = {}
        self.scratch_align: dict[Value, int] = {}
        self.params: dict[Value, Param] = {param.value: param for param in function.params}

    def run(self) -> None:
        """Check the parameters, then the body."""
        function = self.function
        if not _is_identifier(function.name):
            raise CheckError(f"function name {function.name!r}, expected an identifier")
        names = [param.name for param in function.params]
        if len(set(names)) != len(names):
            raise CheckError(
                f"{function.name}: parameters {', '.join(names)}, expected unique names"
            )
        integers = {
            param.name: 1
            for param in function.params
            if param.type.is_scalar and param.type.dtype.is_integer
        }
        for param in function.params:
            self.check_param(param, integers)
        if function.body.params != tuple(param.value for param in function.params):
            raise CheckError(f"{function.name}: the body's parameters are not the function's")
        self.check_region(function.body, depth=0)

    def check_param(self, param: Param, integers: dict[str, int]) -> None:
        """Refuse promises that make no sense."""
        where = f"{self.function.name}: %{param.name}"
        if not _is_identifier(param.name):
            raise CheckError(f"{where}: expected an identifier as name")
        if param.access not in get_args(Access):
            raise CheckError(f"{where}: access {param.access!r}, expected read, write, read_write")
        if param.alignment < 0 or param.alignment & (param.alignment - 1):
            raise CheckError(f"{where}: alignment {param.alignment}, expected a power of two or 0")
        if param.multiple_of < 1:
            raise CheckError(f"{where}: multiple_of {param.multiple_of}, expected at least 1")
        pointer_only = (param.alignment, param.noalias, param.extent, param.per_thread)
        if not param.is_pointer and pointer_only != (0, None, None, False):
            raise CheckError(
                f"{where}: {param.type} with alignment, noalias, extent or per_thread",
                hint="these belong to pointers",
            )
        if param.is_pointer and param.multiple_of != 1:
            raise CheckError(f"{where}: multiple_of on a pointer", hint="use alignment (bytes)")
        if param.extent is not None:
            try:
                extent_elements(param.extent, integers)
            except LubanError as error:
                raise CheckError(f"{where}: {error.message}", hint=error.hint) from None

    def fail(self, operation: Operation, reason: str, hint: str | None = None) -> NoReturn:
        """Raise CheckError with the operation's text."""
        try:
            text = operation_text(operation, self.printed_names())
        except _MALFORMED:
            text = repr(operation.op)
        raise CheckError(f"{self.function.name}: {text}\n  {reason}", hint=hint, loc=operation.loc)

    def printed_names(self) -> Names:
        """Names as printed, or fresh ones when the function cannot be printed."""
        try:
            return function_names(self.function)
        except (*_MALFORMED, RecursionError):
            return Names(self.function)

    def define(self, values: Sequence[Value], operation: Operation | None) -> None:
        """Make values visible; each only once."""
        for value in values:
            if value in self.defined:
                if operation is None:
                    raise CheckError(f"{self.function.name}: parameter {value!r} is defined twice")
                self.fail(operation, f"{value!r} is defined twice", "results must be new values")
            self.defined.add(value)
            self.visible.add(value)

    def check_region(self, region: Region, depth: int, owner: Operation | None = None) -> None:
        """Check a body; what it defines is not visible afterwards."""
        outside = set(self.visible)
        self.define(region.params, owner)
        for operation in region.body:
            self.check_operation(operation, depth)
        for value in region.yields:
            if value not in self.visible:
                reason = f"{value!r} is yielded but not defined here"
                if owner is None:
                    raise CheckError(f"{self.function.name}: {reason}")
                self.fail(owner, reason)
            if value in self.from_thread:
                raise CheckError(
                    f"{self.function.name}: {value!r} depends on thread_id and is yielded",
                    hint="results must not depend on the thread",
                )
        self.visible = outside

    def check_operation(self, operation: Operation, depth: int) -> None:
        """Check one operation, its regions too."""
        op = operation.op
        if type(op) not in OPS:
            self.fail(operation, f"{type(op).__name__} is no tile op")
        if depth >= MAX_NESTING:
            self.fail(operation, f"nested deeper than {MAX_NESTING} regions", "split the function")
        for operand in operation.operands:
            if operand not in self.visible:
                self.fail(operation, f"{operand!r} is used where it is not defined")
        self.check_types(operation)
        self.check_special(operation, depth)
        wanted = _expected_regions(operation)
        if len(operation.regions) != len(wanted):
            self.fail(operation, f"has {len(operation.regions)} regions, expected {len(wanted)}")
        for region, (params, yields) in zip(operation.regions, wanted, strict=True):
            self.check_region_types(operation, region, params, yields)
            self.check_region(region, depth + 1, operation)
        self.define(operation.results, operation)

    def check_types(self, operation: Operation) -> None:
        """Refuse results that are not what `infer` says."""
        op = operation.op
        try:
            types = op.infer(*[value.type for value in operation.operands])
        except LubanError as error:
            self.fail(operation, error.message, error.hint)
        except _MALFORMED as error:
            self.fail(operation, f"malformed attributes: {error}")
        given = tuple(value.type for value in operation.results)
        if given != types:
            self.fail(operation, f"results are {_types(given)}, expected {_types(types)}")

    def check_region_types(
        self,
        operation: Operation,
        region: Region,
        params: tuple[TileType, ...],
        yields: tuple[TileType, ...],
    ) -> None:
        """Refuse a region whose parameters or yields do not fit its op."""
        given = tuple(value.type for value in region.params)
        if given != params:
            self.fail(
                operation, f"region parameters are {_types(given)}, expected {_types(params)}"
            )
        given = tuple(value.type for value in region.yields)
        if given != yields:
            self.fail(operation, f"a region yields {_types(given)}, expected {_types(yields)}")

    def check_special(self, operation: Operation, depth: int) -> None:
        """The rules of single ops."""
        op = operation.op
        match op:
            case Constant():
                self.constants[operation.result] = op.value
            case Scratch():
                if depth != 0:
                    self.fail(operation, "scratch inside a region", "allocate at the top")
                self.scratch_align[operation.result] = op.align
            case For():
                step = self.constants.get(operation.operands[2])
                if isinstance(step, int) and step < 1:
                    self.fail(operation, f"step is {step}, expected at least 1")
            case Load() | Store():
                self.check_align(operation, op)
            case Call():
                self.check_call(operation, op)
        self.check_thread_use(operation)
        if isinstance(op, _WRITERS) or (isinstance(op, Prefetch) and op.write):
            self.check_written(operation, operation.operands[0])

    def check_align(self, operation: Operation, op: Load | Store) -> None:
        """Refuse an align claim beyond what the pointer promises."""
        pointer = operation.operands[0]
        param = self.params.get(pointer)
        declared = self.scratch_align.get(pointer, param.alignment if param else 0)
        known = max(declared, pointer.type.pointee.size_bytes)
        if op.align is not None and op.align > known:
            self.fail(
                operation,
                f"align is {op.align}, but the pointer is only known to be a multiple of {known}",
                "declare the alignment of the parameter",
            )

    def check_written(self, operation: Operation, pointer: Value) -> None:
        """Refuse a write through a "read" parameter."""
        param = self.params.get(pointer)
        if param is not None and param.access == "read":
            self.fail(operation, f"writes %{param.name}, declared read", "declare read_write")

    def check_thread_use(self, operation: Operation) -> None:
        """Thread ids: only scalar arithmetic towards an index into per-thread memory."""
        op = operation.op
        if isinstance(op, ThreadId):
            self.from_thread.add(operation.result)
            return
        tainted = [value for value in operation.operands if value in self.from_thread]
        if not tainted:
            return
        if op.pure and not operation.results[0].type.shape:
            self.from_thread.add(operation.result)
            return
        param = self.params.get(operation.operands[0])
        legal = (
            set(address_operands(operation)) if param is not None and param.per_thread else set()
        )
        if not set(tainted) <= legal or isinstance(op, (For, Call)):
            self.fail(
                operation,
                "depends on thread_id",
                "thread_id may only be part of an index into a per_thread pointer",
            )

    def check_call(self, operation: Operation, op: Call) -> None:
        """Refuse arguments and results that do not fit the callee."""
        callee = next((f for f in self.module.functions if f.name == op.callee), None)
        if callee is None:
            self.fail(operation, f"no function {op.callee!r} in the module")
        wanted = tuple(param.type for param in callee.params)
        given = tuple(value.type for value in operation.operands)
        if given != wanted:
            self.fail(operation, f"arguments are {_types(given)}, expected {_types(wanted)}")
        if op.types != callee.result_types:
            self.fail(
                operation,
                f"results are {_types(op.types)}, expected {_types(callee.result_types)}",
            )
        for value, param in zip(operation.operands, callee.params, strict=True):
            if param.is_pointer and param.access != "read":
                self.check_written(operation, value)
            own = self.params.get(value)
            declared = self.scratch_align.get(value, own.alignment if own else 0)
            if param.is_pointer and param.alignment > max(declared, value.type.pointee.size_bytes):
                self.fail(
                    operation,
                    f"%{param.name} of {callee.name} wants alignment {param.alignment}, "
                    f"given {declared}",
                )


def _is_identifier(name: object) -> bool:
    return isinstance(name, str) and _IDENTIFIER.fullmatch(name) is not None


def _types(types: Sequence[TileType]) -> str:
    return "(" + ", ".join(map(str, types)) + ")"


def _expected_regions(
    operation: Operation,
) -> list[tuple[tuple[TileType, ...], tuple[TileType, ...]]]:
    """Parameter and yield types of each region that the op must have."""
    carried = tuple(value.type for value in operation.results)
    match operation.op:
        case Fold(kind="region") | Scan(kind="region"):
            scalars = combine_types(carried)
            return [((*scalars, *scalars), scalars)]
        case For():
            return [((I64, *carried), carried)]
        case While():
            return [(carried, (BOOL,)), (carried, carried)]
        case If():
            return [((), carried), ((), carried)]
    return []
