"""Casts between every pair of element types, bit for bit against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from luban.core.dtypes import DTYPES
from luban.tile import Function, FunctionBuilder
from tests.codegen.harness import Array, check, interesting

NAMES = [d.name for d in DTYPES.values() if d.kind not in ("complex", "string")]
N = 22
ROUNDS = 48


def cast_program(source: str, targets: list[str], saturate: bool) -> Function:
    """Cast one tile to every type of `targets`, each with a buffer of its own."""
    b = FunctionBuilder("casts")
    x = b.pointer("x", source)
    outputs = [b.pointer(f"to_{name}", name) for name in targets]
    at = b.program_id() * N
    value = b.load(x, at, (N,))
    for name, output in zip(targets, outputs, strict=True):
        b.store(output, at, b.cast(value, name, saturate=saturate))
    return b.finish()


def halfway(source: str, count: int) -> Array:
    """Numbers at and next to the ties of narrower formats, and their overflow bounds."""
    elem = DTYPES[source]
    rng = np.random.default_rng(5)
    exponents = rng.integers(-20, 20, count)
    mantissas = rng.integers(0, 1 << 12, count) / 2.0 ** rng.integers(4, 12, count)
    ties = np.ldexp(1 + np.floor(mantissas * 16) / 16, exponents)
    nudge = rng.choice([0.0, 2.0**-40, -(2.0**-40), 2.0**-22], count)
    bounds = rng.choice([6.0, 240.0, 448.0, 464.0, 57344.0, 65504.0, 65520.0, 127.5, 255.5], count)
    values = np.where(rng.random(count) < 0.3, bounds, ties) * (1 + nudge)
    values *= rng.choice([1.0, -1.0], count)
    with np.errstate(all="ignore"):
        result: Array = values.astype(elem.numpy)
    return result


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("source", NAMES)
def test_cast(source: str, saturate: bool) -> None:
    data = interesting(source, N * ROUNDS)
    if DTYPES[source].is_float and DTYPES[source].bits >= 16:
        data[len(data) // 2 :] = halfway(source, len(data) - len(data) // 2)
    outputs = [np.zeros(len(data), DTYPES[name].numpy) for name in NAMES]
    check(cast_program(source, NAMES, saturate), [data, *outputs], ROUNDS)


@pytest.mark.parametrize("source", ["f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0"])
def test_every_byte_decodes(source: str) -> None:
    data = np.arange(256, dtype=np.uint8).view(DTYPES[source].numpy)
    data = np.concatenate([data, data[:8]])  # a multiple of N
    outputs = [np.zeros(len(data), DTYPES[name].numpy) for name in ("f32", "f64", "f16", "bf16")]
    program = cast_program(source, ["f32", "f64", "f16", "bf16"], saturate=True)
    check(program, [data, *outputs], len(data) // N)


@pytest.mark.parametrize("source", [n for n in NAMES if DTYPES[n].bits >= 8])
def test_bitcast(source: str) -> None:
    bits = DTYPES[source].bits
    targets = [n for n in NAMES if DTYPES[n].bits == bits and n != source]
    b = FunctionBuilder("bits")
    x = b.pointer("x", source)
    outputs = [b.pointer(f"to_{name}", name) for name in targets]
    value = b.load(x, 0, (N,))
    for name, output in zip(targets, outputs, strict=True):
        b.store(output, 0, b.bitcast(value, name))
    arrays = [np.zeros(N, DTYPES[name].numpy) for name in targets]
    check(b.finish(), [interesting(source, N), *arrays])


def test_scalar_casts() -> None:
    b = FunctionBuilder("scalar_casts")
    x, y, z = b.pointer("x", "f64"), b.pointer("y", "bf16"), b.pointer("z", "u8")
    value = b.load(x, b.program_id())
    b.store(y, b.program_id(), b.cast(value, "bf16"))
    b.store(z, b.program_id(), b.cast(value, "u8"))
    data = interesting("f64", 100)
    check(b.finish(), [data, np.zeros(100, DTYPES["bf16"].numpy), np.zeros(100, np.uint8)], 100)
