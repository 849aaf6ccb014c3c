"""`triton.knobs`: groups of settings that scripts read and set. None has an effect on CPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["KnobGroup", "names"]


class KnobGroup:
    """Settings of one topic: whatever is set is kept, what was not set is None.

    >>> group = KnobGroup(debug=False)
    >>> with group.scope():
    ...     group.debug = True
    >>> group.debug
    False
    """

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Leave the settings as they are after the block."""
        before = dict(vars(self))
        try:
            yield
        finally:
            vars(self).clear()
            vars(self).update(before)

    def copy(self) -> KnobGroup:
        """The same settings, apart."""
        return KnobGroup(**vars(self))

    def reset(self) -> KnobGroup:
        """Nothing set."""
        vars(self).clear()
        return self

    @property
    def knob_descriptors(self) -> dict[str, Any]:
        """None of them is an environment variable."""
        return {}


def names() -> dict[str, Any]:
    """The module's names."""
    topics = ("build", "redis", "cache", "compilation", "autotuning", "runtime", "language")
    groups: dict[str, Any] = {topic: KnobGroup() for topic in topics}
    groups.update(
        runtime=KnobGroup(interpret=False, debug=False),
        autotuning=KnobGroup(cache=False, print=False),
        nvidia=KnobGroup(),
        amd=KnobGroup(),
        proton=KnobGroup(),
        base_knobs=KnobGroup,
        propagate_env=True,
    )
    return groups
