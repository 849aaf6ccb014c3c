"""Loops and branches while they are being built: what `FunctionBuilder` hands out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from luban.core.errors import DTypeError, ShapeError
from luban.tile.expr import Block, Emitter, Expr, Operand
from luban.tile.function import Value
from luban.tile.types import BOOL, TileType

__all__ = ["Branch", "Loop", "WhileLoop", "coerce_yields"]


class Loop:
    """A counted loop being built: `index`, `carried` and `yield_` inside, `results` after it."""

    def __init__(self, emitter: Emitter, index: Expr, carried: Sequence[Expr]) -> None:
        self.emitter = emitter
        self.index = index
        self.carried = tuple(carried)
        self.results: tuple[Expr, ...] = ()
        self.yields: tuple[Value, ...] | None = None

    def yield_(self, *values: Operand) -> None:
        """The carried values for the next iteration: numbers and smaller shapes are taken."""
        types = [item.type for item in self.carried]
        self.yields = coerce_yields(self.emitter, "for", values, types, self.yields)


class WhileLoop:
    """A conditional loop being built; `results` after it."""

    def __init__(self, emitter: Emitter, types: Sequence[TileType]) -> None:
        self.emitter = emitter
        self.types = types
        self.results: tuple[Expr, ...] = ()
        self.test_yields: tuple[Value, ...] | None = None
        self.body_yields: tuple[Value, ...] | None = None
        self.parts: dict[str, tuple[Block, tuple[Value, ...]]] = {}

    @contextmanager
    def condition(self) -> Iterator[tuple[Expr, ...]]:
        """The part that decides; gives the carried values, ends with `test`."""
        yield from self._part("condition")

    @contextmanager
    def body(self) -> Iterator[tuple[Expr, ...]]:
        """The part that repeats; gives the carried values, ends with `yield_`."""
        yield from self._part("body")

    def _part(self, name: str) -> Iterator[tuple[Expr, ...]]:
        params = tuple(Value(given) for given in self.types)
        block = self.emitter.open_block()
        yield tuple(Expr(self.emitter, param) for param in params)
        self.emitter.close_block()
        self.parts[name] = (block, params)

    def test(self, go_on: Operand) -> None:
        """The condition: another iteration while it is true."""
        self.test_yields = coerce_yields(self.emitter, "while", [go_on], [BOOL], self.test_yields)

    def yield_(self, *values: Operand) -> None:
        """The carried values for the next iteration."""
        self.body_yields = coerce_yields(
            self.emitter, "while", values, self.types, self.body_yields
        )


class Branch:
    """Two alternatives being built, `then` and `otherwise`; `results` after both."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.results: tuple[Expr, ...] = ()
        self.parts: dict[str, tuple[Block, tuple[Value, ...]]] = {}
        self._yields: dict[str, tuple[Value, ...]] = {}
        self._current = ""

    @contextmanager
    def then(self) -> Iterator[None]:
        """What happens when the condition is true."""
        yield from self._part("then")

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """What happens when it is false; may be left out when nothing is yielded."""
        yield from self._part("otherwise")

    def _part(self, name: str) -> Iterator[None]:
        self._current = name
        block = self.emitter.open_block()
        yield
        self.emitter.close_block()
        self.parts[name] = (block, self._yields.get(name, ()))

    def yield_(self, *values: Expr) -> None:
        """The results of this alternative."""
        self._yields[self._current] = coerce_yields(
            self.emitter,
            "if",
            values,
            [value.type for value in values],
            self._yields.get(self._current),
        )


def coerce_yields(
    emitter: Emitter,
    what: str,
    values: Sequence[Operand],
    types: Sequence[TileType],
    before: tuple[Value, ...] | None,
) -> tuple[Value, ...]:
    """What a body yields, as values of these types. Raises ShapeError when it yielded `before`."""
    if before is not None:
        raise ShapeError(f"tile {what}: yields twice", hint="one yield_ at the end of a body")
    if len(values) != len(types):
        raise ShapeError(f"tile {what}: yields {len(values)} values, expected {len(types)}")
    result = tuple(emitter.coerce(value, to) for value, to in zip(values, types, strict=True))
    for value, to in zip(result, types, strict=True):
        if value.type != to:
            raise DTypeError(f"tile {what}: yields {value.type}, expected {to}", hint="cast first")
    return result
