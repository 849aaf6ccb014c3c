"""Clusters of operations with one iteration space, and the loop nest that runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from luban.core.dtypes import DType
from luban.lower.blocks.limits import dead_value, live_lanes
from luban.lower.blocks.masks import all_true
from luban.lower.blocks.places import Frame, Position, Slot
from luban.lower.blocks.strips import at, hoist, hoist_row, lanes_of, run_lanes, write, write_slot
from luban.lower.trace import Declined
from luban.tile.block_ops import FOLD_PARTIALS, Fold, Scan
from luban.tile.expr import Expr
from luban.tile.function import Operation, Value
from luban.tile.memory_ops import Gather
from luban.tile.ops import BinaryKind

__all__ = ["FoldRoot", "KeepRoot", "Root", "StoreRoot", "combine", "emit_cluster", "identity"]


@dataclass(frozen=True, slots=True, eq=False)
class StoreRoot:
    """A block that goes to the caller's memory."""

    operation: Operation

    @property
    def shape(self) -> tuple[int, ...]:
        """The iteration space."""
        return self.operation.operands[1].type.shape

    @property
    def inputs(self) -> Sequence[Value]:
        """Offsets, value and mask."""
        return self.operation.operands[1:]

    @property
    def mask(self) -> Value | None:
        """The mask, if there is one."""
        return self.operation.operands[3] if len(self.operation.operands) > 3 else None


@dataclass(frozen=True, slots=True, eq=False)
class KeepRoot:
    """A value that goes to scratch memory."""

    value: Value
    slot: Slot

    @property
    def shape(self) -> tuple[int, ...]:
        """The iteration space."""
        return self.value.type.shape

    @property
    def inputs(self) -> Sequence[Value]:
        """The value itself."""
        return (self.value,)


@dataclass(frozen=True, slots=True, eq=False)
class FoldRoot:
    """A fold; its results go to slots, or are scalars where there are none."""

    operation: Operation
    slots: Sequence[Slot]

    @property
    def shape(self) -> tuple[int, ...]:
        """The iteration space."""
        return self.operation.operands[0].type.shape

    @property
    def inputs(self) -> Sequence[Value]:
        """What is folded."""
        return self.operation.operands

    @property
    def op(self) -> Fold:
        """The op."""
        assert isinstance(self.operation.op, Fold)
        return self.operation.op


Root = StoreRoot | KeepRoot | FoldRoot

_STEP: dict[str, BinaryKind] = {
    "sum": "add", "prod": "mul", "max": "max", "min": "min", "maxnum": "maxnum",
    "minnum": "minnum", "and": "and", "or": "or", "xor": "xor",
}  # fmt: skip


def combine(
    f: Frame, operation: Operation, so_far: Sequence[Expr], new: Sequence[Expr]
) -> list[Expr]:
    """One step of a fold or scan, on lanes."""
    op = operation.op
    assert isinstance(op, (Fold, Scan))
    if operation.regions:
        return run_lanes(f, operation.regions[0], [*so_far, *new])
    return [f.b.binary(_STEP[op.kind], so_far[0], new[0])]


def identity(kind: str, elem: DType) -> bool | int | float | None:
    """What a fold may start from without a change of its result; None for a region."""
    if elem.kind == "bool":
        return kind == "and"
    match kind:
        case "sum":
            return -0.0 if elem.is_float else 0
        case "prod":
            return 1.0 if elem.is_float else 1
        case "max":
            return -float("inf") if elem.is_float else elem.lowest
        case "min":
            return float("inf") if elem.is_float else elem.highest
        case "maxnum" | "minnum":
            return float("nan")
        case "and":
            return -1 if elem.kind == "int" else elem.highest
        case "or" | "xor":
            return 0
    return None


