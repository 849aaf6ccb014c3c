"""Reports about NaN, infinities, integers, casts and half types (CASES section 3)."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import luban
from luban.core.types import tensor
from luban.engine.steps import HostStep
from luban.graph import build
from luban.graph.evaluate import evaluate
from luban.ir.node import Graph
from tests.conformance.case import PATHS, Array, Case, check, model_of

NAN = float("nan")
INF = float("inf")


def f32(*values: object) -> Array:
    return np.array(values, np.float32)


def i64(*values: object) -> Array:
    return np.array(values, np.int64)


def i32(*values: object) -> Array:
    return np.array(values, np.int32)


def nan_cases() -> Iterator[Case]:
    """N1: whatever the operand order and length, NaN in gives NaN out."""
    partners: dict[str, Array] = {
        "scalar": np.array(0.5, np.float32),
        "one": f32(0.5),
        "many": f32(*[0.5] * 17),
    }
    for label, partner in partners.items():
        x = np.resize(f32(NAN, 1), partner.size if partner.size == 17 else 2)
        for operator, plain in (("Max", 1.0), ("Min", 0.5)):
            for first, second in (("x", "y"), ("y", "x")):
                yield Case(
                    "N1",
                    f"{operator} of {first} and {second} with {label} keeps NaN",
                    f"g (float[{x.size}] x, float{list(partner.shape) or ''} y) => (float[k] z) "
                    f"{{ z = {operator}({first}, {second}) }}",
                    {"x": x, "y": partner},
                    (np.where(np.isnan(x), x, np.float32(plain)),),
                )
    values = np.resize(f32(NAN, -2, 3, INF), 17)
    for operator, expected in {
        "Relu(x)": np.where(np.isnan(values), values, values.clip(0)),
        "Sign(x)": np.sign(values),
        "Clip(x, low, high)": np.where(np.isnan(values), values, values.clip(-1, 1)),
    }.items():
        yield Case(
            "N1",
            f"{operator.split('(')[0]} keeps NaN",
            "g (float[17] x) => (float[17] z) "
            f"<float low = {{-1}}, float high = {{1}}> {{ z = {operator} }}",
            {"x": values},
            (expected,),
        )


def reduce_nan_cases() -> Iterator[Case]:
    """N2: one NaN is enough, wherever it stands."""
    rows = [[NAN] * k + [42.0] for k in range(1, 21)] + [
        [42.0] * 5 + [NAN],
        [1.0] * 33 + [NAN, 2.0],
    ]
    for row in rows:
        for operator in ("ReduceMax", "ReduceMin"):
            yield Case(
                "N2",
                f"{operator} of {len(row)} with {sum(map(np.isnan, row))} NaN",
                f"g (float[n] x) => (float y) {{ y = {operator} <keepdims = 0> (x) }}",
                {"x": f32(*row)},
                (np.array(NAN, np.float32),),
            )


def scatter_case() -> Case:
    """N13: a thousand updates of a hundred places; the sums are those of one loop in order."""
    indices = np.random.default_rng(0).integers(0, 100, (1000, 1))
    updates = np.random.default_rng(1).standard_normal(1000, np.float32)
    total = np.zeros(100, np.float32)
    for place, update in zip(indices[:, 0], updates, strict=True):
        total[place] += update
    return Case(
        "N13",
        "scatter adds duplicates in order",
        "g (float[n] x, int64[m, 1] i, float[m] u) => (float[n] y) "
        '{ y = ScatterND <reduction = "add"> (x, i, u) }',
        {"x": np.zeros(100, np.float32), "i": indices, "u": updates},
        (total,),
    )


_WILD = f32(NAN, INF, -INF, 3e9, -1.5, 1.5, -0.0)
_SATURATED: dict[str, tuple[int, type, list[int]]] = {
    "int32": (6, np.int32, [0, 2**31 - 1, -(2**31), 2**31 - 1, -1, 1, 0]),
    "int64": (7, np.int64, [0, 2**63 - 1, -(2**63), 3_000_000_000, -1, 1, 0]),
    "uint32": (12, np.uint32, [0, 2**32 - 1, 0, 3_000_000_000, 0, 1, 0]),
    "uint8": (2, np.uint8, [0, 255, 0, 255, 0, 1, 0]),
}

CASES = [
    *nan_cases(),
    *reduce_nan_cases(),
    *(
        Case(
            "N4",
            f"float to {name} saturates and gives 0 for NaN",
            f"g (float[n] x) => ({name}[n] y) {{ y = Cast <to = {code}> (x) }}",
            {"x": _WILD},
            (np.array(values, dtype),),
        )
        for name, (code, dtype, values) in _SATURATED.items()
    ),
    Case(
        "N5",
        "integer division truncates",
        "g (int64[n] x, int64[n] y) => (int64[n] z) { z = Div(x, y) }",
        {"x": i64(8, -8, 7, -7), "y": i64(-3, 3, -2, 2)},
        (i64(-2, -2, -3, -3),),
    ),
    Case(
        "N8",
        "division by zero and of the lowest by -1",
        "g (int32[n] x, int32[n] y) => (int32[n] z) { z = Div(x, y) }",
        {"x": i32(7, -7, 0, -(2**31), 5), "y": i32(0, 0, 0, -1, 2)},
        (i32(0, 0, 0, -(2**31), 2),),
    ),
    *(
        Case(
            "N8",
            f"modulus by zero and of the lowest by -1 with fmod {fmod}",
            f"g (int32[n] x, int32[n] y) => (int32[n] z) {{ z = Mod <fmod = {fmod}> (x, y) }}",
            {"x": i32(7, -7, -(2**31), -7), "y": i32(0, 0, -1, 4)},
            (i32(0, 0, 0, last),),
        )
        for fmod, last in ((0, 1), (1, -3))
    ),
    scatter_case(),
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case, path: str) -> None:
    check(case, PATHS[path])


def test_n7_right_shift_of_a_negative_is_arithmetic() -> None:
    x = build.parameter("x", tensor("i64", "n"))
    graph = Graph("shift", (x,), (build.binary("shift_right", x, 8),), ("y",))
    assert evaluate(graph, [i64(-3527, 3527)])[0].tolist() == [-14, 13]
    assert luban.compile(graph)(i64(-3527, 3527))["y"].tolist() == [-14, 13]


ROTATE = """g (bfloat16[t, 8] q, bfloat16[t, 8] cos, bfloat16[t, 8] sin) => (bfloat16[t, 8] y)
<int64[1] zero = {0}, int64[1] half = {4}, int64[1] all = {8}, int64[1] last = {1}>
{
    left = Slice(q, zero, half, last)
    right = Slice(q, half, all, last)
    turned = Neg(right)
    rotated = Concat <axis = 1> (turned, left)
    a = Mul(q, cos)
    b = Mul(rotated, sin)
    y = Add(a, b)
}"""


@pytest.mark.parametrize("path", PATHS)
def test_n10_half_precision_rounds_after_every_operator(path: str) -> None:
    random = np.random.default_rng(0)
    q, cos, sin = (
        random.standard_normal((16, 8)).astype(ml_dtypes.bfloat16).astype(np.float32)
        for _ in range(3)
    )
    rotated = np.concatenate([-q[:, 4:], q[:, :4]], 1)
    left, right = (
        part.astype(ml_dtypes.bfloat16).astype(np.float32) for part in (q * cos, rotated * sin)
    )
    expected = (left + right).astype(ml_dtypes.bfloat16)
    inputs = {
        name: value.astype(ml_dtypes.bfloat16)
        for name, value in (("q", q), ("cos", cos), ("sin", sin))
    }
    (got,) = PATHS[path](model_of(ROTATE), inputs)
    np.testing.assert_array_equal(got.view(np.uint16), expected.view(np.uint16))


NET = """g (float[1, 3, 17, 17] x, float[8, 3, 3, 3] w, float[8] b, float[2312, 5] m)
=> (float[1, 5] y)
{
    c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
    r = Relu(c)
    f = Flatten(r)
    p = MatMul(f, m)
    y = Softmax(p)
}"""


def test_n14_same_bits_on_every_run_and_thread_count() -> None:
    random = np.random.default_rng(0)
    shapes = {"x": (1, 3, 17, 17), "w": (8, 3, 3, 3), "b": (8,), "m": (2312, 5)}
    inputs = {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    model = model_of(NET)
    answers = set()
    for threads in (1, 2, 3, 5):
        compiled = luban.compile(model, threads=threads)
        answers |= {compiled(inputs)["y"].tobytes() for _ in range(100)}
    assert len(answers) == 1


def half_net(dtype: type[np.floating[Any]]) -> onnx.ModelProto:
    """20 layers of a product, a bias and an activation, 128 wide, the weights in the model."""
    lines, last = [], "x"
    for i in range(20):
        lines += [f"p{i} = MatMul({last}, w{i})", f"s{i} = Add(p{i}, b)", f"r{i} = Relu(s{i})"]
        last = f"r{i}"
    name = {np.float16: "float16", np.float32: "float"}[dtype]
    body = " ".join(lines) + " y = Identity(r19)"
    model = model_of(f"g ({name}[n, 128] x) => ({name}[n, 128] y) {{ {body} }}")
    random = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {f"w{i}": (128, 128) for i in range(20)} | {"b": (128,)}
    for label, shape in shapes.items():
        weight = (random.standard_normal(shape) / 8).astype(dtype)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, label))
    return model


def half_images(dtype: type[np.floating[Any]]) -> onnx.ModelProto:
    """20 layers of a 3 x 3 convolution and an activation, 32 channels, the weights in the model."""
    lines, last = [], "x"
    for i in range(20):
        lines += [f"c{i} = Conv <pads = [1, 1, 1, 1]> ({last}, w{i}, b)", f"r{i} = Relu(c{i})"]
        last = f"r{i}"
    name = {np.float16: "float16", np.float32: "float"}[dtype]
    image = f"{name}[n, 32, 28, 28]"
    model = model_of(f"g ({image} x) => ({image} y) {{ {' '.join(lines)} y = Identity(r19) }}")
    random = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {f"w{i}": (32, 32, 3, 3) for i in range(20)}
    for label, shape in (shapes | {"b": (32,)}).items():
        weight = (random.standard_normal(shape) / 16).astype(dtype)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, label))
    return model


HalfNet = Callable[[type[np.floating[Any]]], onnx.ModelProto]


@pytest.mark.parametrize("net", [half_net, half_images])
def test_n11_a_half_model_has_no_kernel_more_than_a_float_one(net: HalfNet) -> None:
    """No cast stands alone: halves are read and rounded where they are computed with."""
    half, full = (luban.compile(net(dtype)) for dtype in (np.float16, np.float32))
    count = [len(model.executor.program.steps) for model in (half, full)]
    assert count[0] <= count[1]
    assert not [step for step in half.executor.program.steps if isinstance(step, HostStep)]


@pytest.mark.slow
@pytest.mark.parametrize(("net", "shape"), [(half_net, (64, 128)), (half_images, (1, 32, 28, 28))])
def test_n11_a_half_model_takes_at_most_a_tenth_longer_than_a_float_one(
    net: HalfNet, shape: tuple[int, ...]
) -> None:
    """Processor time, in turns, the least of many."""
    half, full = (luban.compile(net(d), threads=1) for d in (np.float16, np.float32))
    feeds = [np.full(shape, 0.25, d) for d in (np.float16, np.float32)]
    seconds: dict[int, list[float]] = {0: [], 1: []}
    for _ in range(100):
        for which, model in enumerate((half, full)):
            start = time.process_time()
            for _ in range(5):
                model(feeds[which])
            seconds[which].append(time.process_time() - start)
    assert min(seconds[0]) <= 1.1 * min(seconds[1])
