"""Generated kernels that do one thing as fast as this machine can: arithmetic, reading, nothing.

What they reach is what kernels of the same code generator are held against, so a probe is written
with the same operations of the tile IR as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from luban.codegen.llvm import emit
from luban.native.cache import default_cache
from luban.native.link import Library, link
from luban.native.objects import objects_of
from luban.native.target import Target
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr
from luban.tile.function import Module

__all__ = ["READS_AT_ONCE", "ArithmeticProbe", "Probes", "build_probes"]

READS_AT_ONCE = 8  # vectors that one turn of the reading loop takes
_READ_VECTORS = 16  # from where arithmetic takes its factors, and behind which it writes
_STEPS = 10_000  # of an arithmetic loop: a fraction of a millisecond
# Independent sums: more than the latency of a multiply-add times the number of units needs.
_SUMS = {32: 24, 16: 12}


@dataclass(frozen=True, slots=True)
class ArithmeticProbe:
    """A kernel that keeps multiplying and adding in registers; its 3 arguments may be one address.

    operations   of one program; a multiply-add is two
    """

    name: str
    operations: int


_Made = tuple[Module, ArithmeticProbe]


@dataclass(frozen=True, slots=True)
class Probes:
    """Linked kernels: arithmetic by kind, `read` (x, sums, share, turns) and `empty` ()."""

    arithmetic: dict[str, ArithmeticProbe]
    library: Library = field(repr=False)
    vector_bytes: int

    def memory_bytes(self, threads: int) -> int:
        """What the arithmetic of so many programs reads and writes, from its arguments on."""
        return (_READ_VECTORS + threads) * self.vector_bytes


def build_probes(target: Target) -> Probes:
    """Compile all probes, or take them from the cache; a few hundred milliseconds."""
    made = {kind: make(target) for kind, make in _ARITHMETIC.items()}
    modules = [module for module, _ in made.values()]
    modules += [_reading(target), _nothing()]
    objects = objects_of((emit(module, target) for module in modules), target, default_cache())
    library = link(objects, [module.entry for module in modules])
    arithmetic = {kind: probe for kind, (_, probe) in made.items()}
    return Probes(arithmetic, library, target.vector_bits // 8)


def _loop(b: FunctionBuilder, start: Sequence[Expr], step: Callable[[Expr], Expr]) -> Expr:
    """Every sum taken through `step` again and again; all of them added up."""
    with b.for_(0, _STEPS, 1, carried=list(start), unroll=4) as loop:
        loop.yield_(*map(step, loop.carried))
    first, *others = loop.results
    for other in others:
        first = first + other
    return first


def _finished(b: FunctionBuilder, x: Expr, result: Expr, target: Target, products: int) -> _Made:
    """Stores the result behind what was loaded, a place for each program.

    products   multiply-adds of one lane in one step of one sum
    """
    lanes = target.vector_bits // 32
    b.store(x, (b.program_id() + _READ_VECTORS) * lanes, result)
    operations = 2 * products * lanes * _STEPS * _SUMS[target.num_vector_registers]
    module = b.finish_module()
    return module, ArithmeticProbe(module.entry, operations)


def _float32(target: Target) -> _Made:
    lanes = target.vector_bits // 32
    b = FunctionBuilder("peak_f32")
    x = b.pointer("x", "f32")
    factor, term = b.load(x, 0, (lanes,)), b.load(x, lanes, (lanes,))
    start = [b.full((lanes,), float(i), "f32") for i in range(_SUMS[target.num_vector_registers])]
    total = _loop(b, start, lambda sums: b.fma(sums, factor, term))
    return _finished(b, x, total, target, 1)


def _pairs(target: Target) -> _Made:
    return _dots(target, "peak_bf16", ("bf16", "bf16"), "f32", 2, FunctionBuilder.dot_pair)


def _bytes(target: Target) -> _Made:
    return _dots(target, "peak_i8", ("u8", "i8"), "i32", 4, FunctionBuilder.dot4)


def _dots(
    target: Target,
    name: str,
    factors: tuple[str, str],
    sums: str,
    group: int,
    dot: Callable[[FunctionBuilder, Expr, Expr, Expr], Expr],
) -> _Made:
    lanes = target.vector_bits // 32
    b = FunctionBuilder(name)
    x = b.pointer("x", sums)
    y, z = (b.pointer(name, elem, access="read") for name, elem in zip("yz", factors, strict=True))
    left, right = b.load(y, 0, (1, group)), b.load(z, group * lanes, (group * lanes,))
    count = _SUMS[target.num_vector_registers]
    start = [b.full((1, lanes), i, sums) for i in range(count)]
    total = _loop(b, start, lambda acc: dot(b, acc, left, right))
    return _finished(b, x, b.reshape(total, (lanes,)), target, group)


_ARITHMETIC: dict[str, Callable[[Target], _Made]] = {
    "f32": _float32,
    "bf16": _pairs,
    "i8": _bytes,
}


def _reading(target: Target) -> Module:
    """Each program reads its share of x, `turns` times over."""
    lanes = target.vector_bits // 32
    b = FunctionBuilder("read")
    x, y = b.pointer("x", "f32", access="read"), b.pointer("y", "f32", access="write")
    share, turns = b.scalar("share"), b.scalar("turns")
    first = b.program_id() * share
    start = [b.full((lanes,), 0.0, "f32") for _ in range(READS_AT_ONCE)]
    with b.for_(0, turns, 1, carried=start) as turn:
        with b.for_(first, first + share, READS_AT_ONCE * lanes, carried=turn.carried) as loop:
            numbers = _vectors(b, x, loop.index, lanes)
            loop.yield_(*(sums + n for sums, n in zip(loop.carried, numbers, strict=True)))
        turn.yield_(*loop.results)
    total, *others = turn.results
    for other in others:
        total = total + other
    b.store(y, b.program_id() * lanes, total)
    return b.finish_module()


def _vectors(b: FunctionBuilder, x: Expr, first: Expr, lanes: int) -> Iterator[Expr]:
    for number in range(READS_AT_ONCE):
        yield b.load(x, first + number * lanes, (lanes,))


def _nothing() -> Module:
    b = FunctionBuilder("empty")
    b.program_id()
    return b.finish_module()
