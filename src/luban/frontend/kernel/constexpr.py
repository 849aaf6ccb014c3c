"""Constants of a kernel, as the language writes them."""

from __future__ import annotations

from typing import Any

__all__ = ["Constexpr", "unwrap"]


class Constexpr:
    """A compile-time constant of a kernel: `tl.constexpr` as an annotation, or round a value."""

    def __init__(self, value: Any) -> None:
        self.value: Any = value.value if isinstance(value, Constexpr) else value

    def __repr__(self) -> str:
        return f"constexpr[{self.value!r}]"

    def __eq__(self, other: object) -> bool:
        return bool(self.value == unwrap(other))

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return int(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)


def unwrap(value: Any) -> Any:
    """A static value without the language's wrapper, ours or an installed Triton's."""
    if isinstance(value, Constexpr):
        return value.value
    kind = type(value)
    if kind.__name__ == "constexpr" and kind.__module__.startswith("triton."):
        return unwrap(value.value)
    return value
