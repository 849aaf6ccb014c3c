"""Memory as the evaluator sees it: flat arrays, and in checked mode a record of every access.

Bounds are always checked. Checked mode also finds uninitialised reads, races between programs and
broken alignment claims. The record (`Shadow`) is kept per byte range of the caller's memory, so two
parameters that share memory share it.

    CheckError
      OutOfBounds          an element outside the array or the declared extent
      UninitialisedRead    scratch or a "write" parameter read before it was written
      Race                 two programs on one element, at least one writes
      Misaligned           a row that does not start where `align` says
      IndexOverflow        index arithmetic beyond i64
      AssertionFailed      an `assert` of the program
      BrokenPromise        an argument that is not what its parameter declares
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luban.core.errors import CheckError

__all__ = [
    "AssertionFailed",
    "BrokenPromise",
    "Buffer",
    "IndexOverflow",
    "Misaligned",
    "OutOfBounds",
    "Race",
    "Shadow",
    "UninitialisedRead",
    "shadows",
]

Array = NDArray[Any]

_NOBODY = -1
_SEVERAL = -2
_ATOMIC = -3


class OutOfBounds(CheckError):
    """An element outside the array or outside the declared extent."""


class UninitialisedRead(CheckError):
    """Memory read before anything was written to it."""


class Race(CheckError):
    """Two programs touch one element and at least one of them writes."""


class Misaligned(CheckError):
    """A row does not start where the `align` of its access claims."""


class IndexOverflow(CheckError):
    """Index arithmetic left the range of i64."""


class AssertionFailed(CheckError):
    """An `assert` of the program does not hold."""


class BrokenPromise(CheckError):
    """An argument is not what its parameter declares."""


class Shadow:
    """Who touched each unit of a stretch of memory, and whether it holds anything."""

    def __init__(self, num_units: int, initialised: bool) -> None:
        self.writer = np.full(num_units, _NOBODY, np.int32)
        self.reader = np.full(num_units, _NOBODY, np.int32)
        self.initialised = np.full(num_units, initialised)

    def read(self, units: Array, owner: int) -> tuple[str, int] | None:
        """Note a read; gives what is wrong and at which place of `units`."""
        if not self.initialised[units].all():
            return "uninitialised", int(np.argmin(self.initialised[units]))
        found = _first_foreign(self.writer[units], owner)
        if found is None:
            seen = self.reader[units]
            fresh = (seen == _NOBODY) | (seen == owner)
            self.reader[units] = np.where(fresh, owner, _SEVERAL)
        return found

    def write(self, units: Array, owner: int) -> tuple[str, int] | None:
        """Note a write; gives what is wrong and at which place of `units`."""
        found = _first_foreign(self.writer[units], owner)
        if found is None:
            found = _first_foreign(self.reader[units], owner, "read")
        self.writer[units] = owner
        self.initialised[units] = True
        return found

    def atomic(self, units: Array, owner: int) -> tuple[str, int] | None:
        """Note an atomic update: those of several programs do not race with each other."""
        if not self.initialised[units].all():
            return "uninitialised", int(np.argmin(self.initialised[units]))
        writer = self.writer[units]
        found = _first_foreign(np.where(writer == _ATOMIC, _NOBODY, writer), owner)
        if found is None:
            found = _first_foreign(self.reader[units], owner, "read")
        self.writer[units] = _ATOMIC
        return found


def _first_foreign(marks: Array, owner: int, verb: str = "wrote") -> tuple[str, int] | None:
    foreign = (marks != _NOBODY) & (marks != owner)
    if not foreign.any():
        return None
    place = int(np.argmax(foreign))
    who = {_SEVERAL: "other programs", _ATOMIC: "atomics"}.get(
        int(marks[place]), f"program {marks[place]}"
    )
    return f"{who} {verb} it", place


@dataclass(slots=True, eq=False)
class Buffer:
    """One array that a pointer parameter or a scratch area stands for."""

    name: str
    data: Array  # flat; a view of the caller's memory
    limit: int  # elements that may be touched
    alignment: int  # bytes that the address is promised to be a multiple of
    shadow: Shadow | None = None
    first_unit: int = 0
    units_per_element: int = 1
    per_thread: bool = False

    def check_bounds(self, index: Array) -> None:
        """Refuse elements outside. Raises OutOfBounds."""
        if index.size and (index.min() < 0 or index.max() >= self.limit):
            outside = index[(index < 0) | (index >= self.limit)]
            raise OutOfBounds(
                f"element {outside.flat[0]} of %{self.name}, expected 0 to {self.limit - 1}",
                hint="mask the access, or correct the index or the extent",
            )

    def check_alignment(self, rows: Array, align: int | None) -> None:
        """Refuse rows (first elements) that break the claim. Raises Misaligned."""
        if align is None:
            return
        misplaced = (rows * self.data.itemsize) % align != 0
        if align > self.alignment or misplaced.any():
            row = int(rows[misplaced][0]) if misplaced.any() else int(rows.flat[0])
            raise Misaligned(
                f"a row starts at element {row} of %{self.name}, not at a multiple of {align} bytes"
                f" (the address is a multiple of {self.alignment})",
                hint="lower align, pad the rows, or declare the alignment of the parameter",
            )

    def read(self, index: Array, owner: int) -> Array:
        """The elements at these places. Raises OutOfBounds, UninitialisedRead, Race."""
        self.check_bounds(index)
        if self.shadow is not None:
            self._judge(self.shadow.read(self._units(index), owner), index, owner, "reads")
        return self.data[index]

    def write(self, index: Array, values: Array, owner: int) -> None:
        """Set the elements at these places, in order. Raises OutOfBounds, Race."""
        self.check_bounds(index)
        if self.shadow is not None:
            self._judge(self.shadow.write(self._units(index), owner), index, owner, "writes")
        self.data[index] = values

    def begin_update(self, index: Array, owner: int) -> None:
        """Before an atomic update of these places. Raises OutOfBounds, UninitialisedRead, Race."""
        self.check_bounds(index)
        if self.shadow is not None:
            self._judge(self.shadow.atomic(self._units(index), owner), index, owner, "updates")

    def forget(self) -> None:
        """Per-thread memory holds nothing when a program starts."""
        if self.shadow is not None:
            size = self.data.size * self.units_per_element
            self.shadow.initialised[self.first_unit : self.first_unit + size] = False

    def _units(self, index: Array) -> Array:
        count = self.units_per_element
        start = self.first_unit + index.reshape(-1, 1) * count
        return np.asarray((start + np.arange(count)).reshape(-1))

    def _judge(self, found: tuple[str, int] | None, index: Array, owner: int, verb: str) -> None:
        if found is None:
            return
        trouble, place = found
        element = int(index.reshape(-1)[place // self.units_per_element])
        if trouble == "uninitialised":
            raise UninitialisedRead(
                f"element {element} of %{self.name} was never written",
                hint="write it first; declare access read_write if the caller fills it",
            )
        who = "thread" if self.per_thread else "program"
        raise Race(
            f"{who} {owner} {verb} element {element} of %{self.name}, "
            + trouble.replace("program", who),
            hint="programs are independent: give each its own elements, or use atomic_rmw",
        )


def shadows(buffers: Sequence[Buffer], poisoned: Sequence[bool]) -> None:
    """Give every buffer a shadow; buffers that overlap in memory share one."""
    order = sorted(range(len(buffers)), key=lambda i: _span(buffers[i].data)[0])
    groups: list[list[int]] = []
    end = -1
    for i in order:
        start, stop = _span(buffers[i].data)
        if groups and start < end:
            groups[-1].append(i)
            end = max(end, stop)
        else:
            groups.append([i])
            end = stop
    for group in groups:
        unit = min(buffers[i].data.itemsize for i in group)
        start = min(_span(buffers[i].data)[0] for i in group)
        stop = max(_span(buffers[i].data)[1] for i in group)
        if any((_span(buffers[i].data)[0] - start) % unit for i in group):
            unit = 1
        shared = Shadow((stop - start) // unit, initialised=True)
        for i in group:
            buffer = buffers[i]
            buffer.shadow = shared
            buffer.first_unit = (_span(buffer.data)[0] - start) // unit
            buffer.units_per_element = buffer.data.itemsize // unit
        if all(poisoned[i] for i in group):
            shared.initialised[:] = False


def _span(data: Array) -> tuple[int, int]:
    """First and past-the-end address."""
    start = int(data.ctypes.data)
    return start, start + data.nbytes
