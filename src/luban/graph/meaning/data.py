"""The meaning of constants, indices, sizes, random bits and host calls."""

from __future__ import annotations

import numpy as np

from luban.core import dims
from luban.graph.host import host_function
from luban.graph.meaning.context import Array, Context, Meaning, Value, conform, stored
from luban.graph.meaning.structure import resolved
from luban.graph.ops.data import Constant, DimensionSize, HostCall, Iota, Nonzero, RandomBits
from luban.ir.node import GetItem, Op

__all__ = ["MEANING", "philox"]


def _constant(op: Constant, _: list[Value], context: Context) -> Array:
    array: Array = conform(op.value.array, context.result_type, context.precision)
    return array


def _iota(op: Iota, _: list[Value], context: Context) -> Array:
    shape = resolved(op.shape, context)
    along = [1] * len(shape)
    along[op.axis] = shape[op.axis]
    index = stored(np.arange(shape[op.axis]), op.dtype, context.precision)
    return np.broadcast_to(index.reshape(along), shape)


def _dimension_size(op: DimensionSize, _: list[Value], context: Context) -> Array:
    return np.asarray(dims.evaluate(op.size, context.sizes), np.int64)


def _random_bits(op: RandomBits, operands: list[Value], context: Context) -> Array:
    shape = resolved(op.shape, context)
    count = int(np.prod(shape, dtype=np.int64))
    return philox(int(operands[0][0]), np.arange(count, dtype=np.uint64)).reshape(shape)


def philox(key: int, counter: Array) -> Array:
    """The first word of Philox4x32-10 for each 64-bit counter (the upper half is 0) and a key.

    Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, and its known answer
    for key 0 and counter 0:

    >>> hex(philox(0, np.zeros(1, np.uint64))[0])
    '0x6627e8d5'
    """
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    word0, word1 = counter & mask, counter >> half
    word2, word3 = np.zeros_like(counter), np.zeros_like(counter)
    key0, key1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        product0, product1 = word0 * np.uint64(0xD2511F53), word2 * np.uint64(0xCD9E8D57)
        word0, word1, word2, word3 = (
            (product1 >> half) ^ word1 ^ np.uint64(key0),
            product1 & mask,
            (product0 >> half) ^ word3 ^ np.uint64(key1),
            product0 & mask,
        )
        key0, key1 = (key0 + 0x9E3779B9) & 0xFFFFFFFF, (key1 + 0xBB67AE85) & 0xFFFFFFFF
    return word0.astype(np.uint32)


def _nonzero(_: Nonzero, operands: list[Value], __: Context) -> Array:
    (x,) = operands
    if not x.ndim:
        return np.zeros((0, int(x)), np.int64)
    return np.stack(np.nonzero(x)).astype(np.int64)


def _host_call(op: HostCall, operands: list[Value], context: Context) -> Value:
    results = host_function(op.function)(dict(op.options), list(operands))
    held = tuple(
        conform(value, type_, context.precision)
        for value, type_ in zip(results, op.result_types, strict=True)
    )
    return held[0] if len(held) == 1 else held


def _get_item(op: GetItem, operands: list[Value], _: Context) -> Value:
    return operands[0][op.index]


MEANING: dict[type[Op], Meaning] = {
    Constant: _constant,
    Iota: _iota,
    DimensionSize: _dimension_size,
    RandomBits: _random_bits,
    Nonzero: _nonzero,
    HostCall: _host_call,
    GetItem: _get_item,
}
