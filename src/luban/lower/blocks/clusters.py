"""Collecting operations to clusters, and keeping blocks in scratch memory when that is needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from luban.lower.blocks.nests import FoldRoot, KeepRoot, Root, emit_cluster
from luban.lower.blocks.places import Frame, Pending, Slot
from luban.tile.function import Operation, Value
from luban.tile.memory_ops import Gather
from luban.tile.ops import Concat

__all__ = ["Clusters"]


class Clusters:
    """The pending cluster, and what has to be done before something is read or written."""

    def __init__(self, f: Frame) -> None:
        self.f = f
        self.plan = f.plan
        self.pending: list[Root] = []
        self.writers: list[tuple[Value, int]] = []  # (pointer, number) of what is pending
        self.gathers: list[Value] = []  # deferred reads that somebody may still ask for
        self.now = 0
        self.targets: dict[Value, Slot] = {}  # where a value is to lie, if that is decided

    def flush(self) -> None:
        """Write the nest of the pending cluster."""
        roots, self.pending, self.writers = self.pending, [], []
        if not roots:
            return
        self.f.places.update(emit_cluster(self.f, roots))
        for root in roots:
            if isinstance(root, KeepRoot):
                self.f.places[root.value] = root.slot
            elif isinstance(root, FoldRoot) and root.slots:
                for value, slot in zip(root.operation.results, root.slots, strict=True):
                    self.f.places[value] = slot

    def add(self, root: Root) -> None:
        """Make a root part of the pending cluster, after what it needs."""
        self.prepare(root.inputs)
        if self.pending and self._does_not_fit(root):
            self.flush()
        self.pending.append(root)

    def _does_not_fit(self, root: Root) -> bool:
        if root.shape != self.pending[0].shape:
            return True
        axes = {r.op.axis for r in (*self.pending, root) if isinstance(r, FoldRoot)}
        if len(axes) > 1:
            return True
        return self._reads_written(root.inputs)

    def _reads_written(self, values: Iterable[Value]) -> bool:
        """Whether a deferred read among these comes after a pending write to its memory."""
        for value in self.f.reach(values):
            maker = self.plan.makers[value]
            if isinstance(maker.op, Gather):
                number = self.plan.number[maker]
                if any(
                    number > written and self.f.may_alias(pointer, maker.operands[0])
                    for pointer, written in self.writers
                ):
                    return True
        return False

    def prepare(self, values: Iterable[Value]) -> None:
        """Keep what these values need kept; flush when one is a result of the pending cluster."""
        values = list(values)
        for value in self.f.reach(values):
            computed = isinstance(self.f.places.get(value), Operation)
            if value in self.plan.keep and computed and not self._is_being_kept(value):
                self.keep(value)
                if value in self.plan.forced:
                    self.flush()
        if self._waits(values):
            self.flush()

    def _is_being_kept(self, value: Value) -> bool:
        return any(isinstance(root, KeepRoot) and root.value is value for root in self.pending)

    def _waits(self, values: Iterable[Value]) -> bool:
        values = list(values)
        asked = set(values)
        for value in self.f.reach(values):
            asked.update(self.plan.makers[value].operands)
        return any(isinstance(self.f.places.get(value), Pending) for value in asked)

    def keep(self, value: Value) -> Slot:
        """Have a value computed to scratch memory, with the pending cluster if it fits."""
        maker = self.plan.makers.get(value)
        slot = self.targets.pop(value, None) or self.f.slot(value.type.dtype, value.type.shape)
        if maker is not None and isinstance(maker.op, Concat):
            self._concatenate(maker, slot)
        else:
            self.copy(value, slot)
        return slot

    def copy(self, value: Value, slot: Slot) -> None:
        """Have a value's elements put into a slot, which will be where it lies."""
        if self._is_being_kept(value):
            self.flush()
        root = KeepRoot(value, slot)
        if self.pending and (self._does_not_fit(root) or self._waits((value,))):
            self.flush()
        self.pending.append(root)

    def in_memory(self, value: Value) -> Slot:
        """The slot of a value that has to lie in memory now."""
        self.prepare((value,))
        self.flush()
        place = self.f.places.get(value)
        if isinstance(place, Slot):
            return place
        slot = self.keep(value)
        self.flush()
        return slot

    def _concatenate(self, operation: Operation, slot: Slot) -> None:
        op = operation.op
        assert isinstance(op, Concat)
        self.prepare(operation.operands)
        self.flush()
        start = 0
        for part in operation.operands:
            before = self.f.places.get(part)
            self.copy(part, replace(slot, offset=slot.offset + start * slot.strides[op.axis]))
            self.flush()
            if before is not None:
                self.f.places[part] = before
            start += part.type.shape[op.axis]
        self.f.places[operation.result] = slot

    def before_write(self, pointer: Value, root_inputs: Sequence[Value], offsets: Value) -> None:
        """Keep reads of this memory that somebody asks for after the write."""
        reached = set(self.f.reach(root_inputs))
        for value in self.gathers:
            maker = self.plan.makers[value]
            if not isinstance(self.f.places.get(value), Operation):
                continue
            if not self.f.may_alias(pointer, maker.operands[0]):
                continue
            last = self.plan.last_use.get(value, -1)
            in_place = value in reached and last <= self.now and maker.operands[1] is offsets
            if in_place or last < self.now:
                continue
            self.in_memory(value)
        if any(self.f.may_alias(pointer, other) for other, _ in self.writers):
            self.flush()

    def put(self, value: Value, slot: Slot) -> None:
        """Copy a value to a slot; where it lies stays as it is."""
        before = self.f.places.get(value)
        if before == slot:
            return
        self.copy(value, slot)
        self.flush()
        if before is not None:
            self.f.places[value] = before
