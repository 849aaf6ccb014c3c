"""Every function of the language against numpy, compiled and evaluated."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import luban.lang as tl
from luban.frontend.kernel import BUILTINS
from tests.lang.expressions import evaluate, expression

Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(0)
F = RNG.standard_normal(64).astype(np.float32)
G = RNG.standard_normal(64).astype(np.float32)
P = np.abs(F) + np.float32(0.1)
U = np.clip(F, -0.9, 0.9)
M = RNG.standard_normal((16, 32)).astype(np.float32)
W = RNG.standard_normal((32, 16)).astype(np.float32)
I = RNG.integers(-100, 100, 64, np.int32)
J = RNG.integers(1, 50, 64, np.int32)
B = RNG.integers(0, 256, 64).astype(np.uint8)
N = np.where(RNG.random(64) < 0.3, np.nan, F).astype(np.float32)
H = F.astype(np.float16)
K = F.astype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Case:
    """An expression over blocks, and numpy's answer."""

    text: str
    wanted: Any
    inputs: dict[str, Array] = field(default_factory=dict)
    rtol: float = 0.0
    covers: tuple[str, ...] = ()


def case(text: str, wanted: Any, rtol: float = 0.0, covers: str = "", **inputs: Array) -> Case:
    return Case(text, np.asarray(wanted), inputs, rtol, tuple(covers.split()))


def _unary(name: str, wanted: Callable[[Array], Any], x: Array = F) -> Case:
    with np.errstate(all="ignore"):
        return case(f"tl.{name}(x)", wanted(x.astype(np.float64)).astype(np.float32), 2e-6, x=x)


_erf = np.vectorize(math.erf)


def _away(x: Array) -> Array:
    """The nearest whole number, ties away from 0."""
    whole = np.trunc(x)
    return np.asarray(whole + np.where(np.abs(x - whole) >= 0.5, np.sign(x), 0))


H2, W2 = M.astype(np.float16), W.astype(np.float16)
PRODUCT = (H2.astype(np.float32) @ W2.astype(np.float32)).astype(np.float16)
S = I.reshape(4, 16).astype(np.int8)
GRID = np.repeat(F[:16, None], 16, 1)

