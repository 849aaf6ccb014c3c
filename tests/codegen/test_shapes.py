"""Broadcasts, reshapes, transposes, slices, concatenations and reductions against the evaluator."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from luban.codegen import emit
from luban.core.dtypes import DTYPES
from luban.native.target import named_target
from luban.tile import FunctionBuilder
from tests.codegen.harness import check, interesting

Shape = tuple[int, ...]


@pytest.mark.parametrize(
    ("given", "to"),
    [
        ((), (3, 20)), ((20,), (3, 20)), ((3, 1), (3, 20)), ((1, 20), (3, 20)), ((1,), (33,)),
        ((2, 1, 5), (2, 3, 5)), ((2, 3, 1), (4, 2, 3, 9)), ((16,), (6, 16)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["f32", "i8", "bool"])
def test_broadcast(given: Shape, to: Shape, name: str) -> None:
    b = FunctionBuilder("broadcast")
    x, y = b.pointer("x", name), b.pointer("y", name)
    b.store(y, 0, b.broadcast(b.load(x, 0, given), to))
    data = interesting(name, prod(given))
    check(b.finish(), [data, np.zeros(prod(to), data.dtype)])


@pytest.mark.parametrize(
    ("given", "to"),
    [
        ((4, 8), (32,)),
        ((32,), (4, 8)),
        ((6, 10), (4, 15)),
        ((7,), (7, 1)),
        ((1, 1), ()),
        ((2, 3, 16), (6, 16)),
    ],
)
def test_reshape(given: Shape, to: Shape) -> None:
    b = FunctionBuilder("reshape")
    x, y = b.pointer("x", "f32"), b.pointer("y", "f32")
    b.store(y, 0, b.reshape(b.load(x, 0, given), to) + 0.0)
    check(b.finish(), [interesting("f32", prod(given)), np.zeros(prod(given), np.float32)])


@pytest.mark.parametrize(
    ("shape", "permutation"),
    [
        ((16, 16), (1, 0)), ((8, 8), (1, 0)), ((32, 16), (1, 0)), ((16, 48), (1, 0)),
        ((5, 7), (1, 0)), ((4, 16), (1, 0)), ((2, 3, 4), (2, 0, 1)), ((3, 2, 16), (1, 0, 2)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["f32", "i8", "f64"])
def test_transpose(shape: Shape, permutation: Shape, name: str) -> None:
    b = FunctionBuilder("transpose")
    x, y = b.pointer("x", name), b.pointer("y", name)
    b.store(y, 0, b.transpose(b.load(x, 0, shape), permutation))
    data = interesting(name, prod(shape))
    check(b.finish(), [data, np.zeros(prod(shape), data.dtype)])


def test_square_transpose_takes_n_log_n_shuffles() -> None:
    b = FunctionBuilder("square")
    x, y = b.pointer("x", "f32"), b.pointer("y", "f32")
    b.store(y, 0, b.transpose(b.load(x, 0, (16, 16)), (1, 0)))
    assert emit(b.finish(), named_target("avx512")).count("shufflevector") == 64


def test_slice_and_concat() -> None:
    b = FunctionBuilder("pieces")
    x, y = b.pointer("x", "f32"), b.pointer("y", "f32")
    tile = b.load(x, 0, (4, 24))
    b.store(y, 0, b.extract_slice(tile, (1, 3), (2, 19)))
    b.store(y, 40, b.extract_slice(tile, (2, 16), (1, 8)))
    b.store(y, 50, b.concat([b.extract_slice(tile, (0, 0), (4, 5)), tile], 1))
    b.store(y, 200, b.concat([tile, b.extract_slice(tile, (0, 0), (1, 24))], 0))
    check(b.finish(), [interesting("f32", 96), np.zeros(400, np.float32)])


KINDS = {"f32": ["sum", "prod", "max", "min"], "bf16": ["sum", "max"], "f64": ["sum", "min"]}
KINDS |= {"i32": ["sum", "prod", "max", "min", "and", "or", "xor"], "u8": ["sum", "max", "min"]}
KINDS["bool"] = ["and", "or", "xor"]


@pytest.mark.parametrize("shape", [(1,), (5,), (16,), (64,), (60,), (3, 20), (6, 16), (5, 3, 7)])
@pytest.mark.parametrize("name", KINDS)
def test_reduce(name: str, shape: Shape) -> None:
    b = FunctionBuilder("reduce")
    x, y = b.pointer("x", name), b.pointer("y", name)
    tile = b.load(x, 0, shape)
    place = 0
    for kind in KINDS[name]:
        for axis in range(len(shape)):
            result = b.reduce(kind, tile, axis)  # type: ignore[arg-type]
            b.store(y, place, result)
            place += prod(result.shape)
    rng = np.random.default_rng(0)
    if DTYPES[name].is_float:
        data = rng.standard_normal(prod(shape)).astype(DTYPES[name].numpy)
    else:
        data = interesting(name, prod(shape))
    check(b.finish(), [data, np.zeros(place, data.dtype)])


def test_reduced_rows_broadcast_back() -> None:
    b = FunctionBuilder("softmax_like")
    x, y = b.pointer("x", "f32"), b.pointer("y", "f32")
    tile = b.load(x, 0, (4, 32))
    top = b.reshape(b.reduce("max", tile, 1), (4, 1))
    shifted = tile - top
    total = b.reshape(b.reduce("sum", shifted, 1), (4, 1))
    b.store(y, 0, shifted / total)
    data = np.random.default_rng(0).standard_normal(128).astype(np.float32)
    check(b.finish(), [data, np.zeros(128, np.float32)])
