"""Reports about memory and compile time (CASES section 9)."""

import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import luban
from luban.core.progress import listening
from tests.conformance.case import Array, model_of

PAGE_BYTES = 4096

NET = """g (float[1, 3, h, w] x, float[16, 3, 3, 3] w1, float[16, 16, 3, 3] w2)
=> (float[1, 16, h, w] y)
{
    a = Conv <pads = [1, 1, 1, 1]> (x, w1)
    b = Relu(a)
    c = Conv <pads = [1, 1, 1, 1]> (b, w2)
    y = Sigmoid(c)
}"""


def resident_bytes() -> int:
    """Memory of this process that is in use now, on Linux."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES


@pytest.mark.slow
def test_r1_memory_stays_flat_while_shapes_change() -> None:
    random = np.random.default_rng(0)
    weights: dict[str, Array] = {
        "w1": random.standard_normal((16, 3, 3, 3), np.float32),
        "w2": random.standard_normal((16, 16, 3, 3), np.float32),
    }
    model = luban.compile(model_of(NET))

    def run(height: int, width: int) -> None:
        model({"x": np.ones((1, 3, height, width), np.float32), **weights})

    before = resident_bytes()
    for _ in range(20):
        run(100, 100)
    largest = resident_bytes()
    for height, width in random.integers(80, 101, (2000, 2)):
        run(int(height), int(width))
    for _ in range(100):
        run(80, 80)
    assert resident_bytes() <= largest + max((largest - before) // 5, 8 << 20)


def unrolled(trips: int) -> onnx.ModelProto:
    """A loop body of 20 operations, written out `trips` times."""
    nodes, last = [], "x"
    for i in range(trips * 20):
        operator = ("Add", "Mul", "Sub", "Tanh", "Add")[i % 5]
        inputs = [last] if operator == "Tanh" else [last, "x"]
        nodes.append(helper.make_node(operator, inputs, [f"v{i}"]))
        last = f"v{i}"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", last))
    graph = helper.make_graph(nodes, "unrolled", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.slow
def test_r10_compile_time_is_linear_in_the_number_of_nodes() -> None:
    seconds = {}
    for trips in (250, 2000):
        model = unrolled(trips)
        start = time.perf_counter()
        compiled = luban.compile(model)
        seconds[trips] = time.perf_counter() - start
        (y,) = compiled(np.zeros(3, np.float32)).values()
        np.testing.assert_array_equal(y, np.zeros(3, np.float32))
    assert seconds[2000] < 8 * 2.5 * seconds[250]


def test_r10_a_compile_says_how_far_it_is() -> None:
    """Stages by name, and of the longest how many parts are done."""
    seen: list[tuple[str, int, int]] = []
    with listening(lambda stage, done, total: seen.append((stage, done, total))):
        luban.compile(unrolled(40))
    stages = {stage for stage, _, _ in seen}
    assert len(stages) >= 3
    assert any(0 < done < total for _, done, total in seen)
