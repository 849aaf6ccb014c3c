"""Random tile programs for the property tests: well typed, in bounds, with loops and branches."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from luban.core.dtypes import dtype
from luban.tile import Expr, Function, FunctionBuilder, TileType
from luban.tile.op import accepts, computes
from luban.tile.ops import BINARY, UNARY

NAMES = ("f32", "f64", "bf16", "f16", "i8", "i32", "i64", "u8", "u32", "bool", "i4", "f8e4m3fn")
SHAPES = ((), (4,), (2, 4), (1, 4), (3, 1), (5,))
BUFFER_ELEMENTS = 64


class _Growing:
    """A function being grown by random steps."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.builder = FunctionBuilder("fuzz")
        self.buffers = {name: self.builder.pointer(f"p_{name}", name) for name in NAMES}
        self.count = self.builder.scalar("count")
        self.values: list[Expr] = [self.count]

    def pick(self, fits: Callable[[TileType], bool]) -> Expr | None:
        """A value whose type fits, or None."""
        found = [value for value in self.values if fits(value.type)]
        return self.draw(st.sampled_from(found)) if found else None

    def step(self, depth: int) -> None:
        """One random operation, or a loop or branch of several."""
        kinds = ["load", "store", "unary", "binary", "compare", "select", "cast", "shape"]
        kinds += ["constant", "reduce", "fma"] + (["for", "if", "while"] if depth < 2 else [])
        getattr(self, f"_{self.draw(st.sampled_from(kinds))}")(depth)

    def steps(self, depth: int) -> None:
        """A few steps; values made inside a region are forgotten by the caller."""
        for _ in range(self.draw(st.integers(1, 4))):
            self.step(depth)

    def inside(self, depth: int) -> Expr | None:
        """Steps of a region; gives a scalar i64 to yield."""
        before = list(self.values)
        self.steps(depth)
        found = self.pick(lambda given: str(given) == "i64")
        self.values = before
        return found

    def _load(self, _depth: int) -> None:
        name = self.draw(st.sampled_from(NAMES))
        shape = self.draw(st.sampled_from(SHAPES))
        strides = [self.draw(st.integers(0, 5)) for _ in shape]
        mask = self.pick(lambda given: given.elem is dtype("bool") and given.shape == shape)
        self.values.append(self.builder.load(self.buffers[name], 3, shape, strides, mask=mask))

    def _store(self, _depth: int) -> None:
        value = self.pick(lambda given: given.num_elements <= 16)
        if value is not None and str(value.dtype) in NAMES:
            mask = self.pick(lambda g: g.elem is dtype("bool") and g.shape == value.shape)
            self.builder.store(self.buffers[str(value.dtype)], 5, value, mask=mask)

    def _constant(self, _depth: int) -> None:
        elem = dtype(self.draw(st.sampled_from(NAMES)))
        number: bool | int | float
        if elem.kind == "bool":
            number = self.draw(st.booleans())
        elif elem.is_integer:
            number = self.draw(st.integers(elem.lowest, elem.highest))
        else:
            number = self.draw(st.floats(-8, 8) | st.sampled_from([-0.0, float("nan")]))
        shape = self.draw(st.sampled_from(SHAPES))
        self.values.append(self.builder.full(shape, number, elem))

    def _unary(self, _depth: int) -> None:
        kind = self.draw(st.sampled_from(sorted(UNARY)))
        value = self.pick(lambda given: accepts(UNARY[kind][0], given.dtype))
        if value is not None:
            self.values.append(self.builder.unary(kind, value))  # type: ignore[arg-type]

    def _binary(self, _depth: int) -> None:
        kind = self.draw(st.sampled_from(sorted(BINARY)))
        left = self.pick(lambda given: accepts(BINARY[kind][0], given.dtype))
        if left is not None:
            right = self.pick(lambda given: given == left.type)
            assert right is not None
            self.values.append(self.builder.binary(kind, left, right))  # type: ignore[arg-type]

    def _compare(self, _depth: int) -> None:
        left = self.pick(lambda given: computes(given.dtype))
        if left is not None:
            right = self.pick(lambda given: given == left.type)
            assert right is not None
            self.values.append(left < right)

    def _select(self, _depth: int) -> None:
        condition = self.pick(lambda given: given.elem is dtype("bool"))
        if condition is not None:
            left = self.pick(lambda given: given.shape == condition.shape)
            assert left is not None
            self.values.append(self.builder.select(condition, left, left))

    def _fma(self, _depth: int) -> None:
        value = self.pick(lambda given: accepts("float", given.dtype))
        if value is not None:
            self.values.append(self.builder.fma(value, value, value))

    def _cast(self, _depth: int) -> None:
        value = self.pick(lambda _given: True)
        assert value is not None
        to = self.draw(st.sampled_from(NAMES))
        saturate = self.draw(st.sampled_from([None, True, False]))
        self.values.append(self.builder.cast(value, to, saturate=saturate))

    def _shape(self, _depth: int) -> None:
        value = self.pick(lambda given: len(given.shape) == 2)
        if value is not None:
            rows, columns = value.shape
            b = self.builder
            made = [
                b.transpose(value, (1, 0)),
                b.reshape(value, (rows * columns,)),
                b.extract_slice(value, (rows - 1, 0), (1, columns)),
                b.concat([value, value], self.draw(st.integers(0, 1))),
            ]
            self.values.append(self.draw(st.sampled_from(made)))

    def _reduce(self, _depth: int) -> None:
        value = self.pick(lambda given: bool(given.shape) and computes(given.dtype))
        if value is not None:
            axis = self.draw(st.integers(0, len(value.shape) - 1))
            kind = self.draw(st.sampled_from(["sum", "prod", "max", "min"]))
            self.values.append(self.builder.reduce(kind, value, axis))  # type: ignore[arg-type]

    def _for(self, depth: int) -> None:
        start = self.pick(lambda given: str(given) == "i64")
        assert start is not None
        upper = self.draw(st.sampled_from([0, 1, 3]))
        unroll = self.draw(st.sampled_from([1, 4]))
        with self.builder.for_(0, upper, carried=[start], unroll=unroll) as loop:
            self.values += [loop.index, *loop.carried]
            found = self.inside(depth + 1)
            loop.yield_(0 if found is None else found)
            del self.values[-2:]
        self.values += loop.results

    def _if(self, depth: int) -> None:
        condition = self.pick(lambda given: str(given) == "bool")
        if condition is None:
            return
        with self.builder.if_(condition) as branch:
            for part in (branch.then, branch.otherwise):
                with part():
                    found = self.inside(depth + 1)
                    branch.yield_(self.count if found is None else found)
        self.values += branch.results

    def _while(self, depth: int) -> None:
        with self.builder.while_([self.builder.constant(0), self.count]) as loop:
            with loop.condition() as (step, _):
                loop.test(step < 2)
            with loop.body() as (step, other):
                self.values.append(other)
                found = self.inside(depth + 1)
                loop.yield_(step + 1, 0 if found is None else found)
                del self.values[-1:]
        self.values += loop.results


@st.composite
def functions(draw: st.DrawFn) -> Function:
    """A random function over one buffer of each type and a count."""
    growing = _Growing(draw)
    for _ in range(draw(st.integers(1, 12))):
        growing.step(depth=0)
    return growing.builder.finish()
