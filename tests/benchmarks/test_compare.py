"""What scripts/bench selects, prints and answers with its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.compare import COLLECTION, QUICK_MODELS, main, parse, render, select
from benchmarks.harness import Start, Timing
from benchmarks.report import Row, failure_lines, means, wrong_lines
from benchmarks.targets import TARGETS, target_table


def row(name: str, tags: str = "", *, ours: float, theirs: float, error: float = 0.0) -> Row:
    timings = (
        Timing(
            "luban", 2, rounds_s=((ours,),), error=error, peak_bytes=50_000_000, limit_s=0.8 * ours
        ),
        Timing("onnxruntime", 2, rounds_s=((theirs,),), error=0.0, peak_bytes=100_000_000),
    )
    return Row(name, frozenset(tags.split()), 2, 1e-4, timings)


def test_by_default_the_extra_models_stay_out() -> None:
    names = {case.name for case in select(parse([]))}
    assert names
    assert names == {case.name for case in COLLECTION.values() if "extra" not in case.tags}
    assert len(select(parse(["--all"]))) == len(COLLECTION)


def test_quick_models_and_tags_select() -> None:
    assert [case.name for case in select(parse(["--quick"]))] == list(QUICK_MODELS)
    assert [case.name for case in select(parse(["--models", "magika,unet"]))] == ["magika", "unet"]
    assert all("rnn" in case.tags for case in select(parse(["--tags", "rnn"])))


def test_an_unknown_model_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        select(parse(["--models", "resnet51"]))
    assert stop.value.code == 2
    assert "no model named resnet51; there are tiny_mlp" in capsys.readouterr().err


def test_an_unknown_engine_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(["--engines", "luban,tvm"])
    assert stop.value.code == 2
    assert (
        "no engine named tvm; there are luban, luban_fast, onnxruntime" in capsys.readouterr().err
    )


def test_list_prints_the_models_and_measures_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--models", "magika"]) == 0
    assert capsys.readouterr().out == "magika                  conv small text\n"


def test_the_mean_leaves_out_extras_and_failures() -> None:
    rows = [
        row("a", ours=1.0, theirs=2.0),
        row("b", ours=2.0, theirs=1.0),
        row("c", "extra", ours=1.0, theirs=100.0),
        Row("d", frozenset(), 2, 1e-4, (Timing("luban", 2, failure="luban: no"),)),
    ]
    ((mean, count),) = means(rows, ["onnxruntime"])["onnxruntime"].values()
    assert mean == pytest.approx(1.0)
    assert count == 2
    assert failure_lines(rows) == "- d: luban: no"


def test_the_best_peer_is_chosen_for_each_model() -> None:
    timings = [Timing(name, 1, rounds_s=((s,),)) for name, s in (("a", 4.0), ("b", 2.0))]
    both = Row("m", frozenset(), 1, 1e-4, (Timing("luban", 1, rounds_s=((1.0,),)), *timings))
    assert both.best_ratio(["a", "b"]) == 2.0
    ((mean, count),) = means([both], ["a", "b"])["the best peer"].values()
    assert (round(mean, 6), count) == (2.0, 1)
    assert both.best_ratio([]) is None


def test_an_answer_outside_its_bound_is_listed_whatever_its_speed() -> None:
    rows = [row("right", ours=1, theirs=1, error=1e-5), row("wrong", ours=1, theirs=9, error=1e-3)]
    assert wrong_lines(rows) == "- wrong: error 1.0e-03"


def test_the_report_shows_ratios_memory_start_and_machine() -> None:
    starts = {"a": [("luban cold", Start("luban", 0.5, 0.25, 1.0))]}
    text = render(
        {"processor": "some"},
        [row("a", ours=0.001, theirs=0.002, error=2e-6)],
        starts,
        ["luban", "onnxruntime"],
    )
    assert "- processor: some" in text
    assert "| a     |       2 |        1 |   1 |              2 |   2 | " in text
    assert " 2.00 |   2.00 |      80% | 2.0e-06 | 1e-04 |" in text
    assert "- 2 threads: 2.000 times the speed of onnxruntime (geometric mean of 1 of 1" in text
    assert "| a     |       50 |            100 |                0.50 |" in text
    assert "| a     |           750 |" in text
    assert "Failures" not in text
    assert "outside" not in text


def test_the_run_is_written_as_json_and_markdown(tmp_path: Path) -> None:
    json_file, markdown = tmp_path / "out.json", tmp_path / "out.md"
    what = ["--models", "tiny_mlp", "--engines", "onnxruntime,reference", "--threads", "1"]
    where = ["--json", str(json_file), "--markdown", str(markdown)]
    code = main([*what, "--quick", "--rounds", "1", *where])
    assert code == 0
    content = json.loads(json_file.read_text())
    engines = content["rows"][0]["engines"]
    assert [entry["engine"] for entry in engines] == ["onnxruntime", "reference"]
    assert all(entry["median_s"] > 0 and entry["error"] == 0.0 for entry in engines)
    assert [entry["column"] for entry in content["starts"]["tiny_mlp"]][:2] == [
        "onnxruntime cold",
        "onnxruntime warm",
    ]
    assert "tiny_mlp" in markdown.read_text()


def test_targets_are_judged_by_their_mean_or_by_their_lowest_model() -> None:
    rows = [
        row("resnet50", "conv", ours=1.0, theirs=1.2),
        row("unet", "conv", ours=1.0, theirs=2.5),
        row("resnet50_int8", "int8", ours=1.0, theirs=0.2),
        row("unet_tiny", "extra", ours=1.0, theirs=0.1),
    ]
    lines = target_table(rows, ["onnxruntime"]).splitlines()
    cells = {line.split(" | ")[0].strip("| "): " ".join(line.split()) for line in lines[2:]}
    assert cells.keys() == {
        "float32 models",
        "any float32 model",
        "ResNet-50",
        "U-Net",
        "int8 ResNet-50, int8 BERT",
    }
    assert "1.73 | 2 | met | resnet50 1.20" in cells["float32 models"]
    assert "1.20 | 2 | met" in cells["any float32 model"]
    assert "MISSED" in cells["ResNet-50"]
    assert "met" in cells["U-Net"]
    assert "MISSED | resnet50_int8 0.20" in cells["int8 ResNet-50, int8 BERT"]
    assert target_table([row("resnet50", ours=1.0, theirs=1.0)], []) == ""


def test_every_model_of_a_target_exists() -> None:
    assert {name for target in TARGETS for name in target.models} <= set(COLLECTION)
