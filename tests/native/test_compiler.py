"""The compile process: the same objects, no LLVM here, and every way it or its parent can end."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import luban
from luban.core.errors import InternalError, LubanError, LubanWarning
from luban.core.settings import child_environment
from luban.native import compiler, process
from luban.native.compile import compile_object, describe_host
from luban.native.compiler import ask_for_host, compile_many, why_in_this_process
from luban.native.process import CompileProcess, EndedIdleError
from luban.native.target import host_target

SOURCE = str(Path(luban.__file__).parents[1])
TEXT = "define i64 @NAME(i64 %x) {\n  %y = add i64 %x, NUMBER\n  ret i64 %y\n}\n"


def text(number: int, name: str = "add") -> str:
    return TEXT.replace("NUMBER", str(number)).replace("NAME", name)


def slow_text(name: str) -> str:
    """A module that takes LLVM about a second: a long chain that needs many registers."""
    lines = [f"define void @{name}(ptr %p) {{"]
    for i in range(6000):
        lines.append(f"  %q{i} = getelementptr i64, ptr %p, i64 {i}")
        lines.append(f"  %v{i} = load volatile i64, ptr %q{i}")
    lines += [f"  store volatile i64 %v{i}, ptr %q{i}" for i in reversed(range(6000))]
    return "\n".join([*lines, "  ret void", "}"])


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A compile process of the test's own, and no refusal left behind."""
    monkeypatch.delenv("LUBAN_COMPILE_PROCESS", raising=False)
    current = compiler._Current()
    monkeypatch.setattr(compiler, "_current", current)
    yield
    if current.process is not None:
        current.process.stop()


def running() -> CompileProcess:
    compiler.start()
    found = compiler._current.process
    assert found is not None
    return found


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_for_end(pid: int, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)


def run_script(script: str, **overrides: str) -> subprocess.CompletedProcess[str]:
    environment = child_environment({"PYTHONPATH": SOURCE, **overrides})
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60
    )


def test_objects_are_those_of_this_process_in_order() -> None:
    texts = [text(number) for number in range(5)]
    assert compile_many(texts, host_target()) == [compile_object(t, host_target()) for t in texts]
    assert running().id != os.getpid()
    assert ask_for_host() == describe_host()


def test_without_texts_nothing_is_started() -> None:
    assert compile_many([], host_target()) == []
    assert compiler._current.process is None


def test_what_was_begun_is_compiled_once() -> None:
    compiler.begin(text(1), host_target())
    number = running()._begun[text(1), host_target()]
    expected = compile_object(text(1), host_target())
    assert compile_many([text(2), text(1)], host_target())[1] == expected
    assert not running()._begun
    assert number not in running()._answered  # it was taken
    assert compile_many([text(1)], host_target()) == [expected]


def test_text_that_llvm_refuses_is_our_bug_and_shows_the_line() -> None:
    wrong = text(1).replace("add i64", "ad i64")
    with pytest.raises(InternalError, match="line 2: %y = ad i64 %x, 1") as error:
        compile_many([text(1), wrong, text(2)], host_target())
    assert str(error.value).count("internal error") == 1
    assert len(compile_many([text(1)], host_target())) == 1


def test_threads_share_it() -> None:
    expected = [compile_object(text(number), host_target()) for number in range(8)]
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        found[number] = compile_many([text(i) for i in range(number, 8)], host_target())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[number] == expected[number:] for number in range(8))


def test_it_may_end_for_want_of_work_and_is_started_again() -> None:
    before = running()
    compile_many([text(1)], host_target())
    before._requests.close()  # it ends as if it had been idle
    wait_for_end(before.id)
    assert len(compile_many([text(1), text(2)], host_target())) == 2
    assert running().id != before.id


def test_what_was_sent_to_a_process_that_ended_idle_is_sent_again() -> None:
    before = running()
    stopped = compile_many([text(1)], host_target())
    os.kill(before.id, signal.SIGSTOP)

    def texts() -> Iterator[str]:
        yield text(1)
        before._broken = True  # as after Ctrl-C in the middle of a message
        os.kill(before.id, signal.SIGKILL)
        wait_for_end(before.id)
        yield text(1)

    assert compile_many(texts(), host_target()) == stopped * 2


