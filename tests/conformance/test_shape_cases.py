"""Reports about shapes and control flow (CASES section 5)."""

import math

import numpy as np
import pytest

import luban
from luban.core.errors import LubanError
from tests.conformance.case import PATHS, Array, Case, check, model_of


def f32(values: object) -> Array:
    return np.array(values, np.float32)


EARLY = """g (int64 trips, bool go, float[4] x) => (float[4] last, float[k, 4] all)
{
    last, all = Loop (trips, go, x)
        <body = b (int64 i, bool c, float[4] s) => (bool stop, float[4] t, float[4] out)
        <bool no = {0}, float one = {1}>
        { stop = Identity(no) t = Add(s, one) out = Identity(t) }>
}"""

NESTED = """g (int64 trips, bool go, int64 start) => (int64 count)
<int64 one = {1}>
{
    count = Loop (trips, go, start) <body = b (int64 i, bool c, int64 s) => (bool again, int64 t)
        <bool yes = {1}, int64 two = {2}>
        {
            again = Identity(yes)
            r = Mod(i, two)
            odd = Cast <to = 9> (r)
            t = If (odd) <then_branch = p () => (int64 u) { u = Identity(s) },
                          else_branch = q () => (int64 v) { v = Add(s, one) }>
        }>
}"""

INLINED = """g (float[n, 2, 4, 4] x, float[3, 4, 1, 1] w) => (float[n, 3, 4, 4] y)
{ y = local.block(x, w) }
<domain: "local", opset_import: ["" : 21]>
block (x, w) => (y)
{
    repeats = Constant <value = int64[4] {1, 1, 1, 1}> ()
    t = Tile(x, repeats)
    c = Concat <axis = 1> (t, x)
    y = Conv(c, w)
}"""


def inlined_case() -> Case:
    x = np.random.default_rng(0).integers(-4, 5, (2, 2, 4, 4)).astype(np.float32)
    w = np.random.default_rng(1).integers(-4, 5, (3, 4, 1, 1)).astype(np.float32)
    y = np.einsum("nchw,oc->nohw", np.concatenate([x, x], 1), w[:, :, 0, 0])
    return Case("S10", "a function of the model is inlined", INLINED, {"x": x, "w": w}, (y,))


CONVNEXT = """g (float[n, 6, 9, 9] x, float[6, 1, 7, 7] depthwise, float[6] gain, float[6] offset,
    float[6, 24] wide, float[24] wide_bias, float[24, 6] narrow, float[6] scale)
=> (float[n, 6, 9, 9] y)
{ y = local.block(x, depthwise, gain, offset, wide, wide_bias, narrow, scale) }
<domain: "local", opset_import: ["" : 21, "local" : 1]>
block (x, depthwise, gain, offset, wide, wide_bias, narrow, scale) => (y)
{
    c = Conv <group = 6, pads = [3, 3, 3, 3]> (x, depthwise)
    t = Transpose <perm = [0, 2, 3, 1]> (c)
    n = LayerNormalization <axis = -1, epsilon = 1e-6> (t, gain, offset)
    p = MatMul(n, wide)
    b = Add(p, wide_bias)
    a = local.activation(b)
    q = MatMul(a, narrow)
    s = Mul(q, scale)
    u = Transpose <perm = [0, 3, 1, 2]> (s)
    y = Add(u, x)
}
<domain: "local", opset_import: ["" : 21]>
activation (x) => (y) { y = Gelu(x) }"""


