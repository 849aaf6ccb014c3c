"""Reports about optimisers and fusion (CASES section 1): the same answer with and without them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import luban
from luban.engine.pipeline import PASSES
from tests.conformance.case import PATHS, Array, Case, check, model_of


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def identity_cases() -> Iterator[Case]:
    """G1: a chain of operations that do nothing."""
    x = np.array([1.5, -0.0, -2, np.inf, np.nan], np.float32)
    for first in ("Identity(x)", "Cast <to = 1> (x)", "Dropout(x)"):
        for product in ("Mul(mid, one)", "Mul(one, mid)"):
            yield Case(
                "G1",
                f"{first.split('(')[0]} then {product}",
                "g (float[n] x) => (float[n] y) <float a = {1}, float zero = {0}> "
                f"{{ mid = {first} one = Div(a, a) p = {product} y = Add(p, zero) }}",
                {"x": x},
                (x + np.float32(0),),
            )


CASES = [
    *identity_cases(),
    *(
        Case(
            "G2",
            f"{view.split('(')[0]} of an initializer that nothing else uses",
            f"g (float[2, 3] x) => (float[2, 3] y) <float[1, 6] w = {{1, 2, 3, 4, 5, 6}}, "
            f"int64[3] shape = {{2, 3, 1}}, int64[1] axes = {{2}}> "
            f"{{ r = Reshape(w, shape) s = {view} y = Add(x, s) }}",
            {"x": np.ones((2, 3), np.float32)},
            (np.array([[2, 3, 4], [5, 6, 7]], np.float32),),
        )
        for view in ("Squeeze(r, axes)", "Flatten(r)")
    ),
    Case(
        "G4",
        "a folded value that is itself an output",
        "g (bool c) => (float[3] zeros, float[3] y) <int64[1] size = {3}> {"
        " zeros = ConstantOfShape(size)"
        " y = If (c) <then_branch = t () => (float[3] a) { a = Exp(zeros) },"
        " else_branch = e () => (float[3] b) { b = Identity(zeros) }> }",
        {"c": np.array(True)},
        (np.zeros(3, np.float32), np.ones(3, np.float32)),
    ),
    Case(
        "G5",
        "a constant branch keeps the initializer that it holds",
        "g (float[1, 3] x) => (float[3] y) <bool yes = {1}> {"
        " y = If (yes) <then_branch = t () => (float[3] a) <int64[1] axes = {0}>"
        " { a = Squeeze(x, axes) },"
        " else_branch = e () => (float[3] b) <int64[1] axes = {0}> { b = Squeeze(x, axes) }> }",
        {"x": normal(1, 3)},
        (normal(1, 3)[0],),
    ),
    Case(
        "G13",
        "concatenation with an expanded row",
        "g (float[1, 4] x, float[2, 4] y) => (float[5, 4] z) <int64[2] shape = {3, 4}> "
        "{ e = Expand(x, shape) z = Concat <axis = 0> (e, y) }",
        {"x": normal(1, 4), "y": normal(2, 4, seed=1)},
        (np.concatenate([np.repeat(normal(1, 4), 3, 0), normal(2, 4, seed=1)]),),
    ),
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case, path: str) -> None:
    check(case, PATHS[path])


def answers(text: str, inputs: dict[str, Array], *, passes: bool = True) -> dict[str, Array]:
    """Outputs of the compiled model, with or without passes."""
    without = () if passes else [each.name for each in PASSES]
    return luban.compile(model_of(text), without=without)(inputs)


@pytest.mark.parametrize("left_out", sorted({each.name for each in PASSES}))
def test_g1_operations_that_do_nothing_are_harmless_without_any_one_pass(left_out: str) -> None:
    for case in list(identity_cases())[::5]:
        model = luban.compile(model_of(case.text), without=[left_out])
        (expected,) = case.expected
        np.testing.assert_array_equal(model(dict(case.inputs))["y"], expected)


def test_g2_a_hundred_runs_give_the_same_bits() -> None:
    case = next(case for case in CASES if case.id == "G2")
    model = luban.compile(model_of(case.text))
    assert len({model(dict(case.inputs))["y"].tobytes() for _ in range(100)}) == 1


NORMALISE = """g (TYPE[t, 64] x, TYPE[t, 64] r, TYPE[64] scale, TYPE[64] bias)
=> (TYPE[t, 64] mid, TYPE[t, 64] y)
<int64[1] last = {-1}, float two_f32 = {2}, float eps_f32 = {0.0001}>
{
    two = CastLike(two_f32, x)
    eps = CastLike(eps_f32, x)
    mid = Add(x, r)
    m = ReduceMean(mid, last)
    d = Sub(mid, m)
    q = Pow(d, two)
    v = ReduceMean(q, last)
    e = Add(v, eps)
    s = Sqrt(e)
    n = Div(d, s)
    g1 = Mul(n, scale)
    y = Add(g1, bias)
}"""


@pytest.mark.parametrize(
    ("name", "dtype", "bound"), [("float", np.float32, 2e-6), ("float16", np.float16, 4e-3)]
)
def test_g7_normalisation_keeps_the_output_in_its_middle(
    name: str, dtype: type[np.floating[Any]], bound: float
) -> None:
    inputs: dict[str, Array] = {
        "x": normal(9, 64).astype(dtype),
        "r": normal(9, 64, seed=1).astype(dtype),
        "scale": normal(64, seed=2).astype(dtype),
        "bias": normal(64, seed=3).astype(dtype),
    }
    got = answers(NORMALISE.replace("TYPE", name), inputs)
    exact = {key: value.astype(np.float64) for key, value in inputs.items()}
    mid = exact["x"] + exact["r"]
    centred = mid - mid.mean(-1, keepdims=True)
    y = (
        centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-4) * exact["scale"]
        + exact["bias"]
    )
    np.testing.assert_array_equal(got["mid"], inputs["x"] + inputs["r"])
    np.testing.assert_allclose(got["y"], y, rtol=0, atol=bound * np.abs(y).max())


@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize("addend", ["[1, 8, 1, 1]", "[1, 8, 9, 9]"])
@pytest.mark.parametrize("kernel", [1, 3])
def test_g8_convolution_add_relu_equals_its_parts(kernel: int, addend: str, dtype: str) -> None:
    pad = kernel // 2
    numpy_dtype = np.float16 if dtype == "float16" else np.float32
    inputs = {
        "x": normal(1, 4, 9, 9).astype(numpy_dtype),
        "w": normal(8, 4, kernel, kernel, seed=1).astype(numpy_dtype),
        "a": normal(*map(int, addend.strip("[]").split(",")), seed=2).astype(numpy_dtype),
    }
    head = f"g ({dtype}[1, 4, 9, 9] x, {dtype}[8, 4, {kernel}, {kernel}] w, {dtype}{addend} a) => "
    body = f"c = Conv <pads = [{pad}, {pad}, {pad}, {pad}]> (x, w) s = Add(c, a) y = Relu(s)"
    text = f"{head} ({dtype}[1, 8, 9, 9] y) {{ {body} }}"
    fused, parts = answers(text, inputs)["y"], answers(text, inputs, passes=False)["y"]
    bound = 2e-3 if dtype == "float16" else 1e-6
    np.testing.assert_allclose(fused, parts, rtol=0, atol=bound * float(np.abs(parts).max()))
    assert float(fused.min()) == 0.0


def test_g10_one_more_output_changes_no_other() -> None:
    body = '{ a = Abs(x) p = Pad <mode = "edge"> (a, pads) y = Add(p, p) }'
    head = "g (float[1, 2, 5, 6] x) => (%s float[b, c, h, w] y) "
    body = f"<int64[8] pads = {{0, 0, 34, 0, 0, 0, 0, 24}}> {body}"
    x = {"x": normal(1, 2, 5, 6)}
    alone = answers(f"{head % ''} {body}", x)
    both = answers(f"{head % 'float[b, c, h, w] p,'} {body}", x)
    expected = 2 * np.pad(np.abs(x["x"]), [(0, 0), (0, 0), (34, 0), (0, 24)], mode="edge")
    np.testing.assert_array_equal(alone["y"], expected)
    np.testing.assert_array_equal(both["y"], expected)


def test_g11_the_order_of_outputs_has_no_effect() -> None:
    inputs = {"x": normal(2000, 3)}
    body = (
        "<int64[1] low = {-1850}, int64[1] high = {-1849}, int64[1] end = {2000}, "
        "int64[1] zero = {0}, int64[1] step = {43}> {"
        " p = Slice(x, low, high, zero) q = Slice(x, low, end, zero, step)"
        " n = Neg(p) s = ReduceSum <keepdims = 0> (q) m = ReduceMax <keepdims = 0> (q) }"
    )
    orders = ("float[1, 3] n, float s, float m", "float m, float s, float[1, 3] n")
    first, second = (
        answers(f"g (float[2000, 3] x) => ({order}) {body}", inputs) for order in orders
    )
    strided = inputs["x"][-1850::43]
    np.testing.assert_array_equal(first["n"], -inputs["x"][-1850:-1849])
    np.testing.assert_array_equal(first["m"], strided.max())
    np.testing.assert_allclose(first["s"], strided.sum(dtype=np.float64), rtol=1e-5)
    for name, value in first.items():
        assert second[name].tobytes() == value.tobytes()
