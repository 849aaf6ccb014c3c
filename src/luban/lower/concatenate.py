"""Concatenations: each part is a loop nest of its own over the places that it fills.

One nest over the whole result would ask at every place which part it is in, and could not run
adjacent axes as one: a key and value cache that grows by a token is mostly a plain copy.
"""

from __future__ import annotations

from luban.core.dims import DimLike
from luban.core.registers import Registers
from luban.graph.ops.structure import Concatenate
from luban.ir.node import Graph
from luban.lower.affine import axis_index, row_major
from luban.lower.emit import Writer
from luban.lower.kernel import Kernel
from luban.lower.nest import Group, Nest, Write, finished
from luban.lower.scope import Scope
from luban.lower.trace import Declined, Trace
from luban.tile.builder import FunctionBuilder

__all__ = ["lower_concatenate"]

_MOST_PARTS = 8  # each has code of its own
_LEAST = 8  # elements along the last axis that are worth a loop


def lower_concatenate(name: str, body: Graph, registers: Registers) -> Kernel:
    """The kernel of a fusion whose result is a concatenation. Raises Declined if it is not."""
    nests = _nests(body)
    b = FunctionBuilder(name)
    scope = Scope(b, body, nests[0])
    program, start = b.program_id(), b.constant(0)
    num_programs: DimLike = 0
    for nest in nests:
        scope.nest, scope.place = nest, {}
        writer = Writer(b, scope, nest, registers.vector_bytes)
        count = writer.num_programs
        stop = start + scope.size(count)
        mine = b.binary("and", start <= program, program < stop)
        with b.if_(mine) as branch, branch.then(), scope.inner():
            writer.write(program - start)
        start, num_programs = stop, num_programs + count
    note = f"{len(nests)} parts, each a loop nest"
    return Kernel(b.finish_module(), tuple(scope.arguments), num_programs, (note,))


def _nests(body: Graph) -> list[Nest]:
    root, *others = body.results
    if others or not isinstance(root.op, Concatenate):
        raise Declined("the result is no concatenation")
    if len(root.operands) > _MOST_PARTS:
        raise Declined(f"{len(root.operands)} parts")
    shape, axis = root.tensor.shape, root.op.axis
    sizes = [part.tensor.shape[axis] for part in root.operands]
    if axis == len(shape) - 1 and any(isinstance(s, int) and s < _LEAST for s in sizes):
        raise Declined("a part is too short along the last axis")
    nests: list[Nest] = []
    start: DimLike = 0
    for part, size in zip(root.operands, sizes, strict=True):
        trace = Trace(dict(enumerate(part.tensor.shape)))
        nest = Nest(trace, [Group(i, s) for i, s in enumerate(part.tensor.shape)], [])
        index = [axis_index(i) for i in range(len(shape))]
        value = trace.value(part, tuple(index))
        index[axis] = index[axis].shifted(start)
        nest.writes.append(Write(0, value, row_major(tuple(index), shape), False))
        nests.append(finished(nest))
        start = start + size
    return nests
