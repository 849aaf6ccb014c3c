"""Which program runs, ranges, hints, assertions and prints."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from luban.frontend.kernel.table import builtin
from luban.frontend.kernel.types import BY_NAME
from luban.frontend.kernel.values import Tensor, is_number

if TYPE_CHECKING:
    from luban.frontend.kernel.interpret import Interpreter

__all__: list[str] = []


def _axis(run: Interpreter, axis: Any) -> int:
    if not is_number(axis) or axis not in (0, 1, 2):
        run.fail(f"axis {run.said(axis)} of the grid, expected 0, 1 or 2")
    return int(axis)


@builtin("programs")
def program_id(run: Interpreter, axis: Any) -> Tensor:
    """The place of this program in the grid along an axis, int32. Axis 0 is the fastest."""
    place = _axis(run, axis)
    index = run.b.program_id()
    for extent in run.grid[:place]:
        index = index // extent
    if place < 2:
        index = index % run.grid[place]
    return run.cast(Tensor(index), BY_NAME["int32"])


@builtin("programs")
def num_programs(run: Interpreter, axis: Any) -> Tensor:
    """The extent of the grid along an axis, int32."""
    return run.cast(Tensor(run.grid[_axis(run, axis)]), BY_NAME["int32"])


@builtin("programs", "range")
def range_(run: Interpreter, arg1: Any, arg2: Any = None, step: Any = None, **hints: Any) -> Any:
    """The numbers of a loop; num_stages, warp_specialize and the like are hints for GPUs."""
    del arg1, arg2, step, hints
    run.fail("tl.range stands in a for statement only")


@builtin("programs")
def static_range(run: Interpreter, start: Any, end: Any = None, step: Any = None) -> Any:
    """The numbers of a loop that is written out, one copy of the body for each."""
    bounds = [value for value in (start, end, step) if value is not None]
    for value in bounds:
        if not is_number(value):
            run.fail(f"a bound is {run.said(value)}, expected a constant")
    return range(*bounds)


# Hints: they promise what our own analysis does not need to be told


@builtin("hints")
def multiple_of(run: Interpreter, input: Any, values: Any) -> Any:
    """A promise about divisibility: the input as it is."""
    del run, values
    return input


@builtin("hints")
def max_contiguous(run: Interpreter, input: Any, values: Any) -> Any:
    """A promise about contiguity: the input as it is."""
    del run, values
    return input


@builtin("hints")
def max_constancy(run: Interpreter, input: Any, values: Any) -> Any:
    """A promise about equal neighbours: the input as it is."""
    del run, values
    return input


@builtin("hints")
def assume(run: Interpreter, cond: Any) -> None:
    """A promise that a condition holds: no effect, checked when the kernel is run with checks."""
    if isinstance(cond, Tensor) and run.checks:
        device_assert(run, cond, "tl.assume")


@builtin("hints")
def debug_barrier(run: Interpreter) -> None:
    """A barrier of one program's threads: a program is one thread here."""
    del run


# Assertions and prints


@builtin("debugging")
def static_assert(run: Interpreter, cond: Any, msg: Any = "") -> None:
    """Refuse to compile unless a constant condition holds."""
    if isinstance(cond, Tensor):
        run.fail("tl.static_assert of what only the run knows", hint="use tl.device_assert")
    if not cond:
        run.fail(f"static_assert: {msg}" if msg else "static_assert does not hold")


@builtin("debugging")
def static_print(run: Interpreter, *values: Any, sep: Any = " ", end: Any = "\n", **_: Any) -> None:
    """Print while the kernel is compiled."""
    sys.stdout.write(
        str(sep).join(v if isinstance(v, str) else run.said(v) for v in values) + str(end)
    )


@builtin("debugging")
def device_assert(run: Interpreter, cond: Any, msg: Any = "", mask: Any = None) -> None:
    """Stop, when the kernel is run with checks, where the condition does not hold."""
    if not run.checks:
        return
    b = run.b
    good = run.truth(cond).expr
    if mask is not None:
        good = good | b.unary("not", run.truth(mask).expr)
    while good.shape:
        (good,) = b.fold("and", [good], len(good.shape) - 1)
    where = f"{run.source.name}: {msg or 'device_assert'}"
    b.require(good, where)


@builtin("debugging", "device_print", "python.print")
def device_print(run: Interpreter, prefix: Any, *values: Any, hex: Any = False) -> None:
    """Print values of each program. A kernel that prints runs in the evaluator."""
    words = [] if isinstance(prefix, str) else [prefix]
    text = prefix if isinstance(prefix, str) else ""
    tensors = [run.tensor(v).expr for v in (*words, *values) if not isinstance(v, str)]
    text += " ".join(v for v in values if isinstance(v, str))
    run.b.print_values(text, *tensors, hexadecimal=bool(hex))


@builtin("debugging", "python.isinstance")
def is_instance(run: Interpreter, value: Any, kinds: Any) -> bool:
    """Python's isinstance: of values of the run, whether a type of the language is meant."""
    del run
    names = [getattr(k, "__name__", "") for k in (kinds if isinstance(kinds, tuple) else (kinds,))]
    if isinstance(value, Tensor):
        return "tensor" in names
    return "constexpr" in names or isinstance(value, kinds)
