"""Building tile functions step by step.

>>> b = FunctionBuilder("scale")
>>> x, y = b.pointer("x", "f32", access="read"), b.pointer("y", "f32", access="write")
>>> n = b.scalar("n")
>>> with b.for_(0, n, 16) as loop:
...     inside = b.arange(16) < n - loop.index
...     b.store(y, loop.index, b.load(x, loop.index, (16,), mask=inside) * 2.0, mask=inside)
>>> [param.name for param in b.finish().params]
['x', 'y', 'n']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from luban.core.dtypes import DType, dtype
from luban.core.errors import DTypeError, InternalError, OptionError, ShapeError
from luban.tile.block_ops import (
    Dot,
    Fold,
    FoldKind,
    Print,
    Scan,
    Take,
    combine_types,
)
from luban.tile.control import Branch, Loop, WhileLoop, coerce_yields
from luban.tile.expr import Block, Emitter, Expr, Operand
from luban.tile.function import Access, Function, Module, Param, Value
from luban.tile.memory_ops import (
    Assert,
    AtomicCas,
    AtomicKind,
    AtomicRmw,
    CacheHint,
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
from luban.tile.ops import (
    Concat,
    Dot4,
    DotPair,
    ExtractSlice,
    ProgramId,
    Reduce,
    ReduceKind,
    Reshape,
    ThreadId,
    Transpose,
)
from luban.tile.types import I64, TileType, pointer_type

__all__ = ["Branch", "FunctionBuilder", "Loop", "WhileLoop"]

RowOffsets = Sequence[Sequence[int] | None]
Combine = Callable[..., Sequence[Operand]]


def _freeze(row_offsets: RowOffsets | None) -> tuple[tuple[int, ...] | None, ...] | None:
    if row_offsets is None:
        return None
    return tuple(None if offsets is None else tuple(offsets) for offsets in row_offsets)


class FunctionBuilder(Emitter):
    """Builds one tile function. Python numbers stand for constants wherever a scalar is wanted."""

    def __init__(self, name: str, *, noinline: bool = False, doc: str = "") -> None:
        super().__init__()
        self.name = name
        self.noinline = noinline
        self.doc = doc
        self._params: list[Param] = []
        self._callees: dict[str, Module] = {}

    # Parameters

    def pointer(
        self,
        name: str,
        elem: str | DType,
        *,
        access: Access = "read_write",
        alignment: int = 0,
        noalias: str | None = None,
        extent: int | str | None = None,
        per_thread: bool = False,
        doc: str = "",
    ) -> Expr:
        """A parameter that points to an array; see `Param` for what each promise means."""
        value = Value(pointer_type(elem), name)
        return self._add(
            Param(value, access, alignment, noalias, extent, per_thread=per_thread, doc=doc)
        )

    def scalar(
        self, name: str, elem: str | DType = "i64", *, multiple_of: int = 1, doc: str = ""
    ) -> Expr:
        """A parameter that is one number."""
        value = Value(TileType(dtype(elem)), name)
        return self._add(Param(value, "read", multiple_of=multiple_of, doc=doc))

    def tile_param(self, name: str, given: TileType, *, doc: str = "") -> Expr:
        """A parameter that is a tile, for functions that are only called (never launched)."""
        return self._add(Param(Value(given, name), "read", doc=doc))

    def _add(self, param: Param) -> Expr:
        if any(param.name == other.name for other in self._params):
            raise DTypeError(f"{self.name} has two parameters named {param.name!r}")
        self._params.append(param)
        return Expr(self, param.value)

    def finish(self, *results: Expr) -> Function:
        """The function; `results` go back to a `call`."""
        if len(self.blocks) != 1:
            raise InternalError(f"{self.name}: finished inside an open loop or branch")
        params = tuple(self._params)
        yields = [result.value for result in results]
        body = self.blocks[0].region([param.value for param in params], yields)
        return Function(self.name, params, body, self.noinline, self.doc)

    def finish_module(self, *results: Expr) -> Module:
        """The function with everything that it calls, as a module whose entry it is."""
        functions = {self.name: self.finish(*results)}
        for module in self._callees.values():
            functions |= {function.name: function for function in module.functions}
        return Module(tuple(functions.values()), self.name)

    # Index, shape, reductions, matrices

    def program_id(self) -> Expr:
        """Which program of the grid this is, i64."""
        return self.emit(ProgramId())[0]

    def thread_id(self) -> Expr:
        """Which thread this is, i64: only for indices into `per_thread` pointers."""
        return self.emit(ThreadId())[0]

    def reshape(self, x: Expr, shape: Sequence[int]) -> Expr:
        """The same elements in another shape."""
        if x.shape == tuple(shape):
            return x
        return self.emit(Reshape(tuple(shape)), x.value)[0]

    def transpose(self, x: Expr, permutation: Sequence[int]) -> Expr:
        """Result axis i is operand axis permutation[i]."""
        return self.emit(Transpose(tuple(permutation)), x.value)[0]

    def extract_slice(self, x: Expr, offsets: Sequence[int], shape: Sequence[int]) -> Expr:
        """The block of `shape` that starts at static `offsets`."""
        if x.shape == tuple(shape):
            return x
        return self.emit(ExtractSlice(tuple(offsets), tuple(shape)), x.value)[0]

    def concat(self, tiles: Sequence[Expr], axis: int) -> Expr:
        """Tiles joined along an axis."""
        return self.emit(Concat(axis), *[item.value for item in tiles])[0]

    def reduce(self, kind: ReduceKind, x: Expr, axis: int) -> Expr:
        """Fold an axis away, in the fixed order of `Reduce`."""
        return self.emit(Reduce(kind, axis), x.value)[0]

    def fold(
        self, kind: FoldKind, tiles: Sequence[Expr], axis: int, combine: Combine | None = None
    ) -> tuple[Expr, ...]:
        """Fold an axis of blocks away; `combine` maps 2 n scalars to n for kind "region"."""
        return self._combining(Fold(kind, axis), tiles, combine)

    def scan(
        self,
        kind: FoldKind,
        tiles: Sequence[Expr],
        axis: int,
        *,
        reverse: bool = False,
        combine: Combine | None = None,
    ) -> tuple[Expr, ...]:
        """Running results along an axis of blocks; see `fold`."""
        return self._combining(Scan(kind, axis, reverse), tiles, combine)

    def _combining(
        self, op: Fold | Scan, tiles: Sequence[Expr], combine: Combine | None
    ) -> tuple[Expr, ...]:
        operands = [tile.value for tile in tiles]
        if combine is None:
            return self.emit(op, *operands)
        scalars = combine_types(tuple(tile.type for tile in tiles))
        params = [Value(given) for given in (*scalars, *scalars)]
        block = self.open_block()
        results = combine(*[Expr(self, param) for param in params])
        yields = coerce_yields(self, op.name, results, scalars, None)
        self.close_block()
        return self.emit(op, *operands, regions=[block.region(params, yields)])

    def dot(self, a: Expr, b: Expr, acc: Expr) -> Expr:
        """The matrix product of two blocks, added to a third; see `Dot`."""
        return self.emit(Dot(), a.value, b.value, acc.value)[0]

    def take(self, x: Expr, index: Expr, axis: int) -> Expr:
        """Elements of a block, looked up along an axis."""
        return self.emit(Take(axis), x.value, index.value)[0]

    def dot4(self, acc: Expr, a: Expr, b: Expr) -> Expr:
        """int8 products of four neighbours each, added to i32; see `Dot4`."""
        return self.emit(Dot4(), acc.value, a.value, b.value)[0]

    def dot_pair(self, acc: Expr, a: Expr, b: Expr) -> Expr:
        """bf16 products of two neighbours each, added to f32; see `DotPair`."""
        return self.emit(DotPair(), acc.value, a.value, b.value)[0]

    # Memory

    def load(
        self,
        pointer: Expr,
        index: Operand,
        shape: Sequence[int] = (),
        strides: Sequence[Operand] | None = None,
        *,
        mask: Expr | None = None,
        other: Operand | None = None,
        row_offsets: RowOffsets | None = None,
        align: int | None = None,
        cache: CacheHint = "default",
    ) -> Expr:
        """Read a block at element `index`; see `Load`. Strides default to row-major contiguous."""
        shape = tuple(shape)
        static, dynamic = self._split_strides(shape, strides, row_offsets)
        op = Load(shape, static, _freeze(row_offsets), align, cache)
        tail = self._mask(mask, shape)
        if other is not None:
            tail = tail or [self.full(shape, True, "bool").value]
            tail.append(self.coerce(other, TileType(pointer.type.pointee, shape)))
        return self.emit(op, pointer.value, self.index(index), *dynamic, *tail)[0]

    def store(
        self,
        pointer: Expr,
        index: Operand,
        value: Operand,
        strides: Sequence[Operand] | None = None,
        *,
        shape: Sequence[int] | None = None,
        mask: Expr | None = None,
        row_offsets: RowOffsets | None = None,
        align: int | None = None,
        cache: CacheHint = "default",
    ) -> None:
        """Write a block at element `index`, of the shape of `value` unless given; see `Store`."""
        value = self.expr(value, TileType(pointer.type.pointee))
        shape = value.shape if shape is None else tuple(shape)
        value = self.broadcast(value, shape)
        static, dynamic = self._split_strides(shape, strides, row_offsets)
        op = Store(shape, static, _freeze(row_offsets), align, cache)
        tail = self._mask(mask, shape)
        self.emit(op, pointer.value, self.index(index), value.value, *dynamic, *tail)

    def _split_strides(
        self,
        shape: tuple[int, ...],
        strides: Sequence[Operand] | None,
        row_offsets: RowOffsets | None,
    ) -> tuple[tuple[int | None, ...], list[Value]]:
        if strides is None:
            static = [1] * len(shape)
            for axis in range(len(shape) - 2, -1, -1):
                static[axis] = static[axis + 1] * shape[axis + 1]
            if row_offsets is not None:
                static = [
                    stride if offsets is None else 0
                    for stride, offsets in zip(static, row_offsets, strict=True)
                ]
            return tuple(static), []
        known: list[int | None] = []
        dynamic = []
        for stride in strides:
            number = stride.known if isinstance(stride, Expr) else stride
            known.append(None if number is None else int(number))
            if number is None:
                dynamic.append(self.index(stride))
        return tuple(known), dynamic

    def _mask(self, mask: Expr | None, shape: tuple[int, ...]) -> list[Value]:
        if mask is None or mask.known is True:
            return []
        return [self.broadcast(mask, shape).value]

    def gather(
        self,
        pointer: Expr,
        offsets: Operand,
        *,
        mask: Expr | None = None,
        other: Operand | None = None,
    ) -> Expr:
        """Read pointer[offsets]."""
        where = self.expr(offsets)
        tail = self._mask(mask, where.shape)
        if other is not None:
            tail = tail or [self.full(where.shape, True, "bool").value]
            tail.append(self.coerce(other, TileType(pointer.type.pointee, where.shape)))
        return self.emit(Gather(), pointer.value, where.value, *tail)[0]

    def scatter(
        self, pointer: Expr, offsets: Operand, value: Operand, *, mask: Expr | None = None
    ) -> None:
        """Write value to pointer[offsets]."""
        where = self.expr(offsets)
        stored = self.coerce(value, TileType(pointer.type.pointee, where.shape))
        tail = self._mask(mask, where.shape)
        self.emit(Scatter(), pointer.value, where.value, stored, *tail)

    def atomic_rmw(
        self,
        kind: AtomicKind,
        pointer: Expr,
        offsets: Operand,
        value: Operand,
        *,
        mask: Expr | None = None,
    ) -> Expr:
        """Read, combine and write pointer[offsets] as one step; gives the old values."""
        where = self.expr(offsets)
        operand = self.coerce(value, TileType(pointer.type.pointee, where.shape))
        tail = self._mask(mask, where.shape)
        return self.emit(AtomicRmw(kind), pointer.value, where.value, operand, *tail)[0]

    def atomic_cas(self, pointer: Expr, offsets: Operand, compare: Operand, value: Operand) -> Expr:
        """Write `value` where memory equals `compare`, as one step; gives the old values."""
        where = self.expr(offsets)
        kind = TileType(pointer.type.pointee, where.shape)
        operands = [self.coerce(compare, kind), self.coerce(value, kind)]
        return self.emit(AtomicCas(), pointer.value, where.value, *operands)[0]

    def print_values(
        self,
        prefix: str,
        *values: Expr,
        hexadecimal: bool = False,
        mask: Expr | None = None,
    ) -> None:
        """Show values when the evaluator runs; nothing in compiled code."""
        operands = [item.value for item in ([mask] if mask is not None else []) + list(values)]
        self.emit(Print(prefix, hexadecimal, mask is not None), *operands)

    def prefetch(
        self, pointer: Expr, index: Operand, *, locality: int = 3, write: bool = False
    ) -> None:
        """A hint that pointer[index] is needed soon."""
        self.emit(Prefetch(locality, write), pointer.value, self.index(index))

    def scratch(self, elem: str | DType, count: int, *, align: int = 64) -> Expr:
        """Memory of this thread, not initialised. At the top of the function only."""
        return self.emit(Scratch(dtype(elem), count, align))[0]

    # Control

    @contextmanager
    def for_(
        self,
        lower: Operand,
        upper: Operand,
        step: Operand = 1,
        *,
        carried: Sequence[Expr] = (),
        unroll: int = 1,
    ) -> Iterator[Loop]:
        """A counted loop. One with a single known iteration is inlined, one with none disappears.

        >>> b = FunctionBuilder("count")
        >>> with b.for_(0, b.scalar("n"), carried=[b.constant(0)]) as loop:
        ...     loop.yield_(loop.carried[0] + loop.index)
        >>> (total,) = loop.results
        >>> print(total.type)
        i64
        """
        bounds = [self.expr(item) for item in (lower, upper, step)]
        known = [item.known for item in bounds]
        if known[2] is not None and known[2] < 1:
            raise OptionError(f"tile for: step is {known[2]}, expected at least 1")
        trips = None if None in known else len(range(*[int(item or 0) for item in known]))
        params = (Value(I64), *[Value(item.type) for item in carried])
        exprs = [Expr(self, param) for param in params]
        loop = Loop(self, bounds[0], carried) if trips == 1 else Loop(self, exprs[0], exprs[1:])
        block = self.open_block() if trips != 1 else self.blocks[-1]
        yield loop
        if loop.yields is None and loop.carried:
            raise ShapeError(f"tile for: nothing yielded for {len(loop.carried)} carried values")
        yields = loop.yields or ()
        if trips == 1:
            loop.results = tuple(Expr(self, value) for value in yields)
            return
        self.close_block()
        if trips == 0:
            loop.results = tuple(carried)
            return
        operands = [item.value for item in (*bounds, *carried)]
        loop.results = self.emit(For(unroll), *operands, regions=[block.region(params, yields)])

    @contextmanager
    def while_(self, carried: Sequence[Expr]) -> Iterator[WhileLoop]:
        """A loop on a condition: `with loop.condition() as (x,)`, `with loop.body() as (x,)`."""
        loop = WhileLoop(self, [item.type for item in carried])
        yield loop
        if len(loop.parts) != 2 or loop.test_yields is None or loop.body_yields is None:
            raise ShapeError(
                "tile while: expected one condition() with test and one body() with yield_"
            )
        ends = {"condition": loop.test_yields, "body": loop.body_yields}
        regions = []
        for name, yields in ends.items():
            block, params = loop.parts[name]
            regions.append(block.region(params, yields))
        loop.results = self.emit(While(), *[item.value for item in carried], regions=regions)

    @contextmanager
    def if_(self, condition: Expr) -> Iterator[Branch]:
        """Two alternatives; a known condition keeps only one of them."""
        branch = Branch(self)
        yield branch
        then, otherwise = (branch.parts.get(key, (Block(), ())) for key in ("then", "otherwise"))
        types = [tuple(value.type for value in part[1]) for part in (then, otherwise)]
        if types[0] != types[1]:
            given = " and ".join("(" + ", ".join(map(str, part)) + ")" for part in types)
            raise ShapeError(f"tile if: the branches yield {given}, expected equal types")
        if condition.known is not None:
            block, yields = then if condition.known else otherwise
            self.blocks[-1].body.extend(block.body)
            branch.results = tuple(Expr(self, value) for value in yields)
            return
        regions = [block.region((), yields) for block, yields in (then, otherwise)]
        branch.results = self.emit(If(types[0]), condition.value, regions=regions)

    def call(self, callee: Function | Module, *arguments: Operand) -> tuple[Expr, ...]:
        """Run another function; `finish_module` brings it along."""
        module = Module.of(callee)
        function = module.kernel
        if len(arguments) != len(function.params):
            raise ShapeError(
                f"tile call: {function.name} got {len(arguments)} arguments, "
                f"expected {len(function.params)}"
            )
        self._callees[function.name] = module
        operands = []
        for argument, param in zip(arguments, function.params, strict=True):
            expr = self.expr(argument, None if param.is_pointer else param.type)
            if expr.type != param.type:
                raise DTypeError(
                    f"tile call: {function.name}: {param.name} is {expr.type}, "
                    f"expected {param.type}"
                )
            operands.append(expr.value)
        return self.emit(Call(function.name, function.result_types), *operands)

    def require(self, condition: Expr, message: str) -> None:
        """Stop with this message in checked mode when the condition is false."""
        if condition.known is not True:
            self.emit(Assert(message), condition.value)