def emit_cluster(f: Frame, roots: Sequence[Root]) -> dict[Value, Expr]:
    """The loop nest of a cluster; gives the folds' results that are scalars."""
    masks = _masks(f, roots)
    full: Expr | None = None
    sure = set()
    with f.scope():
        for mask in masks:
            if mask in f.true_masks:
                continue
            found = all_true(f, mask)
            if found is not None:
                sure.add(mask)
                full = found if full is None else full & found
    names = [v for root in roots if isinstance(root, FoldRoot) and not root.slots
             for v in root.operation.results]  # fmt: skip

    def nest(without: set[Value]) -> list[Expr]:
        outside = f.true_masks
        f.true_masks = outside | without
        with f.scope():
            results = _Nest(f, roots).run()
        f.true_masks = outside
        return [results[name] for name in names]

    if full is None:
        return dict(zip(names, nest(set()), strict=True))
    with f.b.if_(full) as branch:
        with branch.then():
            branch.yield_(*nest(sure))
        with branch.otherwise():
            branch.yield_(*nest(set()))
    return dict(zip(names, branch.results, strict=True))


def _masks(f: Frame, roots: Sequence[Root]) -> dict[Value, None]:
    """The masks of every access in a cluster."""
    found: dict[Value, None] = {}
    for root in roots:
        for value in f.reach(root.inputs):
            maker = f.plan.makers[value]
            if isinstance(maker.op, Gather) and len(maker.operands) > 2:
                found[maker.operands[2]] = None
        if isinstance(root, StoreRoot) and root.mask is not None:
            found[root.mask] = None
    return found


Places = list[Position | None]
Turn = Callable[[Expr], list[list[Expr]]]


# Taking in the same number once more changes nothing.
_IDEMPOTENT = frozenset(("max", "min", "maxnum", "minnum", "and", "or"))


@dataclass(frozen=True, slots=True)
class _Turns:
    """How many strips a row takes, and what kept blocks are in those that are left out."""

    count: Expr
    fills: Sequence[tuple[Slot, Expr]]


