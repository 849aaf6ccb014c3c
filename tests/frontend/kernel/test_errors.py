"""Every refusal of the kernel front end: the words, the line, the caret."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luban.lang as tl
from luban.core.errors import InputError, LubanError
from luban.frontend.kernel import KernelError, KernelSource
from tests.lang.expressions import define

F = np.zeros(64, np.float32)
I = np.zeros(64, np.int32)

BODIES = [
    # Names and statements
    ("tl.store(a, nowhere)", "nowhere is not defined here"),
    ("import os", "import statements are not part of the language"),
    ("with a:\n    pass", "with statements are not part of the language"),
    ("x = lambda: 1", "Lambda is not part of the language"),
    ("x, y = 1, 2, 3", "3 values for 2 names"),
    ("x, y = 5", "5 has no parts, expected 2"),
    ("a[0] = 1.0", "only names and tuples of names can be assigned to"),
    ("tl.nothing(a)", "luban.lang has no nothing, or it is not part of this level"),
    ("x = tl.arange(0, 4).nothing", "int32[4] has no attribute nothing"),
    ("return tl.load(a)", "kernel returns fp32, expected nothing of a launched kernel"),
    ("assert 1 == 2, 'never'", "assert: never"),
    # Types
    ("x = tl.load(a) & 1", "& of fp32 and 1, expected integers"),
    ("x = tl.load(a) // 2", "// of fp32 and 2, expected integers"),
    ("x = ~tl.load(a)", "~ of fp32, expected integers"),
    ("x = tl.load(b) // tl.load(b).to(tl.uint32)", "signed and unsigned integers"),
    ("x = tl.load(a) @ tl.load(a)", "@ is not part of the language"),
    ("x = tl.load(a) + 'text'", "fp32 + 'text': expected numbers"),
    ("x = a + a", "pointer<fp32> + pointer<fp32>: expected a pointer and integers"),
    ("x = a * 2", "pointer<fp32> * 2: expected + or -"),
    ("x = 2 - a", "integer - pointer, expected +"),
    ("x = a + 1.5", "1.5, expected integers"),
    ("x = a + tl.load(a)", "fp32, expected integers"),
    ("x = -a", "pointer<fp32> has no sign"),
    ("x = tl.arange(0, 4).to(7)", "the type is 7, expected one like tl.float32"),
    ("x = tl.load(a).to(tl.int8, bitcast=True)", "bitcast of fp32 to int8: the widths differ"),
    ("x = a.to(tl.int64)", "a cast of pointer<fp32> to int64"),
    ("x = a.to(tl.pointer_type(tl.int64))", "a cast of pointer<fp32> to pointer<int64>"),
    ("x = tl.cast(tl.load(a), tl.float16, 'rtz')", "rounding 'rtz', expected 'rtne'"),
    ("x = 1 << 70\ntl.store(b, x)", "does not fit"),
    ("x = tl.exp(a)", "operand is pointer<fp32>, expected numbers"),
    # Shapes
    ("x = tl.arange(0, 3)", "tl.arange(0, 3) has 3 elements, expected a power of two"),
    ("x = tl.arange(0, tl.load(b))", "tl.arange: end is int32, expected a constant"),
    ("x = tl.zeros([tl.load(b)], tl.float32)", "an extent is int32, expected a constant"),
    ("x = tl.arange(0, 4) + tl.arange(0, 8)", "shapes (4,), (8,) do not broadcast"),
    ("x = tl.arange(0, 4)[0]", "int32[4] with an index, expected None and : only"),
    ("x = tl.arange(0, 4)[:, :]", "more axes than int32[4] has"),
    ("x = tl.reshape(tl.arange(0, 4), 3)", "int32[4] to shape [3], expected 4 elements"),
    ("x = tl.broadcast_to(tl.arange(0, 4), 8)", "int32[4] does not broadcast to [8]"),
    ("x, y = tl.broadcast(tl.arange(0, 4), tl.arange(0, 8))", "do not broadcast"),
    ("x = tl.trans(tl.arange(0, 4))", "axes [0, -1] of int32[4]"),
    ("x = tl.split(tl.arange(0, 4))", "tl.split of int32[4], expected a last axis of extent 2"),
    ("x = tl.sum(tl.load(a), 0)", "a reduction of fp32, expected a block"),
    ("x = tl.sum(tl.arange(0, 4), 1)", "axis 1 of int32[4], expected 0 to 0"),
    ("x = tl.sort(tl.zeros([4, 4], tl.int32), 0)", "expected the last axis"),
    ("x = tl.dot(tl.zeros([4, 4], tl.float32), tl.zeros([4, 4], tl.float16))", "types differ"),
    ("x = tl.dot(tl.zeros([4, 4], tl.float32), tl.zeros([8, 4], tl.float32))", "expected [M, K]"),
    ("x = tl.zeros([4, 4], tl.float32)\nx = tl.dot(x, x, tl.zeros([2, 2], tl.float32))",
     "tl.dot: acc is fp32[2, 2], expected shape [4, 4]"),
    # Memory
    ("x = tl.load(tl.arange(0, 4))", "tl.load of int32[4], expected pointers"),
    ("x = tl.load(a + tl.arange(0, 4), mask=tl.arange(0, 8) < 2)", "do not broadcast"),
    ("x = tl.advance(a, (1,))", "tl.advance of pointer<fp32>, expected a block pointer"),
    ("x = tl.make_block_ptr(a, (4,), (1,), (0,), (4,), (0,)) + 1", "arithmetic on a block pointer"),
    ("p = a\nif tl.load(b) > 0:\n    p = c\ntl.store(p, 1.0)", "p points to c and to a"),
    # Control flow
    ("if tl.arange(0, 4) > 2:\n    pass", "the condition is int1[4], expected one number"),
    ("while tl.arange(0, 4) > 2:\n    pass", "the condition is int1[4], expected one number"),
    ("x = 1 if tl.arange(0, 4) > 2 else 2", "the condition is int1[4], expected one number"),
    ("x = tl.load(a)\nfor i in range(4):\n    x += tl.arange(0, 4)", "x was fp32, and becomes"),
    ("for i in range(tl.load(b)):\n    return", "return inside a loop that the run counts"),
    ("for i in range(4):\n    pass\nelse:\n    pass", "for ... else is not part of the language"),
    ("while tl.load(b) > 0:\n    pass\nelse:\n    pass", "while ... else is not part of"),
    ("for i in range(0, 4, 0):\n    pass", "range with step 0"),
    ("for i in range(1, 2, 3, 4):\n    pass", "range of 4 arguments, expected 1 to 3"),
    ("for i, j in range(4):\n    pass", "the target of a range is a tuple, expected a name"),
    ("for i in tl.load(a):\n    pass", "for over fp32, expected a range or a tuple"),
    ("x = (1, 2)[tl.load(b)]", "an index that only the run knows, expected a constant"),
    ("for i in tl.static_range(tl.load(b)):\n    pass", "int32 is known at run time only"),
    ("x = tl.range(4)", "tl.range stands in a for statement only"),
    ("x = tl.static_range(4, tl.load(b))", "a bound is int32, expected a constant"),
    # Programs
    ("x = tl.program_id(3)", "axis 3 of the grid, expected 0, 1 or 2"),
    ("tl.static_assert(False, 'no')", "static_assert: no"),
    ("tl.static_assert(False)", "static_assert does not hold"),
    ("tl.static_assert(tl.load(b) > 1)", "tl.static_assert of what only the run knows"),
    ("x = tl.next_power_of_2(tl.load(b))", "next_power_of_2 of int32, expected a constant"),
    # Calls
    ("x = tl.load(a, nonsense=1)", "load: got an unexpected keyword argument 'nonsense'"),
    ("x = helper(tl.load(a))", "helper is a Python function, called with values of the run"),
    ("x = helper('text')", "helper: TypeError"),
    ("x = again(tl.load(a))", "again calls itself, or nests deeper than 64 calls"),
    ("x = 1 + 'text'", "1 + 'text': unsupported operand"),
]  # fmt: skip


def helper(x: Any) -> Any:
    """A function of Python's world."""
    return x + 1


