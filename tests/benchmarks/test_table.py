"""The table of targets: every row has its script, misses show, and any of them is an exit code."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import table
from benchmarks.table import ROWS, Outcome, TargetRow, main, run, summary

SAYS = "import sys; print('target: {words}'); sys.exit({code})"


def script(folder: Path, name: str, words: str, code: int = 0) -> TargetRow:
    (folder / f"{name}.py").write_text(SAYS.format(words=words, code=code))
    return TargetRow(name, f"{name} as asked", name)


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[TargetRow, ...]:
    found = (
        script(tmp_path, "good", "met"),
        script(tmp_path, "slow", "   0.9    MISSED", 1),
        script(tmp_path, "broken", "nothing", 3),
    )
    monkeypatch.setattr(table, "ROWS", found)
    monkeypatch.setattr(table, "ROOT", tmp_path)
    return found


def test_every_row_has_a_script_with_a_main() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    for row in ROWS:
        spec = find_spec(row.module)
        assert spec is not None
        assert spec.origin is not None
        assert "def main(" in Path(spec.origin).read_text()


def test_the_summary_names_what_was_missed(rows: tuple[TargetRow, ...]) -> None:
    outcomes = [run(row) for row in rows]
    assert [o.verdict for o in outcomes] == ["met", "MISSED", "failed with exit code 3"]
    assert summary(outcomes).splitlines()[-1] == "- slow: target: 0.9 MISSED"


def test_the_exit_code_says_whether_all_were_met(
    rows: tuple[TargetRow, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    report = tmp_path / "report.md"
    assert main(["--only", "good", "--markdown", str(report)]) == 0
    assert "good as asked" in report.read_text()
    assert main(["--only", "good,slow"]) == 1
    assert "# slow: slow as asked" in capsys.readouterr().out


def test_a_row_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--only", "decoding"])
    assert stop.value.code == 2
    assert "no row named decoding; there are models, decode" in capsys.readouterr().err


def test_a_list_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert "benchmarks.competitor" in capsys.readouterr().out


def test_an_outcome_without_words_of_a_miss_goes_by_its_code() -> None:
    assert Outcome(ROWS[0], 0, ("fine",)).verdict == "met"
