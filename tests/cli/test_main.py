"""The command line as a whole: names, flags, exit codes, streams, and how fast help is."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import luban
from luban.cli import main as entry
from luban.cli.main import COMMANDS, main
from luban.core.errors import InternalError, LubanError
from luban.core.settings import child_environment
from luban.native.cache import default_cache
from luban.native.entry import new_temporary
from tests.engine.models import DATA

MLP = str(DATA / "tiny_mlp.onnx")
SOURCE = str(Path(luban.__file__).parents[1])

COMPILE = {"model", "threads", "without", "target", "numerics", "shape"}
INPUTS = {"inputs", "size", "seed"}
# Frozen: a new flag is a decision, a lost one breaks scripts.
FLAGS = {
    "run": COMPILE | INPUTS | {"output", "values"},
    "inspect": {"model"},
    "explain": COMPILE | {"size", "declined", "measure"},
    "bench": COMPILE | INPUTS | {"vs", "rounds", "turn", "roofline", "layers", "html", "top"},
    "run-kernels": {"script", "arguments", "device_map", "check", "shadow"},
    "doctor": {"measure"},
    "cache": {"action"},
}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path / "cache"))


def flags_of(command: str) -> set[str]:
    parser, _ = entry.parser_and_modules()
    (commands,) = (a for a in parser._actions if a.dest == "command")
    assert commands.choices is not None
    sub: Any = dict(commands.choices)[command]
    return {action.dest for action in sub._actions} - {"help", "json"}


@pytest.mark.parametrize("command", FLAGS)
def test_the_flags_are_these(command: str) -> None:
    assert flags_of(command) == FLAGS[command]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_json_and_help(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert "--json" in capsys.readouterr().out


def _seconds(*arguments: str) -> float:
    """Processor time of a process: the clock would count what else the machine is doing."""

    def used() -> float:
        found = resource.getrusage(resource.RUSAGE_CHILDREN)
        return found.ru_utime + found.ru_stime

    before = used()
    environment = child_environment({"PYTHONPATH": SOURCE})
    subprocess.run(
        [sys.executable, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL
    )
    return used() - before


def test_help_is_instant() -> None:
    assert min(_seconds("-m", "luban.cli.main", "--help") for _ in range(3)) < 0.2


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from luban.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "bad = {'numpy', 'onnx', 'llvmlite', 'rich', 'luban.engine'} & set(sys.modules)\n"
        "sys.exit(repr(bad) if bad else 0)\n"
    )
    _seconds("-c", script)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"luban {luban.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["run"], ["run", MLP, "--nope"]])
def test_wrong_usage_is_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: luban" in captured.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nothere.onnx"], "luban run: error: there is no file nothere.onnx\nhint: check"),
        (["inspect", __file__], "luban inspect: error: "),
        (["run", MLP, "--size", "foo=3"], "no input has a size called 'foo'\nhint: symbolic sizes"),
        (["run", MLP, "--size", "batch"], "--size 'batch' is not understood, expected NAME=N"),
        (["run", MLP, "--size", "batch=x"], "--size 'batch=x': 'x' is no whole number"),
        (["run", MLP, "--shape", "x"], "--shape 'x' is not understood, expected INPUT=SIZES"),
        (["run", MLP, "--shape", "z=1,2"], "has no input 'z'"),
        (["run", MLP, "--threads", "0"], "threads=0, expected at least 1"),
        (["run", MLP, "--target", "z80"], "target 'z80' is not known"),
        (["run", MLP, "--inputs", __file__], "cannot be read"),
        (["run", MLP, "--inputs", "x.npz", "--size", "batch=1"], "--size is for inputs that are"),
        (["run", MLP, "--output", "/no/such/folder/x.npz"], "cannot be written: No such file"),
        (["explain", MLP, "--without", "turbo"], "unknown pass turbo\nhint: the passes are"),
        (["bench", MLP, "--vs", "abacus"], "engine 'abacus' is not known"),
        (["bench", MLP, "--rounds", "0"], "--rounds has to be at least 1"),
        (["bench", MLP, "--without", "fuse"], "bench times models as they are loaded by default"),
    ],
)
def test_bad_input_is_exit_code_2_with_a_text(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (LubanError("wrong", hint="right"), 2, "luban cache: error: wrong\nhint: right"),
        (InternalError("a bug"), 1, "luban cache: internal error: a bug"),
        (MemoryError("no room"), 2, "luban cache: error: not enough memory: no room"),
        (KeyboardInterrupt(), 130, "luban cache: interrupted"),
    ],
)
def test_exit_codes_of_errors(
    error: BaseException,
    code: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr("luban.cli.cache.execute", fail)
    assert main(["cache"]) == code
    assert words in capsys.readouterr().err


def test_an_interrupt_between_making_a_file_and_writing_it_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path))

    def fail(_: object) -> int:
        handle, _ = new_temporary(default_cache().path_of("code", "ab" * 32))
        os.close(handle)
        raise KeyboardInterrupt

    monkeypatch.setattr("luban.cli.cache.execute", fail)
    assert main(["cache"]) == 130
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_reader_that_leaves_early_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "luban.cli.main", "inspect", MLP],
        env=child_environment({"PYTHONPATH": SOURCE}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 0
    assert errors == ""


def test_data_and_talk_are_on_streams_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", MLP, "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["model"] == "tiny_mlp.onnx"
    assert "inputs are made up with seed 0 and sizes batch=1" in captured.err