@pytest.mark.parametrize(("body", "message"), BODIES, ids=[row[1] for row in BODIES])
def test_refused_with_the_line(body: str, message: str) -> None:
    text = "def kernel(a, b, c):\n" + "\n".join("    " + line for line in body.splitlines()) + "\n"
    names: dict[str, Any] = {"helper": helper}
    names["again"] = define("def again(x):\n    return again(x)\n", **names)
    names["again"].fn.__globals__["again"] = names["again"]
    kernel = define(text, **names)
    with pytest.raises(KernelError) as caught:
        kernel[(1,)](F, I, F.copy())
    shown = str(caught.value)
    assert message in shown
    assert "\n    " in shown, "the line"
    assert "^" in shown, "the caret"


def test_the_caret_is_under_the_place() -> None:
    kernel = define("def kernel(a):\n    x = tl.load(a) + nowhere\n")
    with pytest.raises(KernelError) as caught:
        kernel[(1,)](F)
    *_, line, caret = str(caught.value).partition("\nhint")[0].splitlines()
    assert line[caret.index("^") :].startswith("nowhere")


def test_a_function_of_the_language_outside_a_kernel() -> None:
    with pytest.raises(LubanError, match="arange was called outside a kernel"):
        tl.arange(0, 4)


def test_a_function_without_source() -> None:
    with pytest.raises(LubanError, match="its source cannot be read"):
        tl.jit(eval("lambda x: x"))


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        ((F,), {}, "kernel: missing a required argument: 'n'"),
        ((F, 1, 2), {}, "kernel: too many positional arguments"),
        ((F,), {"n": 1, "m": 2}, "kernel: got an unexpected keyword argument 'm'"),
        ((F, 1), {"n": 1}, "kernel: multiple values for argument 'n'"),
    ],
)
def test_wrong_calls(arguments: tuple[Any, ...], keywords: dict[str, Any], message: str) -> None:
    kernel = define("def kernel(a, n):\n    tl.store(a, n)\n")
    with pytest.raises(LubanError) as caught:
        kernel[(1,)](*arguments, **keywords)
    assert message in str(caught.value)


