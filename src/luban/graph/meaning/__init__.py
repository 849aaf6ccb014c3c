"""The executable meaning of every primitive, by aspect, in numpy."""

from __future__ import annotations

from luban.graph.meaning import (
    coded,
    contract,
    control,
    data,
    elementwise,
    packed,
    reduce,
    structure,
    winograd,
)
from luban.graph.meaning.context import Meaning
from luban.ir.node import Op

__all__ = ["MEANING"]

MEANING: dict[type[Op], Meaning] = {
    **elementwise.MEANING,
    **structure.MEANING,
    **reduce.MEANING,
    **contract.MEANING,
    **packed.MEANING,
    **winograd.MEANING,
    **coded.MEANING,
    **control.MEANING,
    **data.MEANING,
}
