"""Random bits inside a loop body: each element is a function of the key and of its own place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luban.core.dtypes import DTYPES
from luban.lower.affine import Linear

if TYPE_CHECKING:
    from luban.lower.trace import Ref, Trace

__all__ = ["philox"]

_FACTORS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)


def philox(trace: Trace, key: Ref, counter: Linear) -> Ref:
    """The first word of Philox4x32-10, as `graph.meaning.data.philox` states it, u32."""
    wide = DTYPES["u64"]
    mask, half = trace.constant(0xFFFFFFFF, wide), trace.constant(32, wide)
    none = trace.constant(0, wide)

    def low(x: Ref) -> Ref:
        return trace.apply("bitwise_and", wide, x, mask)

    def high(x: Ref) -> Ref:
        return trace.apply("shift_right", wide, x, half)

    def mixed(x: Ref, *others: Ref) -> Ref:
        for other in others:
            x = trace.apply("bitwise_xor", wide, x, other)
        return x

    place = trace.cast(trace.index(counter), wide)
    words = [low(place), high(place), none, none]
    keys = [low(key), high(key)]
    for _ in range(10):
        products = [
            trace.apply("multiply", wide, word, trace.constant(factor, wide))
            for word, factor in zip(words[::2], _FACTORS, strict=True)
        ]
        words = [
            mixed(high(products[1]), words[1], keys[0]),
            low(products[1]),
            mixed(high(products[0]), words[3], keys[1]),
            low(products[0]),
        ]
        keys = [
            low(trace.apply("add", wide, k, trace.constant(step, wide)))
            for k, step in zip(keys, _STEPS, strict=True)
        ]
    word = words[0]  # a cast of the graph wraps, one of the tile IR need not
    return trace.ref("cast", DTYPES["u32"], (word,), value=False)
