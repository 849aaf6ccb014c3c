"""Reports about start-up, threads, devices, large files and errors (CASES sections 5 and 9)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import luban
from luban.core.errors import LubanError, LubanWarning, ModelError, OptionError
from luban.core.settings import child_environment
from luban.engine.describe import describe
from tests.conformance.case import model_of

SOURCE = str(Path(luban.__file__).parents[1])
MLP = """g (float[batch, 64] x) => (float[batch, 10] y)
{ a = MatMul(x, w) b = Relu(a) y = MatMul(b, v) }"""
FROZEN = "g (float[n, 255, 4, 4] x) => (float[1, 3, 85, 4, 4] y) { [head] y = Reshape(x, shape) }"


def saved_mlp(folder: Path) -> Path:
    random = np.random.default_rng(0)
    model = model_of(MLP)
    for name, shape in (("w", (64, 64)), ("v", (64, 10))):
        weight = random.standard_normal(shape, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    path = folder / "mlp.onnx"
    onnx.save(model, path)
    return path


def in_a_process(code: str, *arguments: str, **environment: str) -> dict[str, object]:
    """What a fresh Python process prints as JSON."""
    found = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=child_environment({"PYTHONPATH": SOURCE, "LUBAN_VERIFY": "0", **environment}),
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, object] = json.loads(found.stdout)
    return result


START = """
import json, sys, time
begin = time.process_time()
import numpy, luban
model = luban.load(sys.argv[1])
answer = model(numpy.ones((2, 64), numpy.float32))["y"]
seconds = time.process_time() - begin
print(json.dumps({"seconds": seconds, "cached": model.from_cache, "sum": float(answer.sum()),
                  "threads": model.num_threads,
                  "compiler": [m for m in sys.modules if m.startswith("llvmlite.binding")]}))
"""


def test_r7_a_cached_start_calls_no_compiler_and_takes_a_third_of_a_second(tmp_path: Path) -> None:
    """Processor time, the least of three: a busy machine shows in it least."""
    path, cache = str(saved_mlp(tmp_path)), str(tmp_path / "cache")
    first = in_a_process(START, path, LUBAN_CACHE_DIR=cache)
    again = [in_a_process(START, path, LUBAN_CACHE_DIR=cache) for _ in range(3)]
    assert not first["cached"]
    assert all(run["cached"] and not run["compiler"] for run in again)
    assert {run["sum"] for run in again} == {first["sum"]}
    assert min(float(str(run["seconds"])) for run in again) < 0.3


def test_r8_no_compiler_has_to_be_on_the_path(tmp_path: Path) -> None:
    path, empty = str(saved_mlp(tmp_path)), tmp_path / "nothing"
    empty.mkdir()
    found = in_a_process(START, path, LUBAN_CACHE_DIR=str(tmp_path / "c"), PATH=str(empty))
    assert not found["cached"]
    assert np.isfinite(float(str(found["sum"])))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinity is a matter of Linux")
def test_r2_threads_are_those_that_this_process_may_use(tmp_path: Path) -> None:
    path, cache = str(saved_mlp(tmp_path)), str(tmp_path / "cache")
    one = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})\n"
    pinned = in_a_process(one + START, path, LUBAN_CACHE_DIR=cache)
    assert pinned["threads"] == 1
    openmp = in_a_process(START, path, LUBAN_CACHE_DIR=cache, OMP_NUM_THREADS="3")
    assert openmp["threads"] == 3


def test_r2_four_sessions_share_one_pool(tmp_path: Path) -> None:
    """Sessions start no threads of their own: four have as many as one."""
    count = """
import json, os, sys, numpy, luban
x, seen = numpy.ones((256, 64), numpy.float32), []
sessions = []
for _ in range(4):
    sessions.append(luban.InferenceSession(sys.argv[1]))
    for session in sessions:
        session.run(None, {"x": x})
    seen.append(len(os.listdir("/proc/self/task")))
