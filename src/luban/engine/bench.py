"""Time a model here and in other runtimes, side by side: `luban bench`.

A machine speeds up and slows down by tens of percent within seconds, so every engine has a process
of its own and they take short turns; a ratio is the median over rounds of the ratio in a round.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from luban.core.errors import OptionError
from luban.core.numerics import Numerics
from luban.core.progress import report
from luban.core.settings import child_environment
from luban.engine.bench_worker import LOADERS

__all__ = ["ENGINES", "Timing", "bench", "check_engines"]

ENGINES = tuple(LOADERS)


@dataclass(frozen=True, slots=True)
class Timing:
    """What one engine did. Times in seconds; None where it failed.

    cold_s, warm_s  load in a fresh process, without and with what the first one left in its cache
    first_s         the first call
    speedup         how many times faster the first engine of the list is: above 1 it wins
    difference      largest difference to the last engine's outputs, relative to their largest value
    """

    engine: str
    median_s: float | None = None
    p95_s: float | None = None
    cold_s: float | None = None
    warm_s: float | None = None
    first_s: float | None = None
    peak_bytes: int | None = None
    speedup: float | None = None
    difference: float | None = None
    failure: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data."""
        return asdict(self)


def check_engines(engines: Sequence[str]) -> None:
    """Raise OptionError for an engine that is not known or not installed."""
    for name in engines:
        if name not in LOADERS:
            raise OptionError(
                f"engine {name!r} is not known, expected some of {', '.join(ENGINES)}"
            )
        if find_spec(name) is None:
            raise OptionError(f"{name} is not installed", hint=f"pip install {name}")


@dataclass(slots=True)
class _Engine:
    """One engine's process and what it has measured."""

    name: str
    process: subprocess.Popen[str]
    rounds: list[list[float]] = field(default_factory=list)
    found: dict[str, Any] = field(default_factory=dict)
    failure: str | None = None

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Send a request; a failure is kept and ends this engine's part."""
        if self.failure is not None:
            return {}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer: dict[str, Any] = (
            json.loads(line)
            if line
            else {"failure": f"the process ended with exit code {self.process.wait()}"}
        )
        self.failure = answer.get("failure")
        return answer


@contextlib.contextmanager
def _started(name: str, cache: Path) -> Iterator[_Engine]:
    process = subprocess.Popen(
        [sys.executable, "-m", "luban.engine.bench_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=child_environment({"LUBAN_CACHE_DIR": str(cache)}),
    )
    try:
        yield _Engine(name, process)
    finally:
        process.kill()
        process.communicate()


def bench(
    model: Path,
    feeds: Mapping[str, Any],
    engines: Sequence[str],
    threads: int,
    *,
    rounds: int = 9,
    turn_s: float = 0.2,
    numerics: Numerics = "strict",
) -> list[Timing]:
    """Time `engines` on a model file with the same inputs, in turns. The first one is compared.

    numerics  "fast": Luban and OpenVINO may round the factors of products to bf16

    An engine that fails is reported so, and the others go on. Raises OptionError as check_engines.
    """
    check_engines(engines)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="luban-bench-")))
        np.savez(folder / "feeds.npz", **feeds)
        common = {"model": str(model), "feeds": str(folder / "feeds.npz"), "threads": threads}
        common["numerics"] = numerics
        running: list[_Engine] = []
        for number, name in enumerate(engines):
            report("starting the engines", number, len(engines))
            cache = folder / f"cache-{name}"
            request = {**common, "engine": name, "outputs": str(folder / f"{name}.npz")}
            with _started(name, cache) as first:
                cold = first.ask("load", **request)
            engine = stack.enter_context(_started(name, cache))
            engine.found = {"cold_s": cold.get("load_s")}
            warm = engine.ask("load", **request)
            engine.found |= {"warm_s": warm.get("load_s"), "first_s": warm.get("first_s")}
            running.append(engine)
        for number in range(rounds + 1):
            report("timing", number, rounds + 1)
            for engine in running:
                seconds = engine.ask("time", budget_s=turn_s).get("seconds")
                if seconds and number:  # the first round warms up
                    engine.rounds.append(seconds)
        for engine in running:
            engine.found["peak_bytes"] = engine.ask("memory").get("peak_bytes")
        outputs = {e.name: _outputs(folder / f"{e.name}.npz") for e in running if not e.failure}
    return [_timing(engine, running[0], outputs) for engine in running]


def _outputs(path: Path) -> list[Any]:
    with np.load(path) as stored:
        return [stored[name] for name in stored.files]


def _timing(engine: _Engine, ours: _Engine, outputs: Mapping[str, list[Any]]) -> Timing:
    if engine.failure is not None:
        return Timing(engine.name, failure=engine.failure)
    every = np.concatenate([np.asarray(seconds) for seconds in engine.rounds])
    ratios = [
        float(np.median(theirs) / np.median(own))
        for own, theirs in zip(ours.rounds, engine.rounds, strict=False)
    ]
    reference = list(outputs.values())[-1]
    return Timing(
        engine.name,
        float(np.median(every)),
        float(np.percentile(every, 95)),
        **engine.found,
        speedup=float(np.median(ratios)) if ratios else None,
        difference=_difference(outputs[engine.name], reference),
    )


def _difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float | None:
    worst = 0.0
    if len(ours) != len(theirs):
        return None
    for left, right in zip(ours, theirs, strict=True):
        if left.shape != right.shape or left.dtype.kind in "OSU":
            return None
        if left.size:
            wide, other = left.astype(np.float64), right.astype(np.float64)
            scale = float(np.nanmax(np.abs(other), initial=0.0)) or 1.0
            worst = max(worst, float(np.nanmax(np.abs(wide - other), initial=0.0)) / scale)
    return worst
