"""Block programs as kernel authors write them, and what runs them in every way there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luban.core.registers import Registers
from luban.lower.blocks import lower_blocks
from luban.tile import Expr, Function, FunctionBuilder, Module, run, verify
from tests.codegen.harness import TARGETS, run_compiled

Array = NDArray[Any]

REGISTERS = (Registers(64, 32), Registers(32, 16))


def check_lowering(
    function: Function,
    arguments: Sequence[Array | int | float],
    num_programs: int = 1,
    *,
    exact: bool = True,
    rtol: float = 2e-6,
) -> list[Array]:
    """The evaluator on blocks, the evaluator on registers and compiled code agree; the arrays.

    exact    to the bit; transcendental functions are exact in neither and need a tolerance
    """
    verify(function)
    wanted = _copies(arguments)
    run(function, wanted, num_programs)
    for registers in REGISTERS:
        lowered = lower_blocks(Module.of(function), registers)
        verify(lowered)
        for target in (None, *TARGETS):
            given = _copies(arguments)
            if target is None:
                run(lowered, given, num_programs, check=True)
            elif target.vector_bits // 8 == registers.vector_bytes:
                run_compiled(lowered, given, num_programs, target)
            else:
                continue
            for found, expected in zip(given, wanted, strict=True):
                if isinstance(found, np.ndarray):
                    _same(found, np.asarray(expected), exact, rtol)
    return [a for a in wanted if isinstance(a, np.ndarray)]


def _copies(arguments: Sequence[Array | int | float]) -> list[Array | int | float]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]


def _same(found: Array, expected: Array, exact: bool, rtol: float) -> None:
    if exact:
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(
            found.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=rtol
        )


def numbers(*shape: int, seed: int = 0) -> Array:
    """Ordinary f32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def grid(b: FunctionBuilder, rows: int, columns: int, stride: int) -> Expr:
    """Offsets of a block [rows, columns]."""
    row = b.reshape(b.arange(rows), (rows, 1)) * stride
    return row + b.reshape(b.arange(columns), (1, columns))


def vector_add(block: int) -> Function:
    """out = x + y over n elements, a block a program."""
    b = FunctionBuilder("add")
    x, y = (b.pointer(name, "f32", access="read") for name in "xy")
    out = b.pointer("out", "f32", access="write")
    n = b.scalar("n", "i32")
    start = b.cast(b.program_id(), "i32") * block
    where = start + b.arange(block, "i32")
    mask = where < n
    wide = b.cast(where, "i64")
    b.scatter(out, wide, b.gather(x, wide, mask=mask) + b.gather(y, wide, mask=mask), mask=mask)
    return b.finish()


def softmax(block: int) -> Function:
    """A row a program."""
    b = FunctionBuilder("softmax")
    out, x = b.pointer("out", "f32", access="write"), b.pointer("x", "f32", access="read")
    columns = b.scalar("columns", "i32")
    row = b.program_id() * b.cast(columns, "i64")
    lanes = b.arange(block, "i32")
    mask = lanes < columns
    where = row + b.cast(lanes, "i64")
    values = b.gather(x, where, mask=mask, other=-float("inf"))
    (largest,) = b.fold("max", [values], 0)
    powers = b.unary("exp", values - largest)
    (total,) = b.fold("sum", [powers], 0)
    b.scatter(out, where, powers / total, mask=mask)
    return b.finish()


def matmul(m: int, n: int, k: int, masked: bool = True) -> Function:
    """C[M, N] = A[M, K] @ B[K, N] with blocks of m x n x k, as in the tutorials."""
    b = FunctionBuilder("matmul")
    a, w = (b.pointer(name, "f32", access="read") for name in "ab")
    c = b.pointer("c", "f32", access="write")
    rows, columns, depth = (b.scalar(name, "i32") for name in ("rows", "columns", "depth"))
    across = (columns + (n - 1)) // n
    pid = b.cast(b.program_id(), "i32")
    row = pid // across * m + b.arange(m, "i32")
    column = pid % across * n + b.arange(n, "i32")
    inner = b.arange(k, "i32")

    def wide(x: Expr) -> Expr:
        return b.cast(x, "i64")

    rows_of_a = b.reshape(row % rows, (m, 1))
    columns_of_b = b.reshape(column % columns, (1, n))
    at_a = wide(rows_of_a * depth + b.reshape(inner, (1, k)))
    at_b = wide(b.reshape(inner, (k, 1)) * columns + columns_of_b)
    acc = b.full((m, n), 0.0, "f32")
    turns = wide((depth + (k - 1)) // k)
    with b.for_(0, turns, carried=[acc, at_a, at_b]) as loop:
        acc, at_a, at_b = loop.carried
        left = depth - b.cast(loop.index, "i32") * k
        mask = inner < left
        x = b.gather(a, at_a, mask=b.reshape(mask, (1, k)) if masked else None)
        y = b.gather(w, at_b, mask=b.reshape(mask, (k, 1)) if masked else None)
        loop.yield_(b.dot(x, y, acc), at_a + k, at_b + wide(columns * k))
    acc, _, _ = loop.results
    row_column = b.reshape(row, (m, 1)), b.reshape(column, (1, n))
    mask = (row_column[0] < rows) & (row_column[1] < columns)
    b.scatter(c, wide(row_column[0] * columns + row_column[1]), acc, mask=mask)
    return b.finish()