@pytest.mark.parametrize("grid", [(), (1, 2, 3, 4), (-1,), ("x",), 1.5])
def test_wrong_grids(grid: Any) -> None:
    kernel = define("def kernel(a):\n    tl.store(a, 1.0)\n")
    with pytest.raises((InputError, TypeError)):
        kernel[grid](F)


def test_arrays_that_no_kernel_takes() -> None:
    kernel = define("def kernel(a):\n    tl.store(a, 1.0)\n")
    with pytest.raises(InputError, match="argument 'a' is an array of complex64, expected numbers"):
        kernel[(1,)](np.zeros(3, np.complex64))
    with pytest.raises(InputError, match="does not fit 64 bits"):
        kernel[(1,)](1 << 70)


def test_the_hash_follows_what_a_kernel_reaches() -> None:
    one = define("def kernel(a):\n    tl.store(a, SIZE)\n", SIZE=4)
    two = define("def kernel(a):\n    tl.store(a, SIZE)\n", SIZE=5)
    assert one.kernel_source.digest() != two.kernel_source.digest()
    first = define("def inner(x):\n    return x + 1\n")
    second = define("def inner(x):\n    return x + 2\n")
    text = "def kernel(a):\n    tl.store(a, inner(1))\n"
    digests = {define(text, inner=i).kernel_source.digest() for i in (first, second, first)}
    assert len(digests) == 2


def test_a_class_is_no_kernel() -> None:
    with pytest.raises(LubanError, match="is no function with a body"):
        KernelSource(_Plain)


class _Plain:
    """No function."""
