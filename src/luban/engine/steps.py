"""What the executor runs: steps in order, over numbered values. It needs no IR.

So a program that comes out of the cache runs without loading the compiler. Values are numbered; a
reshape shares its operand's storage, everything else has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from luban.core.dims import DimLike
from luban.core.size_rules import SizeRule
from luban.core.types import Type

if TYPE_CHECKING:
    from luban.ir.node import Graph, Node
    from luban.lower.kernel import Argument
    from luban.native.link import Library

__all__ = [
    "Branch",
    "Control",
    "HostCall",
    "HostStep",
    "Launch",
    "LinkedKernel",
    "Native",
    "Program",
    "Recurrence",
    "Repeat",
    "Step",
    "SubRunner",
    "Value",
    "bodies_of",
    "native_steps",
]

# Runs a control-flow sub-graph: (graph, its operands, the sizes known outside) -> its results.
SubRunner = Callable[["Graph", Sequence[Any], dict[str, int]], tuple[Any, ...]]
# A host step's work: (operands, sizes, how to run its sub-graphs) -> one value for each result.
# Sizes that the results settle are added to `sizes`.
HostCall = Callable[[Sequence[Any], dict[str, int], SubRunner], Sequence[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class LinkedKernel:
    """Machine code of one fusion: where it starts, what to bind, how many programs to run.

    scratch_bytes  bytes per thread behind the extra last argument; 0: there is none
    code           the object file that has it, for the artifact
    """

    name: str
    address: int
    arguments: tuple[Argument, ...]
    num_programs: DimLike
    scratch_bytes: int
    library: Library
    code: bytes = field(default=b"", repr=False)


@dataclass(slots=True, eq=False)
class Value:
    """One value of the program. `storage` is the value whose memory it uses (itself, mostly).

    origin: "input", "constant", "once" (computed at load), "launch" (a kernel's), "host", or
    "stack": written by a loop whose turns only the run knows, in memory of its own that grows
    """

    number: int
    type: Type
    origin: str
    storage: Value | None = None
    constant: np.ndarray[Any, Any] | None = None

    @property
    def root(self) -> Value:
        """The value that owns the memory."""
        return self if self.storage is None else self.storage.root


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """Run one kernel. `node` is the fusion it came from, unless the program came from the cache.

    work   about how many multiply-adds and results it takes
    """

    node: Node | None
    kernel: LinkedKernel
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    work: DimLike = 0


@dataclass(frozen=True, slots=True, eq=False)
class HostStep:
    """Run one node by its meaning, in Python. `reason` says why; `explain` shows it."""

    node: Node
    reason: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    call: HostCall


# Control flow without Python: all steps of a body are native, its sizes are known before it runs,
# and each of its outputs is the result of a step of its own.


@dataclass(frozen=True, slots=True, eq=False)
class Recurrence:
    """Run a body once for each slice of its scanned operands: a `scan`.

    body      inputs: carried, slices, captured; outputs: carried, stacked
    operands  carried, scanned (along their first axis), captured
    results   carried at the end, then stacked (along their first axis)
    """

    node: Node | None
    body: Program
    num_carried: int
    scan_reverse: tuple[bool, ...]
    stack_reverse: tuple[bool, ...]
    operands: tuple[Value, ...]
    results: tuple[Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """Run a body while its condition holds: a `loop`.

    body      inputs: turn i64[], condition bool[], carried, captured; outputs: condition, carried,
              stacked
    operands  limit i64[], condition bool[], carried, captured
    results   carried at the end, then stacked (along their first axis)
    trips     the symbol that the number of turns is the value of, if only the run knows it
    """

    node: Node | None
    body: Program
    num_carried: int
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    trips: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """Run one of two bodies: an `if`. Operands: predicate bool[], then what both bodies take."""

    node: Node | None
    then: Program
    otherwise: Program
    operands: tuple[Value, ...]
    results: tuple[Value, ...]


Control = Recurrence | Repeat | Branch
Native = Launch | Control
Step = Native | HostStep


def bodies_of(step: Step) -> tuple[Program, ...]:
    """The programs inside a step of control flow; none of any other step."""
    match step:
        case Recurrence() | Repeat():
            return (step.body,)
        case Branch():
            return (step.then, step.otherwise)
    return ()


def native_steps(program: Program) -> list[Native]:
    """The steps of a program that is part of a control step: all of them."""
    return [step for step in program.steps if not isinstance(step, HostStep)]


@dataclass(slots=True)
class Program:
    """Steps in order, and the values that go in and come out.

    graph   what it was made from, unless it came from the cache
    """

    name: str
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    graph: Graph | None = None
    values: list[Value] = field(default_factory=list)
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    steps: list[Step] = field(default_factory=list)
    once: dict[Graph, Value] = field(default_factory=dict)  # filled in at load
    rules: tuple[SizeRule, ...] = ()  # between sizes: kernels rely on them
