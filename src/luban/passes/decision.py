"""What a pass tells about its choices."""

from __future__ import annotations

from dataclasses import dataclass

from luban.ir.node import Node

__all__ = ["Decision"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a pass did or declined, and why: a line of `luban explain`."""

    subject: Node
    done: bool
    reason: str
