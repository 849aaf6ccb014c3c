"""What each command prints, as text and as JSON."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

import luban
from luban.cli.main import main
from tests.engine.models import DATA, affine, affine_answer, model_of, saved, value
from tests.profiler.test_layers import dynamic

MLP = str(DATA / "tiny_mlp.onnx")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path / "cache"))


def document(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def text(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(list(arguments)) == code
    return capsys.readouterr().out


def test_run_with_inputs_from_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(saved(affine(), tmp_path))
    x = np.linspace(-3, 3, 16, dtype=np.float32).reshape(2, 8)
    np.savez(tmp_path / "x.npz", x=x)
    np.save(tmp_path / "x.npy", x)
    y, total = affine_answer(x)
    for number, name in enumerate(("x.npz", "x.npy")):
        output = tmp_path / f"{name}.out.npz"
        arguments = ("--inputs", str(tmp_path / name), "--output", str(output))
        found = document(capsys, "run", path, *arguments, "--values", "100")
        assert found["from_cache"] is bool(number)
        first = found["outputs"][0]
        assert (first["name"], first["type"], first["nans"]) == ("y", "f32[2,8]", 0)
        np.testing.assert_allclose(first["values"], y.reshape(-1), rtol=1e-6)
        with np.load(output) as stored:
            np.testing.assert_allclose(stored["total"], total, rtol=1e-5)


def test_run_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    lines = text(capsys, "run", MLP, "--size", "batch=3", "--values", "2").splitlines()
    assert lines[0].split() == ["output", "type", "min", "max", "mean", "first", "values"]
    assert lines[1].split()[:2] == ["y", "f32[3,10]"]
    assert len(lines[1].split()) == 7


def test_run_says_when_there_are_nans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("Log", ["x"], ["y"])]
    path = saved(model_of(nodes, [value("x", [2])], [value("y", [2])]), tmp_path)
    np.save(tmp_path / "x.npy", np.array([-1, 1], np.float32))
    assert "y holds 1 NaN" in text(capsys, "run", str(path), "--inputs", str(tmp_path / "x.npy"))


def test_made_up_inputs_are_the_same_every_time(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (document(capsys, "run", MLP)["outputs"] for _ in range(2))
    other = document(capsys, "run", MLP, "--seed", "1")["outputs"]
    assert one == two
    assert one != other


def test_inputs_of_a_file_have_to_be_all_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "z.npz", z=np.ones(3))
    assert main(["run", MLP, "--inputs", str(tmp_path / "z.npz")]) == 2
    assert "has arrays z; missing: x" in capsys.readouterr().err


def test_inspect(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "inspect", str(DATA / "bert_tiny.onnx"))
    assert found["inputs"][0] == ["input_ids", "i64[batch,length]"]
    assert found["symbols"]["length"] == ["input_ids", "attention_mask", "token_type_ids"]
    assert found["operators"]["MatMul"] == 16
    assert found["num_nodes"] == sum(found["operators"].values())
    assert found["opset"] == {"ai.onnx": 20}
    assert found["missing"] == []
    shown = text(capsys, "inspect", MLP)
    assert "4 weights" in shown
    assert "input   x     f32[batch,64]" in shown


def test_inspect_lists_what_is_not_supported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [helper.make_node("FancyOp", ["x"], ["y"], "one")]
    path = saved(model_of(nodes, [value("x", [2])], [value("y", [2])]), tmp_path)
    shown = text(capsys, "inspect", str(path), code=1)
    assert "not supported\n-------------\none: ai.onnx.FancyOp" in shown


def test_inspect_points_at_a_frozen_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Reshape", ["r", "shape"], ["y"], "head"),
    ]
    weights = {"shape": np.array([1, 3, 4])}
    frozen = model_of(nodes, [value("x", ["n", 12])], [value("y", [1, 3, 4])], weights)
    notes = document(capsys, "inspect", str(saved(frozen, tmp_path)))["notes"]
    assert len(notes) == 1
    assert "node 'head': Reshape to [1, 3, 4] fixes the first size to 1" in notes[0]
    fixed = model_of(nodes[:1], [value("x", [1, 12])], [value("r", [1, 12])])
    (note,) = document(capsys, "inspect", str(saved(fixed, tmp_path)))["notes"]
    assert "shapes={'x': ['batch', '12']}" in note
    kept = model_of(nodes, [value("x", ["n", 12])], [value("y", ["n", 3, 4])])
    weights = {"shape": np.array([0, 3, 4])}
    kept = model_of(nodes, [value("x", ["n", 12])], [value("y", ["n", 3, 4])], weights)
    assert document(capsys, "inspect", str(saved(kept, tmp_path)))["notes"] == []


def test_explain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(saved(affine(), tmp_path))
    found = document(capsys, "explain", path, "--size", "batch=5", "--threads", "1")
    assert (found["model"], found["threads"], found["sizes"]) == ("tests", 1, {"batch": 5})
    assert found["vetoed"] == []
    names = [line["name"] for line in found["passes"]]
    assert names[0] == "simplify"
    assert "fuse" in names
    assert found["host_steps"] == []
    launches = sum(kernel["launches"] for kernel in found["kernels"])
    assert launches == sum(line["kernels"] for line in found["memory"]) >= 1
    assert all(line["arena_bytes"] >= line["lower_bound_bytes"] for line in found["memory"])
    moved = found["kernels"][0]["moved_bytes"]
    assert moved >= 2 * 5 * 8 * 4  # x in, y out


def test_explain_lists_every_product_of_fast_numerics(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "explain", MLP, "--numerics", "fast")
    assert found["numerics"] == "fast"
    lines = {line["name"]: line for line in found["passes"] if line["graph"] != "prepare"}
    told = lines["half_products"]["done"] + lines["half_products"]["declined"]
    assert len(told) == 2
    assert all("bf16" in line for line in told)
    strict = document(capsys, "explain", MLP)
    assert strict["numerics"] == "strict"
    assert "half_products" not in {*strict["vetoed"], *(line["name"] for line in strict["passes"])}


def test_explain_shows_vetoes_and_host_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["y"], "find")]
    path = saved(model_of(nodes, [value("x", ["n"])], [value("y", [1, "found"], 7)]), tmp_path)
    found = document(capsys, "explain", str(path), "--without", "simplify")
    assert found["vetoed"] == ["simplify"]
    ((operator, reason, place),) = found["host_steps"]
    assert operator == "nonzero"
    assert reason
    assert "find" in place
    shown = text(capsys, "explain", str(path))
    assert "host steps\n----------\noperator" in shown


def test_explain_shows_what_the_front_end_assumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An If whose branches differ in their number of axes is compiled for one of them."""
    text_form = """
    <ir_version: 10, opset_import: ["" : 21]>
    main (float[n, 3] x) => (float[3] y) {
      one = Constant<value_int = 1>()
      zero = Constant<value_int = 0>()
      axes = Constant<value_ints = [0]>()
      shape = Shape(x)
      rows = Gather(shape, zero)
      single = Equal(rows, one)
      y = If(single) <
        then_branch = a () => (s) { s = Squeeze(x, axes) },
        else_branch = b () => (t) { t = Identity(x) }
      >
    }
    """
    path = str(saved(onnx.parser.parse_model(text_form), tmp_path))
    (assumed,) = document(capsys, "explain", path)["assumptions"]
    assert "compiled for then_branch, which gives f32[3]" in assumed
    assert f"\nassumed: {assumed}\n" in text(capsys, "explain", path)


