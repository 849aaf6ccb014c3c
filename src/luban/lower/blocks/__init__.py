"""Block programs, as kernel authors write them, to loops over register tiles.

Operations are grouped to clusters of one iteration space; a cluster becomes a loop nest whose
values stay in registers, and what crosses clusters lies in scratch memory of the thread. The size
of the result grows with the number of operations, not with the size of the blocks.
"""

from __future__ import annotations

from luban.core.registers import Registers
from luban.lower.blocks.walk import lower_function
from luban.tile.function import Module

__all__ = ["lower_blocks"]


def lower_blocks(module: Module, registers: Registers) -> Module:
    """The register program of a block program.

    Raises Declined, with the reason, for what has no lowering.
    """
    return Module((lower_function(module.kernel, registers),), module.entry)
