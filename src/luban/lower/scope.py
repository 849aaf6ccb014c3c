"""Values at the place where a kernel's loops stand: loads, arithmetic, addresses, stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from luban.core.dims import DimLike
from luban.core.dtypes import DType
from luban.core.errors import InternalError
from luban.ir.node import Graph, Node
from luban.lower import maths
from luban.lower.affine import Linear
from luban.lower.kernel import Argument, Operand, Result, Workspace
from luban.lower.nest import Nest, Write
from luban.lower.trace import Ref
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr
from luban.tile.function import Access

__all__ = ["Lanes", "Scope"]


@dataclass(frozen=True, slots=True)
class Lanes:
    """The axis along a tile: lane i is at `base + i`; `mask` if not all lanes are inside."""

    axis: int
    base: Expr
    width: int
    mask: Expr | None


class Scope:
    """Emits loop-body values into a builder; knows where each loop axis stands."""

    def __init__(
        self, b: FunctionBuilder, body: Graph, nest: Nest, result_access: Access = "write"
    ) -> None:
        self.b = b
        self.nest = nest
        self.arguments: list[Argument] = []
        self._pointers: dict[Node, Expr] = {}
        self._sizes: dict[DimLike, Expr] = {}
        self._memo: list[dict[Ref, Expr]] = [{}]
        self.place: dict[int, Expr] = {}
        self.lanes: Lanes | None = None
        for i, parameter in enumerate(body.parameters):
            pointer = b.pointer(f"x{i}", parameter.tensor.dtype, access="read")
            self._pointers[parameter] = pointer
            self.arguments.append(Operand(i))
        self.results: list[Expr] = []
        for i, root in enumerate(body.results):
            self.results.append(b.pointer(f"y{i}", root.tensor.dtype, access=result_access))
            self.arguments.append(Result(i))

    def size(self, value: DimLike) -> Expr:
        """A size as an i64: a constant, or a parameter that the host fills in."""
        if isinstance(value, int):
            return self.b.constant(value)
        if value not in self._sizes:
            self._sizes[value] = self.b.scalar(f"n{len(self._sizes)}")
            self.arguments.append(value)
        return self._sizes[value]

    def operand(self, parameter: Node) -> Expr:
        """Where an operand of the body starts."""
        return self._pointers[parameter]

    def workspace(self, name: str, dtype: DType, count: DimLike) -> Expr:
        """Memory of `count` elements for each thread; those of thread t start at t * count."""
        self.arguments.append(Workspace(dtype, count))
        return self.b.pointer(name, dtype, per_thread=True)

    def pointer(self, load: Ref) -> Expr:
        """Where the operand of a load starts."""
        assert load.operand is not None
        return self._pointers[load.operand]

    @contextmanager
    def inner(self) -> Iterator[None]:
        """Values emitted inside are forgotten at the end, as they are not visible after it."""
        self._memo.append({})
        yield
        self._memo.pop()

    def set(self, ref: Ref, value: Expr) -> None:
        """State the value of a ref: the result of a reduction."""
        self._memo[-1][ref] = value

    def value(self, ref: Ref) -> Expr:
        """The ref's value at the present place: a scalar, or a tile along the lanes."""
        for memo in reversed(self._memo):
            if ref in memo:
                return memo[ref]
        stack = [ref]
        while stack:
            current = stack[-1]
            missing = [r for r in _inputs(current) if not self.known(r)]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if not self.known(current):
                self._memo[-1][current] = self._emit(current)
        return self._memo[-1][ref]

    def known(self, ref: Ref) -> bool:
        """True if the value has been emitted and is visible here."""
        return any(ref in memo for memo in self._memo)

    def linear(self, form: Linear) -> tuple[Expr, DimLike | Expr, Expr | None]:
        """(start, stride along the lanes, offsets per lane if not linear in them) of an index."""
        start = self.size(form.constant)
        stride: DimLike = 0
        scattered: Expr | None = None
        for axis, coefficient in form.axes:
            if self.lanes is not None and axis == self.lanes.axis:
                stride = coefficient
                start = start + self.lanes.base * self.size(coefficient)
            elif axis in self.place:
                start = start + self.place[axis] * self.size(coefficient)
        for ref, coefficient in form.values:
            term = self.value(ref) * self.size(coefficient)
            if term.shape:
                scattered = term if scattered is None else scattered + term
            else:
                start = start + term
        return start, stride, scattered

    def along_offsets(self, start: Expr, stride: DimLike | Expr, scattered: Expr | None) -> Expr:
        """An index as one offset per lane."""
        if not isinstance(stride, Expr) and stride != 0 and self.lanes is not None:
            start = start + self.b.arange(self.lanes.width) * self.size(stride)
        return start if scattered is None else start + scattered

    def _emit(self, ref: Ref) -> Expr:
        b = self.b
        match ref.kind:
            case "constant":
                return b.constant(ref.value, ref.dtype)
            case "scalar":
                return self.size(ref.value)
            case "index":
                assert ref.offset is not None
                start, stride, scattered = self.linear(ref.offset)
                assert not isinstance(stride, Expr)
                return self.along_offsets(start, stride, scattered)
            case "load":
                return self._load(ref)
            case "cast":
                flush = ref.value == "flush"
                return b.cast(
                    self.value(ref.args[0]), ref.dtype, saturate=bool(ref.value), flush=flush
                )
            case "bitcast":
                return b.bitcast(self.value(ref.args[0]), ref.dtype)
            case "stage":
                raise InternalError(f"reduction {ref.value} is used before it is computed")
        return maths.apply(b, ref.kind, tuple(self.value(arg) for arg in ref.args))

    def _load(self, ref: Ref) -> Expr:
        assert ref.offset is not None
        assert ref.operand is not None
        pointer = self._pointers[ref.operand]
        start, stride, scattered = self.linear(ref.offset)
        mask = self.all_of(ref.args)
        uniform = self.all_of([g for g in ref.args if not self.value(g).shape])
        if uniform is not None:
            # A masked-off access to a page that is not there costs a microsecond, though it is
            # harmless: where no lane is inside, look at the start of the operand instead.
            start = self.b.select(uniform, start, 0)
        if scattered is None and stride == 0 and (mask is None or not mask.shape):
            return self.b.load(pointer, start, (), mask=mask)
        if self.lanes is None:
            raise InternalError("a load varies along lanes that do not exist")
        if self.lanes.mask is not None:
            mask = self.lanes.mask if mask is None else self.b.binary("and", mask, self.lanes.mask)
        if scattered is not None:
            assert not isinstance(stride, Expr)
            return self.b.gather(pointer, self.along_offsets(start, stride, scattered), mask=mask)
        assert not isinstance(stride, Expr)
        strides = [stride if isinstance(stride, int) else self.size(stride)]
        return self.b.load(pointer, start, (self.lanes.width,), strides, mask=mask)

    def along(self, axis: int) -> Expr:
        """Where a loop axis stands: a scalar, or a tile if it runs along the lanes."""
        if self.lanes is not None and self.lanes.axis == axis:
            return self.lanes.base + self.b.arange(self.lanes.width)
        return self.place[axis]

    def all_of(self, guards: Sequence[Ref]) -> Expr | None:
        """One mask that holds where all guards do; None for no guards."""
        mask: Expr | None = None
        for guard in guards:
            value = self.value(guard)
            mask = value if mask is None else self.b.binary("and", mask, value)
        return mask

    def store(self, write: Write) -> None:
        """Store a value at the present place."""
        value = self.value(write.value)
        start, stride, scattered = self.linear(write.offset)
        if scattered is not None or isinstance(stride, Expr):
            raise InternalError("a store at computed places")
        pointer = self.results[write.result]
        if self.lanes is None or stride == 0:
            self.b.store(pointer, start, value)
            return
        strides = [stride if isinstance(stride, int) else self.size(stride)]
        self.b.store(
            pointer, start, value, strides, shape=(self.lanes.width,), mask=self.lanes.mask
        )

    def hoist(self, refs: Sequence[Ref], blocked: frozenset[int]) -> None:
        """Emit now what depends neither on axes in `blocked` nor on reductions still to come."""
        for ref in refs:
            if self.known(ref) or ref.kind in ("constant", "stage"):
                continue
            moving = {axis for axis, _ in ref.offset.axes} if ref.offset is not None else set()
            if not moving & blocked and all(
                self.known(r) or r.kind == "constant" for r in _inputs(ref)
            ):
                self.value(ref)


def _inputs(ref: Ref) -> list[Ref]:
    values = [value for value, _ in ref.offset.values] if ref.offset is not None else []
    return [*ref.args, *values]
