"""Every elementwise kind in every type, bit for bit against the evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luban.codegen.vector_math import FUNCTIONS
from luban.core.dtypes import DTYPES
from luban.tile import BINARY, UNARY, Expr, Function, FunctionBuilder
from luban.tile.op import accepts
from tests.codegen.harness import check, interesting

COMPUTED = [d for d in DTYPES.values() if accepts("number", d)]
NAMES = [d.name for d in COMPUTED]
EXACT_MATHS = {"sqrt", "rem"}
N = 30  # chunks of 16, 8, 4 and 2, or fewer
ROUNDS = 32


def unary_program(name: str, kinds: list[Any], results: str | None = None) -> Function:
    b = FunctionBuilder("unary")
    x = b.pointer("x", name)
    y = b.pointer("y", results or name)
    at = b.program_id() * N
    value = b.load(x, at, (N,))
    for number, kind in enumerate(kinds):
        b.store(y, at * len(kinds) + number * N, b.unary(kind, value))
    return b.finish()


def binary_program(name: str, kinds: list[Any]) -> Function:
    b = FunctionBuilder("binary")
    x, z, y = (b.pointer(letter, name) for letter in "xzy")
    at = b.program_id() * N
    left, right = b.load(x, at, (N,)), b.load(z, at, (N,))
    for number, kind in enumerate(kinds):
        b.store(y, at * len(kinds) + number * N, b.binary(kind, left, right))
    return b.finish()


def kinds_of(table: dict[str, tuple[str, str]], name: str) -> list[Any]:
    exact = [k for k in table if k not in FUNCTIONS or k in EXACT_MATHS]
    found = [k for k in exact if accepts(table[k][0], DTYPES[name])]
    return [k for k in found if k not in ("is_nan", "is_inf")]


@pytest.mark.parametrize("name", [*NAMES, "bool"])
def test_unary(name: str) -> None:
    kinds = kinds_of(UNARY, name)
    x = interesting(name, N * ROUNDS)
    y = np.zeros(N * ROUNDS * len(kinds), DTYPES[name].numpy)
    check(unary_program(name, kinds), [x, y], ROUNDS)


@pytest.mark.parametrize("name", [n for n in NAMES if DTYPES[n].is_float])
def test_classification(name: str) -> None:
    kinds = ["is_nan", "is_inf"]
    y = np.zeros(N * ROUNDS * 2, np.bool_)
    check(unary_program(name, kinds, "bool"), [interesting(name, N * ROUNDS), y], ROUNDS)


@pytest.mark.parametrize("name", [*NAMES, "bool"])
def test_binary(name: str) -> None:
    kinds = kinds_of(BINARY, name)
    x, z = interesting(name, N * ROUNDS, 1), interesting(name, N * ROUNDS, 2)
    same = np.random.default_rng(0).random(len(x)) < 0.1
    z[same] = x[same]
    y = np.zeros(N * ROUNDS * len(kinds), DTYPES[name].numpy)
    check(binary_program(name, kinds), [x, z, y], ROUNDS)


@pytest.mark.parametrize("name", [*NAMES, "bool"])
def test_compare_and_select(name: str) -> None:
    predicates: list[Any] = ["eq", "ne"] if name == "bool" else ["eq", "ne", "lt", "le", "gt", "ge"]
    b = FunctionBuilder("compare")
    x, z = b.pointer("x", name), b.pointer("z", name)
    flags, chosen = b.pointer("flags", "bool"), b.pointer("chosen", name)
    at = b.program_id() * N
    left, right = b.load(x, at, (N,)), b.load(z, at, (N,))
    for number, predicate in enumerate(predicates):
        result = b.compare(predicate, left, right)
        where = at * len(predicates) + number * N
        b.store(flags, where, result)
        b.store(chosen, where, b.select(result, left, right))
    values = [interesting(name, N * ROUNDS, 1), interesting(name, N * ROUNDS, 2)]
    values[1][::3] = values[0][::3]
    size = N * ROUNDS * len(predicates)
    outputs = [np.zeros(size, np.bool_), np.zeros(size, DTYPES[name].numpy)]
    check(b.finish(), [*values, *outputs], ROUNDS)


@pytest.mark.parametrize("name", [n for n in NAMES if DTYPES[n].is_float])
def test_fma(name: str) -> None:
    b = FunctionBuilder("fused")
    x, z, c, y = (b.pointer(letter, name) for letter in "xzcy")
    at = b.program_id() * N
    parts = [b.load(p, at, (N,)) for p in (x, z, c)]
    b.store(y, at, b.fma(*parts))
    arrays = [interesting(name, N * ROUNDS, seed) for seed in range(4)]
    check(b.finish(), arrays, ROUNDS)


@pytest.mark.parametrize("name", ["f32", "f64", "i32", "i64", "u8"])
def test_scalars(name: str) -> None:
    b = FunctionBuilder("scalars")
    x, z, y = (b.pointer(letter, name) for letter in "xzy")
    i = b.program_id()
    left, right = b.load(x, i), b.load(z, i)
    kinds = kinds_of(BINARY, name)
    for number, kind in enumerate(kinds):
        b.store(y, i * len(kinds) + number, b.binary(kind, left, right))
    rounds = 200
    x_data, z_data = interesting(name, rounds, 1), interesting(name, rounds, 2)
    check(b.finish(), [x_data, z_data, np.zeros(rounds * len(kinds), x_data.dtype)], rounds)


@pytest.mark.parametrize("kind", ["min", "max"])
@pytest.mark.parametrize("constant", [0.0, -0.0, 1.5, float("inf"), float("nan")])
def test_extreme_against_a_constant(kind: Any, constant: float) -> None:
    b = FunctionBuilder("clip")
    x, y = b.pointer("x", "f32"), b.pointer("y", "f32")
    value = b.load(x, 0, (N,))
    limit: Expr = b.full((N,), constant, "f32")
    b.store(y, 0, b.binary(kind, value, limit))
    b.store(y, N, b.binary(kind, limit, value))
    check(b.finish(), [interesting("f32", N), np.zeros(2 * N, np.float32)])


@pytest.mark.parametrize("name", ["i32", "u32", "i64", "u8"])
@pytest.mark.parametrize("divisor", [0, 1, 3, 8, 100])
def test_division_by_a_constant(name: str, divisor: int) -> None:
    b = FunctionBuilder("divide")
    x, y = b.pointer("x", name), b.pointer("y", name)
    value = b.load(x, 0, (N,))
    by = b.full((N,), divisor, name)
    b.store(y, 0, b.binary("div", value, by))
    b.store(y, N, b.binary("rem", value, by))
    data = interesting(name, N)
    check(b.finish(), [data, np.zeros(2 * N, data.dtype)])


def test_comparing_constants_with_nan_is_quiet() -> None:
    b = FunctionBuilder("constants")
    y = b.pointer("y", "bool")
    left, right = b.full((4,), float("nan"), "f32"), b.full((4,), 1.0, "f32")
    b.store(y, 0, b.compare("lt", left, right))
    check(b.finish(), [np.ones(4, np.bool_)])
