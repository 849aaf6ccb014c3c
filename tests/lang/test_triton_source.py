"""Block programs printed as Triton source, read again by our front end: the same results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from luban.codegen.triton_source import triton_source
from luban.core.errors import UnsupportedError
from luban.frontend.kernel import build
from luban.lang.arguments import Memory, specialise
from luban.lang.jit import JITFunction
from luban.tile import FunctionBuilder, Module, run
from tests.lang import kernels
from tests.lang.expressions import define, define_module
from tests.lang.test_language import CASES, Case, expression_kernel

Array = np.ndarray[Any, np.dtype[Any]]


def _program(kernel: JITFunction, *arguments: Any, **keywords: Any) -> tuple[Module, Any]:
    given = kernel.kernel_source.bind(arguments, keywords)
    call = specialise(kernel.arg_names, given, kernel.kernel_source.constexprs)
    return build(kernel.kernel_source, call.types, call.constants), call


def again(kernel: JITFunction, grid: int, *arguments: Any, **keywords: Any) -> str:
    """Print a kernel, read it, run both in the evaluator; the text."""
    module, call = _program(kernel, *arguments, **keywords)
    text = triton_source(module)
    source = define_module(text, kernel.__name__).kernel_source
    second = build(source, call.types, {})
    results = []
    for program in (module, second):
        memories = [v.elements().copy() if isinstance(v, Memory) else v for v in call.values]
        run(program, [*memories, grid, 1, 1], grid)
        results.append(memories)
    for one, other in zip(*results, strict=True):
        if isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other)
    return text


def numbers(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_the_text_of_a_small_kernel() -> None:
    x = numbers(64)
    text = again(kernels.add_kernel, 1, x, x.copy(), x.copy(), 60, BLOCK=64)
    assert kernels.add_kernel.triton_source(x, x.copy(), x.copy(), 60, BLOCK=64) == text
    assert text.startswith("import triton\nimport triton.language as tl\n")
    assert "@triton.jit\ndef add_kernel(x_ptr, y_ptr, out_ptr, n):" in text
    assert "tl.store(out_ptr + " in text


@pytest.mark.parametrize(
    "launch",
    [
        lambda: again(
            kernels.softmax_kernel, 3, numbers(3, 50), numbers(3, 50), 50, 50, 50, BLOCK=64
        ),
        lambda: again(
            kernels.matmul_kernel, 4, numbers(30, 20), numbers(20, 30), numbers(30, 30),
            30, 30, 20, 20, 1, 30, 1, 30, 1, BM=16, BN=16, BK=16, GROUP=2, ACT="leaky",
        ),
        lambda: again(
            kernels.layer_norm_kernel, 2, numbers(2, 100), numbers(2, 100), numbers(100),
            numbers(100), 100, 100, 1e-5, BLOCK=64,
        ),
        lambda: again(
            kernels.attention_kernel, 2, *(numbers(40, 16) for _ in range(4)), 0.25, 40,
            D=16, BM=32, BN=16,
        ),
        lambda: again(kernels.dropout_kernel, 2, numbers(100), numbers(100), 100, 0.5, 7, BLOCK=64),
    ],
)  # fmt: skip
def test_kernels(launch: Callable[[], str]) -> None:
    launch()


def test_branches_and_loops() -> None:
    kernel = define(
        """def kernel(a, b):
    n = tl.load(b)
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    for i in range(steps, 0, -3):
        tl.atomic_add(a, i)
    if steps > 5:
        tl.store(a + 1, steps)
"""
    )
    again(kernel, 1, np.zeros(2, np.int32), np.array([27], np.int32))


# What Triton has no one word for.
UNPRINTED = ("topk",)


@pytest.mark.parametrize(
    "found",
    [c for c in CASES if not any(word in c.text for word in UNPRINTED)],
    ids=lambda c: c.text,
)
def test_expressions(found: Case) -> None:
    kernel, out = expression_kernel(found)
    again(kernel, 1, *found.inputs.values(), out)


def test_what_has_no_words_is_refused() -> None:
    b = FunctionBuilder("odd")
    x = b.pointer("x", "f32")
    b.scatter(x, b.arange(3), b.extract_slice(b.gather(x, b.arange(8)), (2,), (3,)))
    with pytest.raises(UnsupportedError) as caught:
        triton_source(b.finish())
    assert caught.value.items == ("arange to tile<3xi64>", "extract_slice to tile<3xf32>")
    assert "odd has no Triton source" in str(caught.value)
