"""One row of keys in order, digit by digit: the least digit first, so that equal keys stay put.

Knuth, The Art of Computer Programming 3, section 5.2.5. A digit that all keys share costs nothing
but its count.
"""

from __future__ import annotations

from collections.abc import Callable

from luban.core.dims import DimLike
from luban.core.dtypes import DTYPES, DType
from luban.lower.scope import Scope
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["DigitSort"]

_DIGIT_BITS = 8
_VALUES = 1 << _DIGIT_BITS
_ROOM = 1024  # elements to gather at least before they are sorted
_TILES = 4  # vectors of keys to look at together

KeysAt = Callable[[Expr, int, Expr], Expr]


class DigitSort:
    """Keys and places of a row in two halves of a workspace, with counts in scratch memory.

    Made at the top of a function; `run` writes the code for one row.

    picks   True if only the first few are wanted
    """

    def __init__(
        self,
        b: FunctionBuilder,
        scope: Scope,
        key: DType,
        length: DimLike,
        width: int,
        *,
        picks: bool,
    ) -> None:
        self.b, self.key, self.width, self.picks = b, key, width, picks
        self.length = scope.size(length)
        self.num_digits = key.bits // _DIGIT_BITS
        self.counts = b.scratch("i64", self.num_digits * _VALUES)
        if picks:
            self.tile = b.scratch(key, width * _TILES)
            self.early = b.scratch("u8", width * _TILES)
        self.keys = scope.workspace("keys", key, length * 2)
        self.places = scope.workspace("places", DTYPES["u32"], length * 2)
        self.mine = b.thread_id() * (self.length * 2)

    def run(self, keys_at: KeysAt, wanted: Expr) -> Expr:
        """Where the sorted row starts in this thread's places.

        keys_at   the keys from a place on, so many of them, under a mask
        """
        if not self.picks:
            self._fill(keys_at, self.length)
            return self._sort(self.length)
        self._pick(keys_at, wanted)
        return self.b.constant(0)

    def _fill(self, keys_at: KeysAt, count: Expr) -> None:
        """The first keys of the row with their places."""
        b, width = self.b, self.width
        with b.for_(0, count, width) as loop:
            mask = b.arange(width) < count - loop.index
            where = self.mine + loop.index
            b.store(self.keys, where, keys_at(loop.index, width, mask), mask=mask)
            b.store(self.places, where, b.cast(b.arange(width) + loop.index, "u32"), mask=mask)
            loop.yield_()

    def _sort(self, count: Expr) -> Expr:
        """Sort what lies in the first half; where it stands then: at 0, or in the second half."""
        half = self.b.constant(0)
        self._count_digits(count)
        for digit in range(self.num_digits):
            half = self._pass(digit, half, count)
        return half

    def _pick(self, keys_at: KeysAt, wanted: Expr) -> None:
        """The first `wanted` of the row in order, at the start of the first half.

        Sort a first part, keep the best, and go on with what comes before the last of them: few
        elements do. When there are as many again, sort once more.
        """
        b = self.b
        room = b.min(wanted + b.max(wanted, _ROOM), self.length)
        self._fill(keys_at, room)
        with b.while_([room, room, b.constant(True, "bool")]) as rounds:
            with rounds.condition() as (_, _, fresh):
                rounds.test(fresh)
            with rounds.body() as (count, place, _):
                half = self._sort(count)
                kept = b.min(count, wanted)
                self._move(half, kept)
                limit = b.load(self.keys, self.mine + (kept - 1), mask=kept > 0)
                count, place = self._scan(keys_at, kept, place, room, limit)
                rounds.yield_(count, place, count > kept)

    def _move(self, half: Expr, count: Expr) -> None:
        """Bring the front of the second half to the first, if it is there."""
        b, width = self.b, self.width
        with b.for_(0, b.select(half > 0, count, 0), width) as loop:
            mask = b.arange(width) < count - loop.index
            source, target = self.mine + half + loop.index, self.mine + loop.index
            for array in (self.keys, self.places):
                b.store(array, target, b.load(array, source, (width,), mask=mask), mask=mask)
            loop.yield_()

    def _scan(
        self, keys_at: KeysAt, count: Expr, place: Expr, room: Expr, limit: Expr
    ) -> tuple[Expr, Expr]:
        """Append what comes before `limit` until there is no room; (count, place) after that."""
        b, width = self.b, self.width * _TILES
        with b.while_([count, place]) as scan:
            with scan.condition() as (count, place):
                scan.test((place < self.length) & (count <= room - width))
            with scan.body() as (count, place):
                mask = b.arange(width) < self.length - place
                keys = keys_at(place, width, mask)
                early = b.compare("lt", keys, limit) & mask
                with b.if_(b.reduce("or", early, 0)) as branch:
                    with branch.then():
                        branch.yield_(self._append(keys, early, count, place))
                    with branch.otherwise():
                        branch.yield_(count)
                scan.yield_(branch.results[0], place + width)
        return scan.results[0], scan.results[1]

    def _append(self, keys: Expr, early: Expr, count: Expr, place: Expr) -> Expr:
        b = self.b
        (width,) = keys.shape
        b.store(self.tile, 0, keys)
        b.store(self.early, 0, b.cast(early, "u8"))
        with b.for_(0, width, 1, carried=[count], unroll=4) as loop:
            target = self.mine + loop.carried[0]
            b.store(self.keys, target, b.load(self.tile, loop.index))
            b.store(self.places, target, b.cast(place + loop.index, "u32"))
            loop.yield_(loop.carried[0] + b.cast(b.load(self.early, loop.index), "i64"))
        return loop.results[0]

    def places_at(self, where: Expr, mask: Expr) -> Expr:
        """A tile of places, as i64."""
        return self.b.cast(
            self.b.load(self.places, self.mine + where, (self.width,), mask=mask), "i64"
        )

    def _digit(self, key: Expr, digit: int) -> Expr:
        """A digit of a key, as a place in the counts."""
        shift, bits = digit * _DIGIT_BITS, _DIGIT_BITS
        moved = self.b.binary("shr_logical", key, self.b.full((), shift, self.key))
        if shift + bits < self.key.bits:
            moved = self.b.binary("and", moved, self.b.full((), (1 << bits) - 1, self.key))
        return self.b.cast(moved, "i64") + digit * _VALUES

    def _increment(self, place: Expr) -> Expr:
        before = self.b.load(self.counts, place)
        self.b.store(self.counts, place, before + 1)
        return before

    def _count_digits(self, count: Expr) -> None:
        b = self.b
        with b.for_(0, self.num_digits * _VALUES, self.width) as loop:
            b.store(self.counts, loop.index, b.full((self.width,), 0, "i64"))
            loop.yield_()
        with b.for_(0, count, 1) as loop:
            key = b.load(self.keys, self.mine + loop.index)
            for digit in range(self.num_digits):
                self._increment(self._digit(key, digit))
            loop.yield_()

    def _pass(self, digit: int, half: Expr, count: Expr) -> Expr:
        """Move everything to the other half by one digit; the half where it stands then."""
        b, base = self.b, digit * _VALUES
        key = b.load(self.keys, self.mine + half, mask=count > 0)
        alike = b.load(self.counts, self._digit(key, digit))
        with b.if_(alike < count) as branch:
            with branch.then():
                with b.for_(base, base + _VALUES, 1, carried=[self.length - half]) as loop:
                    number = b.load(self.counts, loop.index)
                    b.store(self.counts, loop.index, loop.carried[0])
                    loop.yield_(loop.carried[0] + number)
                with b.for_(0, count, 1) as loop:
                    source = self.mine + half + loop.index
                    key = b.load(self.keys, source)
                    place = b.load(self.places, source)
                    target = self._increment(self._digit(key, digit))
                    b.store(self.keys, self.mine + target, key)
                    b.store(self.places, self.mine + target, place)
                    loop.yield_()
                branch.yield_(self.length - half)
            with branch.otherwise():
                branch.yield_(half)
        return branch.results[0]
