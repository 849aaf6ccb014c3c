"""What each kernel of a compiled model has to do, in numbers, as the cost model wants it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from luban.core import dims
from luban.core.cost_model import Traffic, Work
from luban.core.errors import ShapeError
from luban.engine.compile import Compiled
from luban.engine.steps import Launch, LinkedKernel, Program, Value, bodies_of
from luban.graph.cost import bytes_moved, cost_of
from luban.graph.ops.fusion import Fusion

__all__ = ["KernelWork", "kernel_works", "launches_in"]


@dataclass(frozen=True, slots=True)
class KernelWork:
    """One kernel.

    step         the first launch of it
    work         of one run
    definition   operations that its definition asks for; more than it does in Winograd tiles
    """

    step: Launch
    work: Work
    definition: float


def kernel_works(compiled: Compiled, sizes: Mapping[str, int]) -> dict[LinkedKernel, KernelWork]:
    """The work of every kernel of a call whose sizes are known.

    Weights come from the level that holds all that the program, or the loop's body, reads of them;
    other operands and the results from one that holds them.
    """
    found: dict[LinkedKernel, KernelWork] = {}
    for program in compiled.programs.values():
        weights = _weight_bytes(program, sizes)
        for step in program.steps:
            if isinstance(step, Launch) and step.kernel not in found:
                with contextlib.suppress(ShapeError):  # sizes that only another run would settle
                    found[step.kernel] = _work(step, sizes, weights)
    return found


def launches_in(program: Program) -> Iterator[Launch]:
    """The launches of a program, those inside its control flow too."""
    for step in program.steps:
        if isinstance(step, Launch):
            yield step
        for body in bodies_of(step):
            yield from launches_in(body)


def _work(step: Launch, sizes: Mapping[str, int], weight_bytes: float) -> KernelWork:
    n = step.node
    assert n is not None
    assert isinstance(n.op, Fusion)
    cost = cost_of(n)
    operations = {kind: dims.evaluate(count, sizes) for kind, count in cost.operations.items()}
    read = _bytes_read(step, sizes)
    written = sum(dims.evaluate(size, sizes) for size in bytes_moved(n.op.body).written)
    constant = sum(size for value, size in read.items() if value.constant is not None)
    moving = sum(read.values()) - constant + written
    traffic = (Traffic(constant, max(weight_bytes, constant)), Traffic(moving, moving))
    counted = {kind: float(count) for kind, count in operations.items() if count}
    return KernelWork(step, Work(counted, traffic), float(dims.evaluate(cost.definition, sizes)))


def _bytes_read(step: Launch, sizes: Mapping[str, int]) -> dict[Value, int]:
    """What a launch reads of each value that owns memory. Raises ShapeError for unknown sizes."""
    assert step.node is not None
    assert isinstance(step.node.op, Fusion)
    read: dict[Value, int] = {}
    moved = bytes_moved(step.node.op.body)
    for value, size in zip(step.operands, moved.read, strict=True):
        read[value.root] = max(read.get(value.root, 0), dims.evaluate(size, sizes))
    return read


def _weight_bytes(program: Program, sizes: Mapping[str, int]) -> int:
    """What one run of a program reads of constants, as far as its sizes are known."""
    read: dict[Value, int] = {}
    for step in launches_in(program):
        with contextlib.suppress(ShapeError):
            for value, size in _bytes_read(step, sizes).items():
                if value.constant is not None:
                    read[value] = max(read.get(value, 0), size)
    return sum(read.values())
