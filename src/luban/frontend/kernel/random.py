"""Random numbers from a counter: Philox 4x32 (Salmon et al., 2011), as the language has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from luban.frontend.kernel.table import builtin
from luban.frontend.kernel.values import Tensor
from luban.tile.expr import Expr

if TYPE_CHECKING:
    from luban.frontend.kernel.interpret import Interpreter

__all__: list[str] = []

_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
_SCALE = 4.6566127342e-10


def _u32(run: Interpreter, value: Any) -> Expr:
    given = run.tensor(value).expr
    return run.b.cast(given, "u32", saturate=False)


def _philox(
    run: Interpreter, seed: Any, counters: list[Expr], rounds: int
) -> tuple[Expr, Expr, Expr, Expr]:
    b = run.b
    wide = b.cast(run.tensor(seed).expr, "u64", saturate=False)
    low = b.cast(wide & 0xFFFFFFFF, "u32", saturate=False)
    high = b.cast(wide >> 32, "u32", saturate=False)
    c0, c1, c2, c3 = counters
    for _ in range(rounds):
        first = b.binary("mulhi", c2, _MULTIPLIERS[1]) ^ c1 ^ low
        third = b.binary("mulhi", c0, _MULTIPLIERS[0]) ^ c3 ^ high
        c1, c3 = c2 * _MULTIPLIERS[1], c0 * _MULTIPLIERS[0]
        c0, c2 = first, third
        low, high = low + _WEYL[0], high + _WEYL[1]
    return c0, c1, c2, c3


def _drawn(run: Interpreter, seed: Any, offset: Any, rounds: Any) -> list[Tensor]:
    first = _u32(run, offset)
    zero = run.b.broadcast(run.b.constant(0, "u32"), first.shape)
    found = _philox(run, seed, [first, zero, zero, zero], int(rounds))
    return [Tensor(part) for part in found]


@builtin("random")
def philox(
    run: Interpreter, seed: Any, c0: Any, c1: Any, c2: Any, c3: Any, n_rounds: Any = _ROUNDS
) -> tuple[Tensor, ...]:
    """Four blocks of 32 random bits from four counters."""
    found = _philox(run, seed, [_u32(run, c) for c in (c0, c1, c2, c3)], int(n_rounds))
    return tuple(map(Tensor, found))


@builtin("random")
def randint4x(
    run: Interpreter, seed: Any, offset: Any, n_rounds: Any = _ROUNDS
) -> tuple[Tensor, ...]:
    """Four blocks of random integers, uint32."""
    return tuple(_drawn(run, seed, offset, n_rounds))


@builtin("random")
def randint(run: Interpreter, seed: Any, offset: Any, n_rounds: Any = _ROUNDS) -> Tensor:
    """Random integers, uint32."""
    return _drawn(run, seed, offset, n_rounds)[0]


@builtin("random")
def uint_to_uniform_float(run: Interpreter, x: Any) -> Tensor:
    """32 random bits as a number from 0 to 1."""
    b = run.b
    signed = b.bitcast(run.tensor(x).expr, "i32")
    positive = b.select(signed < 0, -signed - 1, signed)
    return Tensor(b.cast(positive, "f32") * _SCALE)


@builtin("random")
def rand(run: Interpreter, seed: Any, offset: Any, n_rounds: Any = _ROUNDS) -> Tensor:
    """Random numbers from 0 to 1, fp32."""
    return uint_to_uniform_float(run, _drawn(run, seed, offset, n_rounds)[0])


@builtin("random")
def rand4x(
    run: Interpreter, seed: Any, offsets: Any, n_rounds: Any = _ROUNDS
) -> tuple[Tensor, ...]:
    """Four blocks of random numbers from 0 to 1, fp32."""
    return tuple(uint_to_uniform_float(run, x) for x in _drawn(run, seed, offsets, n_rounds))


@builtin("random")
def pair_uniform_to_normal(run: Interpreter, u1: Any, u2: Any) -> tuple[Tensor, Tensor]:
    """Two uniform numbers as two normal ones (Box and Muller)."""
    b = run.b
    first = b.binary("maxnum", run.tensor(u1).expr, 1.0e-7)
    angle = run.tensor(u2).expr * 6.283185307179586
    radius = b.unary("sqrt", b.unary("log", first) * -2.0)
    return Tensor(radius * b.unary("cos", angle)), Tensor(radius * b.unary("sin", angle))


@builtin("random")
def randn(run: Interpreter, seed: Any, offset: Any, n_rounds: Any = _ROUNDS) -> Tensor:
    """Random numbers with mean 0 and variance 1, fp32."""
    first, second, *_ = _drawn(run, seed, offset, n_rounds)
    u1, u2 = (uint_to_uniform_float(run, x) for x in (first, second))
    return pair_uniform_to_normal(run, u1, u2)[0]


@builtin("random")
def randn4x(
    run: Interpreter, seed: Any, offset: Any, n_rounds: Any = _ROUNDS
) -> tuple[Tensor, ...]:
    """Four blocks of random numbers with mean 0 and variance 1, fp32."""
    parts = [uint_to_uniform_float(run, x) for x in _drawn(run, seed, offset, n_rounds)]
    return (
        *pair_uniform_to_normal(run, parts[0], parts[1]),
        *pair_uniform_to_normal(run, parts[2], parts[3]),
    )
