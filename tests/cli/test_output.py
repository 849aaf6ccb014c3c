"""Tables, notes and progress."""

import warnings

import pytest

from luban.cli import output
from luban.core.progress import report


def test_columns_of_numbers_are_to_the_right() -> None:
    lines = list(output.table(["a", "n", "x"], [["one", 1, 0.123456], ["three", 200, None]]))
    assert lines == ["a        n  x", "one      1  0.1235", "three  200  -"]


def test_an_empty_table_is_its_header() -> None:
    assert list(output.table(["a", "b"], [])) == ["a  b"]


def test_warnings_become_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress(), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("mind the gap", stacklevel=1)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "warning: mind the gap\n")


def test_progress_is_silent_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress():
        report("compiling", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_progress_shows_on_a_terminal_and_goes_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr(output, "_SHOW_AFTER_S", -1.0)
    with output.progress():
        report("compiling", 1, 2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "compiling" in captured.err
