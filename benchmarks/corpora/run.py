"""Run the units of a corpus, each in a process of its own, and say which pass.

A process that has imported everything forks one child for each unit, so a unit that crashes, hangs
or leaks touches no other.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.corpora.units import Corpus, Unit

__all__ = ["Outcome", "outcome_table", "run_units"]

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a unit.

    status   pass, or: wrong (values differ), unsupported (a LubanError), error (another exception),
             crash (a signal), timeout
    reason   the message's first line, without numbers and names that differ from unit to unit
    detail   the end of the traceback
    """

    name: str
    status: str
    seconds: float
    reason: str = ""
    detail: str = ""


def run_units(
    corpus: Corpus, *, limit_s: float, jobs: int = 1, only: Sequence[str] = ()
) -> Iterator[Outcome]:
    """Run the units and yield each outcome as it comes.

    limit_s   seconds a unit may take
    jobs      units that run at the same time
    only      parts of names; all units if empty
    """
    corpus.prepare()
    waiting = [u for u in corpus.units if not only or any(part in u.name for part in only)]
    waiting.reverse()
    running: dict[int, _Child] = {}
    with selectors.DefaultSelector() as selector:
        while waiting or running:
            while waiting and len(running) < jobs:
                child = _Child.start(waiting.pop(), limit_s)
                running[child.pipe] = child
                selector.register(child.pipe, selectors.EVENT_READ)
            for key, _ in selector.select(timeout=0.2):
                child = running[key.fd]
                data = os.read(key.fd, _CHUNK)
                child.data += data
                if not data:
                    selector.unregister(key.fd)
                    del running[key.fd]
                    yield child.outcome()
            for child in running.values():
                child.stop_when_late()


@dataclass(slots=True)
class _Child:
    unit: Unit
    process: int
    pipe: int
    start_s: float
    limit_s: float
    data: bytes = b""
    late: bool = False

    @classmethod
    def start(cls, unit: Unit, limit_s: float) -> _Child:
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(reading)
            os.setpgid(0, 0)
            os.write(writing, json.dumps(_attempt(unit)).encode())
            os._exit(0)
        os.close(writing)
        return cls(unit, process, reading, time.monotonic(), limit_s)

    def stop_when_late(self) -> None:
        if not self.late and time.monotonic() - self.start_s > self.limit_s:
            self.late = True
            os.kill(self.process, signal.SIGKILL)

    def outcome(self) -> Outcome:
        os.close(self.pipe)
        _, code = os.waitpid(self.process, 0)
        seconds = round(time.monotonic() - self.start_s, 2)
        if self.late:
            return Outcome(self.unit.name, "timeout", seconds, f"over {self.limit_s:g} s")
        if os.WIFSIGNALED(code):
            name = signal.Signals(os.WTERMSIG(code)).name
            return Outcome(self.unit.name, "crash", seconds, name)
        try:
            status, reason, detail = json.loads(self.data)
        except ValueError:
            return Outcome(self.unit.name, "crash", seconds, "no answer")
        return Outcome(self.unit.name, status, seconds, reason, detail)


def _attempt(unit: Unit) -> tuple[str, str, str]:
    """Run a unit in this process. Its own output goes nowhere: there is a lot of it."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        unit.run()
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is the outcome
        names = {kind.__name__ for kind in type(error).__mro__}
        status = "error"
        if isinstance(error, AssertionError):
            status = "wrong"
        elif "LubanError" in names:
            status = "unsupported"
        text = str(error).strip() or type(error).__name__
        first = text.splitlines()[0] if status != "wrong" else "values differ"
        detail = "".join(traceback.format_exception(error))[-6000:]
        return status, f"{type(error).__name__}: {first}"[:300], detail
    return "pass", "", ""


def _group(reason: str) -> str:
    return re.sub(r"'[^']*'|\b[\w./<>]*\d[\w./<>]*\b|%\w+", "_", reason)[:110]


def outcome_table(outcomes: Sequence[Outcome]) -> Iterable[str]:
    """How many passed, and the reasons of the others by frequency."""
    passed = sum(outcome.status == "pass" for outcome in outcomes)
    share = passed / max(len(outcomes), 1)
    yield f"{passed} of {len(outcomes)} pass ({share:.1%})"
    groups = Counter((o.status, _group(o.reason)) for o in outcomes if o.status != "pass")
    for (status, reason), count in groups.most_common():
        members = [o.name for o in outcomes if (o.status, _group(o.reason)) == (status, reason)]
        shown = ", ".join(members[:4]) + (", ..." if count > 4 else "")
        yield f"{count:5d}  {status:<12} {reason}\n{'':20}{shown}"


def write_outcomes(path: Path, corpus: Corpus, outcomes: Sequence[Outcome]) -> None:
    """The outcomes as JSON."""
    document = {"corpus": corpus.name, "outcomes": [asdict(outcome) for outcome in outcomes]}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