print(json.dumps({"tasks": seen}))
"""
    path, cache = str(saved_mlp(tmp_path)), str(tmp_path / "cache")
    in_a_process(START, path, LUBAN_CACHE_DIR=cache)
    tasks = in_a_process(count, path, LUBAN_CACHE_DIR=cache, LUBAN_NUM_THREADS="4")["tasks"]
    assert isinstance(tasks, list)
    assert tasks[-1] <= max(tasks[0], 4)


def test_r4_a_gpu_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    path = str(saved_mlp(tmp_path))
    with pytest.raises(OptionError, match="CUDAExecutionProvider were asked for; Luban runs on"):
        luban.InferenceSession(path, providers=["CUDAExecutionProvider"])
    with pytest.warns(LubanWarning, match="not available, the model runs on CPU"):
        luban.InferenceSession(path, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])


def test_r13_an_unsupported_form_names_node_types_and_what_is_known() -> None:
    text = """g (float[2, 3] x, int64[4] pads) => (float[a, b] y)
    { [border] y = Pad <mode = "mirror"> (x, pads) }"""
    with pytest.raises(ModelError) as caught:
        luban.compile(model_of(text))
    message = str(caught.value)
    assert "border" in message
    assert "mirror" in message
    assert "reflect" in message  # the nearest supported form


def test_r13_a_misfit_inside_a_branch_names_its_path_and_types() -> None:
    text = """g (bool c, float[1, 3, 8, 8] x, float[4, 5, 3, 3] w) => (float[1, 4, 6, 6] y)
    {
        [choice] y = If (c) <
            then_branch = p () => (float[1, 4, 6, 6] u) { [blur] u = Conv(x, w) },
            else_branch = q () => (float[1, 4, 6, 6] v) { [copy] v = Conv(x, w) }>
    }"""
    with pytest.raises(LubanError) as caught:
        luban.compile(model_of(text))
    message = str(caught.value)
    assert "choice" in message
    assert "blur" in message
    assert "f32[1,3,8,8]" in message
    assert "f32[4,5,3,3]" in message


def frozen() -> onnx.ModelProto:
    model = model_of(FROZEN)
    shape = onnx.numpy_helper.from_array(np.array([1, 3, 85, 4, 4]), "shape")
    model.graph.initializer.append(shape)
    return model


def test_s3_a_frozen_batch_is_pointed_at_with_a_repair(tmp_path: Path) -> None:
    path = tmp_path / "frozen.onnx"
    onnx.save(frozen(), path)
    (note,) = describe(path).notes
    assert "node 'head': Reshape to [1, 3, 85, 4, 4] fixes the first size to 1" in note
    assert "write 0 (keep) or -1 (derive) in its place" in note


def test_s3_a_warning_at_load_and_an_error_for_another_batch() -> None:
    with pytest.warns(LubanWarning, match="works for one value of n only"):
        model = luban.compile(frozen())
    assert model(np.ones((1, 255, 4, 4), np.float32))["y"].shape == (1, 3, 85, 4, 4)
    with pytest.raises(LubanError) as caught:
        model(np.ones((8, 255, 4, 4), np.float32))
    message = str(caught.value)
    assert "head" in message
    assert "8" in message


@pytest.mark.slow
def test_r5_weights_above_two_gigabytes(tmp_path: Path) -> None:
    """A table of 2.1 GB in a sparse file: mapped, looked into, never copied."""
    rows, columns = 1 << 20, 537
    data = tmp_path / "table.bin"
    with data.open("wb") as file:
        file.truncate(rows * columns * 4)
        file.seek(3 * columns * 4)
        file.write(np.arange(columns, dtype=np.float32).tobytes())
    table = TensorProto(name="table", data_type=TensorProto.FLOAT, dims=[rows, columns])
    table.data_location = TensorProto.EXTERNAL
    table.external_data.add(key="location", value=data.name)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "i"], ["y"])],
        "large",
        [helper.make_tensor_value_info("i", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", columns])],
        [table],
    )
    opset = [helper.make_opsetid("", 21)]
    path = tmp_path / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), path)
    code = """
import json, resource, sys, numpy, luban
y = luban.load(sys.argv[1])(numpy.array([3, 0]))["y"]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"peak": peak, "last": float(y[0, -1]), "zero": float(y[1].sum())}))
"""
    found = in_a_process(code, str(path), LUBAN_CACHE_DIR=str(tmp_path / "cache"))
    assert (found["last"], found["zero"]) == (columns - 1, 0)
    assert int(str(found["peak"])) < 1.5 * rows * columns * 4