def test_explain_as_text_has_every_section(capsys: pytest.CaptureFixture[str]) -> None:
    shown = text(capsys, "explain", MLP)
    for section in ("passes", "kernels", "host steps", "memory for batch = 1"):
        assert f"\n{section}\n---" in shown
    assert "none: everything runs in kernels" in shown
    declined = text(capsys, "explain", MLP, "--declined")
    assert "\nkernels\n" not in declined


def test_a_compile_explains_itself_alike_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    first = document(capsys, "explain", MLP)
    assert document(capsys, "explain", MLP) == first


def test_explain_measures_what_it_predicts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("luban.engine.hardware._MOST_TURNS", 1)
    monkeypatch.setattr("luban.engine.kernel_times._TIMING_S", 0.01)
    assert "this machine is not measured yet" in text(capsys, "explain", MLP)
    shown = text(capsys, "explain", MLP, "--measure", "--threads", "1")
    assert "predicted us" in shown
    assert "predicted and measured times rank alike to" in shown
    found = document(capsys, "explain", MLP, "--threads", "1")
    assert all(kernel["predicted_s"] > 0 and kernel["bound"] for kernel in found["kernels"])


def test_bench_times_luban_alone(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "bench", MLP, "--rounds", "2", "--turn", "0.02", "--threads", "1")
    (ours,) = found["engines"]
    assert ours["engine"] == "luban"
    assert ours["failure"] is None
    assert 0 < ours["median_s"] <= ours["p95_s"]
    assert ours["warm_s"] < ours["cold_s"]
    assert ours["peak_bytes"] > 1 << 20
    assert (ours["speedup"], ours["difference"]) == (1.0, 0.0)