def test_ends_without_end_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a program ignores SIGCHLD, a crash cannot be told from an end for want of work."""

    def ended(self: CompileProcess, number: int) -> bytes:
        raise EndedIdleError

    monkeypatch.setattr(CompileProcess, "result", ended)
    with pytest.raises(LubanError, match="ended 5 times while compiling guilty") as error:
        compile_many([text(1, "guilty")], host_target())
    assert "LUBAN_COMPILE_PROCESS=0" in str(error.value)


def test_a_crash_is_an_error_that_names_the_kernels_and_not_the_end() -> None:
    victim = running()
    compile_many([text(1, "innocent")], host_target())

    def texts() -> Iterator[str]:
        os.kill(victim.id, signal.SIGSTOP)
        yield text(2, "guilty")
        os.kill(victim.id, signal.SIGKILL)

    with pytest.raises(LubanError, match=r"ended with signal SIGKILL .*: guilty") as error:
        compile_many(texts(), host_target())
    assert "out of memory" in str(error.value)
    assert len(compile_many([text(1)], host_target())) == 1


def test_ctrl_c_drops_what_is_not_begun() -> None:
    before = running()

    def texts() -> Iterator[str]:
        for number in range(200):
            yield slow_text(f"f{number}")
            if number == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_many(texts(), host_target())
    assert len(compile_many([text(1)], host_target())) == 1
    assert running().id != before.id
    assert not is_alive(before.id)


def test_a_model_compiles_without_llvm_in_this_process_and_without_a_main_guard(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, numpy, luban\n"
        "from luban.core.types import tensor\n"
        "from luban.graph import build\n"
        "from luban.ir.node import Graph\n"
        "x = build.parameter('x', tensor('f32', 'n'))\n"
        "model = luban.compile(Graph('double', (x,), (build.add(x, x),), ('y',)))\n"
        "print(model(numpy.ones(3, numpy.float32)), 'llvmlite.binding' in sys.modules)\n"
    )
    environment = child_environment({"PYTHONPATH": SOURCE, "LUBAN_CACHE_DIR": str(tmp_path)})
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert done.stdout == "{'y': array([2., 2., 2.], dtype=float32)} False\n"
    assert done.stderr == ""


START = "import os, time\nfrom luban.native import compiler\ncompiler.ask_for_host()\n"
PRINT_ID = "print(compiler._current.process.id, flush=True)\n"


@pytest.mark.parametrize("before", ["", "if os.fork() == 0: time.sleep(20); os._exit(0)\n"])
def test_it_does_not_outlive_a_parent_that_is_killed(before: str) -> None:
    """Not even if a forked child keeps the parent's end of the pipe open."""
    script = START + before + PRINT_ID + "time.sleep(60)\n"
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment({"PYTHONPATH": SOURCE}),
        start_new_session=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_alive(pid)
    parent.kill()
    parent.wait()
    wait_for_end(pid)
    if before:
        os.killpg(parent.pid, signal.SIGKILL)
    parent.stdout.close()


def test_it_ends_with_its_parent_and_leaves_no_zombie() -> None:
    done = run_script(START + PRINT_ID)
    assert not is_alive(int(done.stdout))
    assert done.stderr == ""


def test_a_forked_child_starts_its_own() -> None:
    script = (
        START
        + PRINT_ID
        + (
            "pid = os.fork()\n"
            "compiler.ask_for_host()\n"
            "print(compiler._current.process.id, flush=True)\n"
            "if pid: print(os.waitpid(pid, 0)[1])\n"
        )
    )
    done = run_script(script)
    first, *later, code = done.stdout.split()
    assert len(later) == 2
    assert first in later
    assert len({*later}) == 2
    assert code == "0"
    assert done.stderr == ""


def refused(monkeypatch: pytest.MonkeyPatch, expected: str) -> None:
    """It says so once, and compiles here."""
    with pytest.warns(LubanWarning, match=expected) as caught:
        assert compile_many([text(1)], host_target()) == [compile_object(text(1), host_target())]
    assert "LUBAN_COMPILE_PROCESS=0" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(compile_many([text(1), text(2)], host_target())) == 2
        assert ask_for_host() == describe_host()
    assert "no compile process could be started" in (why_in_this_process() or "")


def test_a_system_that_starts_no_process_compiles_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def popen(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(subprocess, "Popen", popen)
    refused(monkeypatch, "no compile process could be started: .*not permitted")


def test_a_process_that_never_gets_ready_compiles_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_BOOTSTRAP", "raise SystemExit(3)")
    refused(monkeypatch, "could be started: it ended with exit code 3 before it was ready")


def test_packages_without_a_folder_compile_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "find_spec", lambda name: None)
    refused(monkeypatch, "could be started: luban does not lie in a folder")


def test_reasons_to_compile_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_in_this_process() is None
    monkeypatch.setenv("LUBAN_COMPILE_PROCESS", "0")
    assert why_in_this_process() == "LUBAN_COMPILE_PROCESS=0"
    assert len(compile_many([text(1)], host_target())) == 1
    assert compiler._current.process is None
    monkeypatch.undo()
    monkeypatch.setattr(sys, "executable", "/usr/bin/blender")
    assert "Python is embedded: sys.executable is '/usr/bin/blender'" in (
        why_in_this_process() or ""
    )
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert "frozen application" in (why_in_this_process() or "")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "darwin has no ELF objects" in (why_in_this_process() or "")


def test_a_function_is_run_there_and_what_it_raises_is_our_bug() -> None:
    def never(pid: int) -> None:
        raise AssertionError(pid)

    with pytest.raises(InternalError, match=r"ModuleNotFoundError.*no_such_module"):
        compiler.run("luban.no_such_module:work", b"", "nothing", never)
    assert len(compile_many([text(1)], host_target())) == 1


def test_without_a_process_a_function_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUBAN_COMPILE_PROCESS", "0")
    assert compiler.run("luban.engine.apart_worker:compile_model", b"", "it", print) is None