@dataclass
class _Nest:
    """One loop nest: rows, strips of lanes, and inside them the axis of folds that are in order."""

    f: Frame
    roots: Sequence[Root]
    results: dict[Value, Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shape = self.roots[0].shape
        self.folds = [root for root in self.roots if isinstance(root, FoldRoot)]
        self.fold_axis = self.folds[0].op.axis if self.folds else None
        self.lane_axis = self._choose_lane_axis()
        self.width = self._choose_width()

    def _choose_lane_axis(self) -> int | None:
        last = len(self.shape) - 1
        if last < 0 or self.folds:
            return last if last >= 0 else None
        wide = [axis for axis, extent in enumerate(self.shape) if extent > 1]
        if not wide:
            return None
        largest = max(wide, key=lambda axis: self.shape[axis])
        few = self.f.registers.lanes(4) // 2
        crowded = self.shape[wide[-1]] < few and self.shape[largest] > 2 * self.shape[wide[-1]]
        return largest if crowded else wide[-1]

    def _choose_width(self) -> int:
        if self.lane_axis is None:
            return 1
        extent = self.shape[self.lane_axis]
        if self.fold_axis is not None and self.fold_axis == self.lane_axis:
            if extent > FOLD_PARTIALS and extent % FOLD_PARTIALS:
                raise Declined(f"a fold of {extent} elements, which is no multiple of 64")
            return min(extent, FOLD_PARTIALS)
        values = {v for root in self.roots for v in self.f.reach(root.inputs)}
        steps = sum(bool(self.f.plan.cost(value)) for value in values)
        vectors = 4 if steps <= 12 else 2 if steps <= 32 else 1
        return min(extent, vectors * self.f.registers.lanes(4))

    def run(self) -> dict[Value, Expr]:
        """Write the nest."""
        zero = Position(self.f.b.constant(0))
        places: Places = [zero if extent == 1 else None for extent in self.shape]
        inner = (self.lane_axis, self.fold_axis)
        outer = [a for a, extent in enumerate(self.shape) if extent > 1 and a not in inner]
        self._rows(outer, places)
        return self.results

    def _rows(self, outer: Sequence[int], places: Places) -> None:
        if not outer:
            self._strips(places)
            return
        axis, *rest = outer
        with self.f.b.for_(0, self.shape[axis]) as loop, self.f.scope():
            self._rows(rest, [*places[:axis], Position(loop.index), *places[axis + 1 :]])

    def _hoist(self, places: Places) -> None:
        """Compute what the strips share; only the lane axis is open."""
        if places.count(None) != 1:
            return
        for root in self.roots:
            for value in root.inputs:
                hoist(self.f, value, places, self.width)
            if isinstance(root, StoreRoot):
                hoist_row(self.f, root.inputs[0], places, self.width)

    def _strips(self, places: Places) -> None:
        self._hoist(places)
        axis, width = self.lane_axis, self.width
        if axis is None:
            self._strip(places)
            return
        extent = self.shape[axis]

        def placed(index: Expr, lanes: int) -> Places:
            return [*places[:axis], Position(index, lanes), *places[axis + 1 :]]

        turns = self._turns(placed(self.f.b.constant(0), width), extent // width)
        if self.fold_axis == axis:
            totals = self._run_folds(
                turns.count, width, lambda turn: self._body(placed(turn * width, width))
            )
            self._fill(turns, extent // width, placed)
            self._finish(
                places, [self._halve(r, t) for r, t in zip(self.folds, totals, strict=True)]
            )
            return
        with self.f.b.for_(0, turns.count * width, width) as loop, self.f.scope():
            self._strip(placed(loop.index, width))
        self._fill(turns, extent // width, placed)
        whole = extent // width * width
        if whole < extent:
            with self.f.scope():
                self._strip(placed(self.f.b.constant(whole), extent - whole))

    def _turns(self, strip: Places, count: int) -> _Turns:
        """How many strips of a row have to be done; the others are masked off."""
        everything = _Turns(self.f.b.constant(count), ())
        other_axis = self.fold_axis is not None and self.fold_axis != self.lane_axis
        if count < 2 or None in strip or other_axis:
            return everything
        f, b = self.f, self.f.b
        coordinates = tuple(p for p in strip if p is not None)
        limits: list[Expr] = []
        same: list[Expr] = []  # conditions for one masked-off strip to be as good as many
        fills = []
        for root in self.roots:
            if isinstance(root, StoreRoot):
                live = None if root.mask is None else live_lanes(f, root.mask, coordinates)
                if live is None:
                    return everything
                limits.append(live)
                continue
            value = root.inputs[0]
            dead = dead_value(f, value, coordinates, limits)
            if dead is None:
                return everything
            if isinstance(root, KeepRoot):
                fills.append((root.slot, dead))
            elif root.op.kind == "sum":
                same.append(dead.eq(0.0 if value.type.dtype.is_float else 0))
            elif root.op.kind not in _IDEMPOTENT:
                return everything
        if not limits:
            return everything
        most = limits[0]
        for limit in limits[1:]:
            most = b.max(most, limit)
        needed = b.min((most + (self.width - 1)) // self.width + int(bool(self.folds)), count)
        for condition in same:
            needed = b.select(condition, needed, b.constant(count))
        return _Turns(needed, tuple(fills))

    def _fill(self, turns: _Turns, count: int, placed: Callable[[Expr, int], Places]) -> None:
        """Give kept blocks their masked-off elements."""
        if not turns.fills:
            return
        f, width = self.f, self.width
        with f.b.for_(turns.count, count) as loop, f.scope():
            places = placed(loop.index * width, width)
            coordinates = tuple(p for p in places if p is not None)
            for slot, value in turns.fills:
                write_slot(f, slot, coordinates, f.b.broadcast(value, (width,)))

    def _strip(self, places: Places) -> None:
        axis = self.fold_axis
        if axis is None:
            self._body(places)
            return
        lanes = max(p.width for p in places if p is not None)

        def turn(index: Expr) -> list[list[Expr]]:
            return self._body([*places[:axis], Position(index), *places[axis + 1 :]], lanes)

        self._finish(places, self._run_folds(self.shape[axis], lanes, turn))

    def _body(self, places: Places, lanes: int | None = None) -> list[list[Expr]]:
        """One strip: every value first, then what is written. Gives what the folds take in."""
        f = self.f
        coordinates = tuple(p for p in places if p is not None)
        lanes = lanes or lanes_of(coordinates)
        shape = (lanes,) if lanes > 1 else ()
        effects: list[tuple[KeepRoot | StoreRoot, Expr, Expr | None]] = []
        taken = []
        for root in self.roots:
            match root:
                case FoldRoot():
                    new = [f.b.broadcast(at(f, v, coordinates), shape) for v in root.inputs]
                    taken.append(new)
                case KeepRoot(value=value):
                    effects.append((root, at(f, value, coordinates), None))
                case StoreRoot():
                    stored = at(f, root.inputs[1], coordinates)
                    mask = root.mask
                    dropped = mask is None or mask in f.true_masks
                    chosen = None if dropped or mask is None else at(f, mask, coordinates)
                    effects.append((root, stored, chosen))
        for target, result, chosen in effects:
            if isinstance(target, KeepRoot):
                write_slot(f, target.slot, coordinates, result)
            else:
                pointer = f.places[target.operation.operands[0]]
                assert isinstance(pointer, Expr)
                write(f, pointer, target.inputs[0], result, chosen, coordinates)
        return taken

    # Folds

    def _run_folds(self, turns: int | Expr, lanes: int, body: Turn) -> list[list[Expr]]:
        """The totals of every fold over `turns` strips or elements."""
        f = self.f
        starts = [identity(root.op.kind, root.inputs[0].type.dtype) for root in self.folds]
        once = (turns.known if isinstance(turns, Expr) else turns) == 1
        if once or None in starts:
            with f.scope():
                totals = body(f.b.constant(0))
            first = 1
            if once:
                return totals
        else:
            shape = (lanes,) if lanes > 1 else ()
            totals = [
                [f.b.full(shape, start, root.inputs[0].type.dtype)]
                for root, start in zip(self.folds, starts, strict=True)
                if start is not None
            ]
            first = 0
        carried = [total for group in totals for total in group]
        with f.b.for_(first, turns, carried=carried) as loop, f.scope():
            taken = body(loop.index)
            so_far = iter(loop.carried)
            after: list[Expr] = []
            for root, new in zip(self.folds, taken, strict=True):
                after += combine(f, root.operation, [next(so_far) for _ in new], new)
            loop.yield_(*after)
        ends = iter(loop.results)
        return [[next(ends) for _ in group] for group in totals]

    def _halve(self, root: FoldRoot, totals: Sequence[Expr]) -> list[Expr]:
        """The partial results of a strip folded into one."""
        f = self.f
        parts = list(totals)
        if not parts[0].shape:
            return parts
        if root.op.kind in ("sum", "prod", "max", "min", "and", "or", "xor"):
            return [f.b.reduce(root.op.kind, parts[0], 0)]
        count = parts[0].shape[0]
        if count & (count - 1):
            raise Declined(f"a fold of {count} elements, which is no power of two")
        while count > 1:
            count //= 2
            low, high = (
                [f.b.extract_slice(p, (at_,), (count,)) for p in parts] for at_ in (0, count)
            )
            parts = combine(f, root.operation, low, high)
        return [f.b.reshape(part, ()) for part in parts]

    def _finish(self, places: Places, totals: Sequence[Sequence[Expr]]) -> None:
        axis = self.fold_axis
        left = tuple(p for a, p in enumerate(places) if a != axis and p is not None)
        for root, group in zip(self.folds, totals, strict=True):
            if root.slots:
                for slot, total in zip(root.slots, group, strict=True):
                    write_slot(self.f, slot, left, total)
            else:
                self.results.update(zip(root.operation.results, group, strict=True))