def convnext_case() -> Case:
    """S10: a block of ConvNeXt as one function that calls another."""
    random = np.random.default_rng(0)
    shapes = {
        "x": (2, 6, 9, 9),
        "depthwise": (6, 1, 7, 7),
        "gain": (6,),
        "offset": (6,),
        "wide": (6, 24),
        "wide_bias": (24,),
        "narrow": (24, 6),
        "scale": (6,),
    }
    inputs = {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    exact = {name: value.astype(np.float64) for name, value in inputs.items()}
    padded = np.pad(exact["x"], [(0, 0), (0, 0), (3, 3), (3, 3)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (7, 7), (2, 3))
    c = np.einsum("nchwij,cij->nhwc", windows, exact["depthwise"][:, 0])
    centred = c - c.mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    b = (normal * exact["gain"] + exact["offset"]) @ exact["wide"] + exact["wide_bias"]
    a = b * 0.5 * (1 + np.vectorize(math.erf)(b / math.sqrt(2)))
    y = (a @ exact["narrow"] * exact["scale"]).transpose(0, 3, 1, 2) + exact["x"]
    return Case(
        "S10",
        "a function that calls another is inlined",
        CONVNEXT,
        inputs,
        (y.astype(np.float32),),
        tolerance=2e-6,
    )


CASES = [
    Case(
        "S1",
        "the size left open next to a zero is 0",
        "g (float[a, b] x, int64[2] shape) => (float[m, n] y) { y = Reshape(x, shape) }",
        {"x": np.zeros((1, 0), np.float32), "shape": np.array([-1, 0])},
        (np.zeros((0, 0), np.float32),),
    ),
    Case(
        "S1",
        "allowzero keeps the zeros of the shape",
        "g (float[0, 8, 2] x, int64[3] shape) => (float[a, b, c] y) "
        "{ y = Reshape <allowzero = 1> (x, shape) }",
        {"x": np.zeros((0, 8, 2), np.float32), "shape": np.array([0, 0, 4])},
        (np.zeros((0, 0, 4), np.float32),),
    ),
    Case(
        "S4",
        "a computed batch survives Concat and Reshape",
        "g (float[n, 3, 2] x) => (float[n, k] y) <int64[1] left = {-1}, int64[1] zero = {0}> "
        "{ s = Shape(x) b = Gather(s, zero) t = Concat <axis = 0> (b, left) y = Reshape(x, t) }",
        {"x": np.arange(12, dtype=np.float32).reshape(2, 3, 2)},
        (np.arange(12, dtype=np.float32).reshape(2, 6),),
    ),
    Case(
        "S6",
        "a loop without trips",
        EARLY,
        {"trips": np.array(0), "go": np.array(True), "x": f32([1, 2, 3, 4])},
        (f32([1, 2, 3, 4]), np.zeros((0, 4), np.float32)),
    ),
    Case(
        "S6",
        "a loop that stops after its first trip",
        EARLY,
        {"trips": np.array(5), "go": np.array(True), "x": f32([1, 2, 3, 4])},
        (f32([2, 3, 4, 5]), f32([[2, 3, 4, 5]])),
    ),
    Case(
        "S7",
        "loop state that only a nested branch uses",
        NESTED,
        {"trips": np.array(7), "go": np.array(True), "start": np.array(10)},
        (np.array(14),),
    ),
    inlined_case(),
    convnext_case(),
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case, path: str) -> None:
    check(case, PATHS[path])


def test_s4_the_output_keeps_rank_and_batch() -> None:
    case = next(case for case in CASES if case.id == "S4")
    (output,) = luban.compile(model_of(case.text)).outputs
    assert output.shape == ("n", 6)


def test_s1_a_reshape_that_cannot_be_names_node_and_shapes() -> None:
    model = luban.compile(
        model_of(
            "g (float[a, b] x, int64[1] shape) => (float[n] y) { [head] y = Reshape(x, shape) }"
        )
    )
    with pytest.raises(LubanError, match="head") as caught:
        model({"x": np.zeros((0, 1), np.float32), "shape": np.array([1])})
    message = str(caught.value)
    assert "[0, 1]" in message
    assert "[1]" in message


def test_s9_one_compile_serves_all_batches() -> None:
    text = "g (float[n, 5] x, float[5, 3] w) => (float[n, 3] y) { m = MatMul(x, w) y = Relu(m) }"
    model = luban.compile(model_of(text))
    kernels = dict(model.compiled.kernels.linked)
    weights = np.arange(15, dtype=np.float32).reshape(5, 3)
    for batch in (1, 2, 3, 0, 64, 1):
        x = np.ones((batch, 5), np.float32)
        np.testing.assert_array_equal(model({"x": x, "w": weights})["y"], x @ weights)
    assert dict(model.compiled.kernels.linked) == kernels