def test_bench_times_fast_numerics(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--rounds", "1", "--turn", "0.02", "--numerics", "fast")
    (ours,) = document(capsys, "bench", MLP, *arguments)["engines"]
    assert ours["failure"] is None


@pytest.mark.slow
def test_bench_next_to_another_runtime(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="the peer is not installed")
    arguments = ("--vs", "onnxruntime", "--rounds", "2", "--turn", "0.05")
    shown = text(capsys, "bench", MLP, *arguments).splitlines()
    assert [line.split()[0] for line in shown[1:]] == ["engine", "luban", "onnxruntime"]


def test_an_engine_that_fails_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="the peer is not installed")
    model = affine()
    model.opset_import[0].version = 20
    model.ir_version = 99  # which the other refuses
    path = saved(model, tmp_path)
    arguments = ("--vs", "onnxruntime", "--rounds", "1", "--turn", "0.02")
    shown = text(capsys, "bench", str(path), *arguments, code=1)
    assert "onnxruntime failed: " in shown


def test_bench_tells_what_bounds_each_kernel(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("luban.engine.hardware._MOST_TURNS", 1)
    page = tmp_path / "roofline.html"
    options = ("--roofline", "--threads", "1", "--size", "batch=4")
    found = document(capsys, "bench", MLP, *options, "--html", str(page))
    assert found["kernels"]
    assert sum(row["share"] for row in found["kernels"]) == pytest.approx(1)
    assert {"time_s", "gflop_s", "gb_s", "of_limit", "bound"} <= found["kernels"][0].keys()
    assert "<circle" in page.read_text()
    shown = text(capsys, "bench", MLP, *options, "--top", "1")
    assert "of limit" in shown.splitlines()[1]
    assert "more (--top)" in shown
    assert "a call takes" in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--roofline", "--vs", "onnxruntime"), "no --vs"),
        (("--layers", "--vs", "onnxruntime"), "no --vs"),
        (("--layers", "--without", "fuse"), "--layers times models as they are"),
        (("--layers",), "has no quantised layers"),
        (("--html", "x.html"), "--html is for the picture of --roofline"),
    ],
)
def test_bench_refuses_options_that_do_not_fit(
    options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", MLP, *options]) == 2
    assert words in capsys.readouterr().err


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "doctor")
    assert found["works"]
    assert found["versions"]["luban"] == luban.__version__
    assert int(found["threads"]["count"]) >= 1
    assert set(found["settings"]) >= {"LUBAN_NUM_THREADS", "LUBAN_CACHE_DIR"}
    shown = text(capsys, "doctor")
    assert "a kernel was compiled and gave the right answer" in shown
    assert "not measured yet; run luban doctor --measure" in shown


def test_doctor_measures_this_machine_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("luban.engine.hardware._MOST_TURNS", 1)
    shown = text(capsys, "doctor", "--measure")
    assert "1 thread, GFLOP/s" in shown
    assert document(capsys, "doctor")["limits"]["measured"].endswith("hardware.json")


@pytest.mark.parametrize(
    ("variable", "setting", "words", "works"),
    [
        ("LUBAN_NUM_THREADS", "many", "LUBAN_NUM_THREADS='many' is not understood", False),
        ("LUBAN_TARGET", "z80", "target 'z80' is not known", True),
        ("LUBAN_CACHE_SIZE", "0", "the cache is off", True),
        ("LUBAN_CACHE_DIR", "/dev/null/x", "cannot be written", True),
        ("LUBAN_COMPILE_PROCESS", "0", "kernels compile in this process", True),
    ],
)
@pytest.mark.filterwarnings("ignore:the cache in")
def test_doctor_finds_problems(
    variable: str,
    setting: str,
    words: str,
    works: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(variable, setting)
    found = document(capsys, "doctor", code=int(not works))
    assert any(words in problem["what"] and problem["hint"] for problem in found["problems"])


def test_bench_holds_quantised_layers_against_float32(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("luban.profiler.layers._TIMING_S", 0.05)
    path = tmp_path / "dynamic.onnx"
    onnx.save(dynamic(), path)
    options = ("--layers", "--threads", "1", "--size", "n=16")
    assert main(["bench", str(path), *options, "--json"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert found["lines"][0]["name"] == "layer"
    assert found["lines"][0]["error"] < 0.05
    code = main(["bench", str(path), *options])
    shown = capsys.readouterr().out
    assert "float32 us" in shown
    assert "a call takes" in shown
    assert ("refused" in shown) == (code == 1)


def test_cache_counts_and_clears(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    luban.load(MLP)
    before = document(capsys, "cache")
    assert before["entries"] >= 2
    assert before["folder"] == str(tmp_path / "cache")
    cleared = document(capsys, "cache", "clear")
    assert cleared["freed_bytes"] == before["size_bytes"]
    assert cleared["entries"] == 0
    assert "0 entries in" in text(capsys, "cache", "stats")
