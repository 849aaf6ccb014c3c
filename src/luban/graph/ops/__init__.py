"""The primitives, by aspect. Names follow StableHLO, elementwise maths the Python array API.

`PRIMITIVES` maps each printed name to its class; one row per op class, so a duplicate name fails at
import.
"""

from __future__ import annotations

from luban.graph.ops import (
    coded,
    contract,
    control,
    data,
    elementwise,
    fusion,
    packed,
    reduce,
    structure,
    winograd,
)
from luban.ir.node import GetItem, Op, Parameter

__all__ = ["PRIMITIVES"]


def _table() -> dict[str, type[Op]]:
    table: dict[str, type[Op]] = {}
    products = (contract, packed, winograd, coded)
    for module in (elementwise, structure, reduce, *products, control, data, fusion):
        for op in module.OPS:
            if op.name in table:
                raise TypeError(f"two primitives are called {op.name}")
            table[op.name] = op
    return table | {GetItem.name: GetItem, Parameter.name: Parameter}


PRIMITIVES: dict[str, type[Op]] = _table()