CASES = [
    # Operators
    case("x + y", F + G, x=F, y=G),
    case("x - 1", F - 1, x=F),
    case("2 * x", F * 2, x=F),
    case("x / y", F / P, x=F, y=P),
    case("1 / x", 1 / P, x=P),
    case("x // y", np.trunc(I / J).astype(np.int32), x=I, y=J),
    case("x % y", np.fmod(I, J), x=I, y=J),
    case("x & y", I & J, x=I, y=J),
    case("x | y", I | J, x=I, y=J),
    case("x ^ y", I ^ J, x=I, y=J),
    case("x << 2", I << 2, x=I),
    case("x >> 1", I >> 1, x=I),
    case("-x", -F, x=F),
    case("~x", ~I, x=I),
    case("(x < y).to(tl.int32)", (F < G).astype(np.int32), x=F, y=G),
    case("((x >= y) & (x != 0)).to(tl.int8)", ((I >= J) & (I != 0)).astype(np.int8), x=I, y=J),
    case("(not (x == y)).to(tl.int32)", (I != J).astype(np.int32), x=I, y=J),
    case("x + y", F.astype(np.float64) + I, x=F.astype(np.float64), y=I),
    case("x + y", H + H, x=H, y=H),
    case("(x / y).to(tl.float32)", H.astype(np.float32) / 2, x=H, y=np.full(64, 2, np.float16)),
    case("x ** 2", F * F, 2e-6, x=F),
    # Maths
    _unary("exp", np.exp), _unary("exp2", np.exp2), _unary("log", np.log, P),
    _unary("log2", np.log2, P), _unary("sin", np.sin), _unary("cos", np.cos),
    _unary("sqrt", np.sqrt, P), _unary("rsqrt", lambda x: 1 / np.sqrt(x), P),
    _unary("erf", _erf), _unary("floor", np.floor), _unary("ceil", np.ceil),
    _unary("abs", np.abs), _unary("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    _unary("sqrt_rn", np.sqrt, P),
    *(
        _unary(f"libdevice.{name}", getattr(np, numpy or name), x)
        for name, numpy, x in [
            ("exp", "", F), ("expm1", "", F), ("log1p", "", P), ("tan", "", U),
            ("asin", "arcsin", U), ("acos", "arccos", U), ("atan", "arctan", F),
            ("sinh", "", F), ("cosh", "", F), ("tanh", "", F), ("asinh", "arcsinh", F),
            ("acosh", "arccosh", P + 1), ("atanh", "arctanh", U), ("trunc", "", F * 3),
            ("rint", "", F * 3), ("log10", "", P), ("fast_expf", "exp", F),
            ("fast_logf", "log", P), ("fast_log2f", "log2", P), ("fast_sinf", "sin", F),
            ("fast_cosf", "cos", F), ("fast_tanf", "tan", U), ("nearbyint", "rint", F * 3),
            ("exp2", "", F), ("log", "", P), ("log2", "", P), ("sin", "", F), ("cos", "", F),
            ("sqrt", "", P), ("floor", "", F), ("ceil", "", F), ("abs", "", F), ("fabs", "abs", F),
            ("fast_tanhf", "tanh", F), ("expf", "exp", F), ("exp2f", "exp2", F),
            ("logf", "log", P), ("sqrtf", "sqrt", P), ("sqrt_rn", "sqrt", P),
        ]
    ),
    _unary("libdevice.rsqrt", lambda x: 1 / np.sqrt(x), P),
    _unary("libdevice.rsqrt_rn", lambda x: 1 / np.sqrt(x), P),
    _unary("libdevice.erf", _erf), _unary("libdevice.erfc", lambda x: 1 - _erf(x)),
    _unary("libdevice.exp10", lambda x: 10**x),
    _unary("libdevice.round", _away, F * 3),
    _unary("libdevice.llround", _away, F * 3),
    case("x.logical_and(y > 9).to(tl.int32)", ((I != 0) & (J > 9)).astype(np.int32),
         covers="logical_and", x=I, y=J),
    case("x.logical_or(y > 9).to(tl.int32)", ((I > 0) | (J > 9)).astype(np.int32),
         covers="logical_or", x=np.maximum(I, 0), y=J),
    case("tl.libdevice.llrint(x)", np.rint(F * 3).astype(np.int64), x=F * 3),
    *(
        case(f"tl.libdevice.{name}(x).to(tl.int32)", wanted.astype(np.int32), x=N)
        for name, wanted in [
            ("isnan", np.isnan(N)), ("isinf", np.isinf(N)), ("isinfd", np.isinf(N)),
            ("finitef", np.isfinite(N)), ("isfinited", np.isfinite(N)),
            ("isfinite", np.isfinite(N)),
        ]
    ),
    case("tl.libdevice.signbit(x).to(tl.int32)", np.signbit(F).astype(np.int32), x=F),
    case("tl.libdevice.copysign(x, y)", np.copysign(F, G), x=F, y=G),
    case("tl.libdevice.popc(x)", np.bitwise_count(J).astype(np.int32), x=J),
    case("tl.libdevice.pow(x, y)", P.astype(np.float64) ** G, 5e-6, x=P, y=G),
    case("tl.libdevice.fast_powf(x, y)", P.astype(np.float64) ** G, 5e-6, x=P, y=G),
    case("tl.libdevice.atan2(x, y)", np.arctan2(F, G), 2e-6, x=F, y=G),
    case("tl.libdevice.fmod(x, y)", np.fmod(F, P), x=F, y=P),
    case("tl.libdevice.fast_dividef(x, y)", F / P, x=F, y=P),
    case("tl.libdevice.fdiv(x, y)", F / P, x=F, y=P),
    case("tl.libdevice.div_rn(x, y)", F / P, x=F, y=P),
    case("tl.libdevice.fma(x, y, x)", F.astype(np.float64) * G + F, 1e-6, x=F, y=G),
    case("tl.libdevice.max(x, y)", np.maximum(F, G), x=F, y=G),
    case("tl.libdevice.min(x, y)", np.minimum(F, G), x=F, y=G),
    case("tl.libdevice.fmax(x, y)", np.maximum(F, G), x=F, y=G),
    case("tl.libdevice.fmin(x, y)", np.minimum(F, G), x=F, y=G),
    case("tl.libdevice.mulhi(x, y)", (I.astype(np.int64) * J >> 32).astype(np.int32), x=I, y=J),
    case("tl.libdevice.umulhi(x, y)", (I.astype(np.int64) * J >> 32).astype(np.int32), x=I, y=J),
    case("tl.maximum(x, y)", np.fmax(N, G), x=N, y=G),
    case("tl.minimum(x, y)", np.fmin(N, G), x=N, y=G),
    case("max(x, 0)", np.maximum(I, 0), x=I, covers="python.max"),
    case("min(x, 5, y)", np.minimum(np.minimum(I, 5), J), x=I, y=J, covers="python.min"),
    case("abs(x)", np.abs(I), x=I, covers="python.abs"),
    case("float(x) * 0.5", I.astype(np.float32) * np.float32(0.5), x=I, covers="python.float"),
    case("int(x)", np.trunc(F * 3).astype(np.int32), x=F * 3, covers="python.int"),
    case("bool(x).to(tl.int32)", (I != 0).astype(np.int32), x=I, covers="python.bool"),
    case("tl.clamp(x, -0.5, 0.5)", np.clip(F, np.float32(-0.5), np.float32(0.5)), x=F),
    case("tl.where(x > 0, x, y)", np.where(F > 0, F, G), x=F, y=G),
    case("tl.where(x > 0, 1, 0)", np.where(F > 0, 1, 0).astype(np.int32), x=F),
    case("tl.fma(x, y, 1.0)", F.astype(np.float64) * G + 1, 1e-6, x=F, y=G),
    case("tl.cdiv(x, 7)", -(-J // 7), x=J),
    case("x + tl.next_power_of_2(100)", J + 128, x=J),
    case("tl.fdiv(x, y)", F / P, x=F, y=P),
    case("tl.div_rn(x, y)", F / P, x=F, y=P),
    case("tl.umulhi(x, y)", (I.astype(np.int64) * J >> 32).astype(np.int32), x=I, y=J),
    case("tl.softmax(x)", np.exp(F - F.max()) / np.exp(F - F.max()).sum(), 1e-5, x=F),
    # Blocks and shapes
    case("tl.arange(3, 67)", np.arange(3, 67, dtype=np.int32)),
    case("tl.full([64], 3, tl.float32)", np.full(64, 3, np.float32)),
    case("tl.zeros((64,), dtype=tl.int64)", np.zeros(64, np.int64)),
    case("x + tl.zeros_like(x)", F, x=F),
    case("x.to(tl.float16)", F.astype(np.float16), x=F),
    case("x.to(tl.bfloat16)", F.astype(ml_dtypes.bfloat16), x=F),
    case("tl.cast(x, tl.int32)", np.trunc(F * 3).astype(np.int32), x=F * 3),
    case("x.to(tl.int32, bitcast=True)", F.view(np.int32), x=F),
    case("x.to(tl.float32)", K.astype(np.float32), x=K),
    case("x.to(tl.int8)", I.astype(np.int8), x=I),
    case("x.to(tl.uint8).to(tl.int32)", (I & 255), x=I),
    case("tl.reshape(x, (32, 16)) * 2", M.reshape(32, 16) * 2, x=M),
    case("tl.view(x, [512])", M.reshape(512), x=M),
    case("x.reshape(4, 128)", M.reshape(4, 128), x=M),
    case("tl.ravel(x)", M.reshape(512), x=M),
    case("tl.trans(x)", M.T, x=M),
    case("x.T", M.T, x=M),
    case("tl.permute(x, (1, 0)) + 1", M.T + 1, x=M),
    case("tl.expand_dims(x, 0) + tl.zeros([2, 64], tl.float32)", np.stack([F, F]), x=F),
    case("tl.broadcast_to(x[:, None], (64, 4))", np.repeat(F[:, None], 4, 1), x=F),
    case("tl.broadcast(x[:, None], y[None, :])[0]", GRID, x=F[:16], y=F[:16]),
    case("tl.join(x, y)", np.stack([F, G], -1), x=F, y=G),
    case("tl.split(tl.join(x, y))[1]", G, x=F, y=G),
    case("tl.interleave(x, y)", np.stack([F, G], -1).reshape(-1), x=F, y=G),
    case("tl.cat(x, y, can_reorder=True)", np.concatenate([F, G]), x=F, y=G),
    case("tl.flip(x)", F[::-1], x=F),
    case("tl.gather(x, y, 0)", F[J % 64], x=F, y=J % 64),
    case("x + len(x)", J + 64, x=J, covers="python.len"),
    # Reductions and scans
    case("tl.sum(x, axis=1)", M.sum(1), 1e-5, x=M),
    case("tl.sum(x, 0)", M.sum(0), 1e-5, x=M),
    case("tl.sum(x)", M.sum(), 1e-5, x=M),
    case("x.sum(1, keep_dims=True)", M.sum(1, keepdims=True), 1e-5, x=M),
    case("tl.sum(x, 0)", B.sum(dtype=np.uint32).astype(np.uint32), x=B),
    case("tl.max(x, 1)", M.max(1), x=M),
    case("tl.max(x, 0)", np.nanmax(N), x=N),
    case("tl.min(x, 0)", M.min(0), x=M),
    case("tl.max(x, 1, return_indices=True)[1]", M.argmax(1).astype(np.int32), x=M),
    case("tl.argmax(x, 1)", M.argmax(1).astype(np.int32), x=M),
    case("tl.argmin(x, 0)", M.argmin(0).astype(np.int32), x=M),
    case("tl.argmax(x, 0)", np.nanargmax(N).astype(np.int32), x=N),
    case("tl.xor_sum(x, 0)", np.bitwise_xor.reduce(I), x=I),
    case("tl.reduce_or(x, 0)", np.bitwise_or.reduce(J), x=J),
    case("tl.reduce(x, 1, lambda_add)", M.sum(1), 1e-5, x=M),
    case("tl.cumsum(x, 0)", np.cumsum(F), 1e-4, x=F),
    case("tl.cumsum(x, 1, reverse=True)", np.cumsum(M[:, ::-1], 1)[:, ::-1], 1e-4, x=M),
    case("tl.cumprod(x, 0)", np.cumprod(P[:16]), 1e-5, x=P[:16]),
    case("tl.associative_scan(x, 0, lambda_add)", np.cumsum(F), 1e-4, x=F),
    case("tl.sort(x)", np.sort(F), x=F),
    case("tl.sort(x, descending=True)", np.sort(M, 1)[:, ::-1], x=M),
    case("tl.topk(x, 4)", np.sort(F)[::-1][:4], x=F),
    case("tl.histogram(x, 64)", np.bincount(J, minlength=64).astype(np.int32), x=J),
    # Products
    case("tl.dot(x, y)", M @ W, 1e-4, x=M, y=W),
    case("tl.dot(x, y, tl.full([16, 16], 2, tl.float32))", M @ W + 2, 1e-4, x=M, y=W),
    case("tl.dot(x, tl.trans(x), allow_tf32=False)", M @ M.T, 1e-4, x=M),
    case("tl.dot(x, y, out_dtype=tl.float16)", PRODUCT, 2e-3, x=H2, y=W2),
    case("tl.dot(x, tl.trans(x))", S.astype(np.int32) @ S.astype(np.int32).T, x=S),
    # Programs
    case("x + tl.program_id(0) + tl.num_programs(1)", J + 1, x=J),
    case("tl.multiple_of(tl.max_contiguous(tl.max_constancy(x, 4), 4), 4)", F, x=F),
]  # fmt: skip


def lambda_add(a, b):  # type: ignore[no-untyped-def]  # noqa: ANN201
    return a + b


def expression_kernel(found: Case) -> tuple[tl.JITFunction, Array]:
    """The kernel of a case, and where its result goes."""
    kernel = expression(found.text, found.inputs, found.wanted, lambda_add=tl.jit(lambda_add))
    return kernel, np.zeros(found.wanted.shape, found.wanted.dtype)


@pytest.mark.parametrize("found", CASES, ids=lambda c: c.text)
def test_expression(found: Case) -> None:
    results = evaluate(found.text, found.inputs, found.wanted, lambda_add=tl.jit(lambda_add))
    for result in results:
        if found.rtol == 0.0:
            np.testing.assert_array_equal(result, found.wanted)
        else:
            np.testing.assert_allclose(
                result.astype(np.float64),
                found.wanted.astype(np.float64),
                rtol=found.rtol,
                atol=found.rtol,
            )


# Statements, memory and what has tests of its own.
ELSEWHERE = frozenset((
    "load", "store", "atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or",
    "atomic_xor", "atomic_xchg", "atomic_cas", "make_block_ptr", "advance",
    "make_tensor_descriptor", "_experimental_make_tensor_descriptor",
    "load_tensor_descriptor", "store_tensor_descriptor", "range", "static_range", "assume",
    "debug_barrier", "static_assert", "static_print", "device_assert", "device_print",
    "python.print", "python.isinstance", "philox", "randint4x", "randint",
    "uint_to_uniform_float", "rand", "rand4x", "pair_uniform_to_normal", "randn", "randn4x",
    "to",
))  # fmt: skip


def test_every_function_has_a_case() -> None:
    texts = " ".join(found.text for found in CASES)
    covered = {name for found in CASES for name in found.covers}
    missing = [
        name
        for name in BUILTINS
        if name not in ELSEWHERE and name not in covered and f"{name}(" not in texts
    ]
    assert missing == []
    assert set(BUILTINS) >= ELSEWHERE
