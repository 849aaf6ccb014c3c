"""Run engines side by side: each in its own process, taking turns, so that drift hits all alike.

A shared machine speeds up and slows down by tens of percent within seconds. Times from different
runs are therefore never compared: in each round every engine gets one short turn while the others
wait, and a ratio is the median over rounds of the ratio within a round.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from benchmarks.cases import Array, Feeds, ModelCase, Sizes, relative_error

OURS = "luban"
ROOT = Path(__file__).parents[1]

# Settings of the machine that would hold numpy's BLAS back, and settings that would make a
# measured engine something else than its defaults.
UNSET = (
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "LUBAN_NUM_THREADS",
    "LUBAN_TARGET",
    "LUBAN_VERIFY",
    "PYTHONDONTWRITEBYTECODE",  # an installed package has its bytecode
)


class EngineError(Exception):
    """An engine refused a model or a call, or its process died."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure. A round gives each engine one turn."""

    rounds: int = 9
    turn_s: float = 0.25
    least_calls: int = 2
    warm_up_s: float = 0.3
    starts: int = 3
    pause_s: float = 0.02  # lets the spinning threads of the engine before fall asleep


QUICK = Plan(rounds=5, turn_s=0.08, warm_up_s=0.1, starts=1)


@dataclass(frozen=True, slots=True)
class Timing:
    """What one engine did on one case with one number of threads.

    limit_s   of Luban: the least that this machine allows its kernels
    """

    engine: str
    threads: int
    rounds_s: tuple[tuple[float, ...], ...] = ()
    load_s: float = 0.0
    first_call_s: float = 0.0
    empty_bytes: int = 0
    peak_bytes: int = 0
    error: float | None = None
    failure: str | None = None
    limit_s: float | None = None

    @property
    def median_s(self) -> float:
        """Over all calls; NaN when the engine failed."""
        return float(np.median(self._calls())) if self.rounds_s else float("nan")

    @property
    def p95_s(self) -> float:
        """The 95th percentile over all calls; NaN when the engine failed."""
        return float(np.percentile(self._calls(), 95)) if self.rounds_s else float("nan")

    def _calls(self) -> Array:
        return np.concatenate([np.asarray(calls) for calls in self.rounds_s])


def speedup(ours: Timing, theirs: Timing) -> float:
    """How many times faster `ours` is: the median over rounds of the ratio within a round.

    >>> fast = Timing("a", 1, rounds_s=((1.0, 1.0), (2.0,)))
    >>> slow = Timing("b", 1, rounds_s=((3.0,), (6.0, 6.0)))
    >>> speedup(fast, slow)
    3.0
    """
    pairs = zip(ours.rounds_s, theirs.rounds_s, strict=False)
    ratios = [float(np.median(theirs_s) / np.median(ours_s)) for ours_s, theirs_s in pairs]
    return float(np.median(ratios)) if ratios else float("nan")


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean of ratios: a half and a double cancel. NaN for none.

    >>> geometric_mean([0.5, 2.0])
    1.0
    """
    return float(np.exp(np.mean(np.log(ratios)))) if len(ratios) else float("nan")


class EngineProcess:
    """A worker process with one engine. Use as a context manager: it ends with the block."""

    def __init__(
        self, engine: str, cache: Path, timeout_s: float = 600.0, *, plain_priority: bool = False
    ) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in UNSET}
        environment["LUBAN_CACHE_DIR"] = str(cache)
        source = str(ROOT / "src")
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), source])
        self.engine = engine
        self.timeout_s = timeout_s
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", engine, *(["plain"] * plain_priority)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env=environment,
            start_new_session=True,  # a scheduler group of its own: see worker.raise_priority
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def __enter__(self) -> "EngineProcess":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process, by force if it does not end by itself."""
        if self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Send one request, wait for its answer.

        Raises EngineError with the engine's own words, with the exit code if the process died, or
        after `timeout_s` without an answer.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
            # An answer is one line, so nothing of it is left in the reader's buffer.
            if not select.select([self._process.stdout], [], [], self.timeout_s)[0]:
                self._process.kill()
                raise EngineError(f"{self.engine}: no answer to {do} within {self.timeout_s:g} s")
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait()
            raise EngineError(f"{self.engine}: the process ended with exit code {code} during {do}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EngineError(f"{self.engine}: {answer['error']}")
        return answer


@dataclass(slots=True)
class _Runner:
    """One engine of a comparison while it runs."""

    process: EngineProcess
    threads: int
    loaded: dict[str, Any] = field(default_factory=dict)
    rounds_s: list[tuple[float, ...]] = field(default_factory=list)
    peak_bytes: int = 0
    error: float | None = None
    failure: str | None = None
    limit_s: float | None = None

    def timing(self) -> Timing:
        return Timing(
            self.process.engine,
            self.threads,
            tuple(self.rounds_s) if self.failure is None else (),
            self.loaded.get("load_s", 0.0),
            self.loaded.get("first_call_s", 0.0),
            self.loaded.get("empty_bytes", 0),
            self.peak_bytes,
            self.error,
            self.failure,
            self.limit_s,
        )


def compare(
    case: ModelCase,
    engines: Sequence[str],
    threads: int,
    plan: Plan,
    cache: Path,
    reference: Sequence[Array] | None = None,
    sizes: Sizes | None = None,
) -> list[Timing]:
    """Time `engines` on `case`, in turns; an engine that fails is reported, the rest go on.

    cache      folder for what engines keep between runs
    reference  outputs to compare with; each timing's `error` is the largest relative error
    """
    with tempfile.TemporaryDirectory(prefix="luban-bench-") as folder:
        feeds = save_feeds(case.inputs(sizes), Path(folder) / "feeds.npz")
        runners = [_Runner(EngineProcess(engine, cache), threads) for engine in engines]
        try:
            for runner in runners:
                _try(runner, _load, case, feeds, plan, folder, reference)
            for _ in range(plan.rounds):
                for runner in runners:
                    if runner.failure is None:
                        _try(runner, _turn, plan)
                        time.sleep(plan.pause_s)
            for runner in runners:
                if runner.failure is None:
                    runner.peak_bytes = runner.process.ask("memory")["peak_bytes"]
        finally:
            for runner in runners:
                runner.process.close()
        for runner in runners:
            if runner.process.engine == OURS and runner.failure is None:
                with contextlib.suppress(EngineError):  # what was timed counts without it
                    _limit(runner, case, feeds, cache)
        return [runner.timing() for runner in runners]


def _try(runner: _Runner, step: Callable[..., None], *arguments: Any) -> None:
    try:
        step(runner, *arguments)
    except EngineError as error:
        runner.failure = str(error)


def _load(
    runner: _Runner,
    case: ModelCase,
    feeds: Path,
    plan: Plan,
    folder: str,
    reference: Sequence[Array] | None,
) -> None:
    path = str(case.path())
    ask = runner.process.ask
    runner.loaded = ask("load", path=path, feeds=str(feeds), threads=runner.threads)
    ask("time", budget_s=plan.warm_up_s, least=1)
    if reference is not None:
        outputs = Path(folder) / f"{runner.process.engine}.npz"
        ask("save", path=str(outputs))
        runner.error = largest_error(read_outputs(outputs), reference)


def _limit(runner: _Runner, case: ModelCase, feeds: Path, cache: Path) -> None:
    with EngineProcess(OURS, cache) as process:
        path = str(case.path())
        answer = process.ask("limit", path=path, feeds=str(feeds), threads=runner.threads)
    runner.limit_s = answer["limit_s"]


def _turn(runner: _Runner, plan: Plan) -> None:
    answer = runner.process.ask("time", budget_s=plan.turn_s, least=plan.least_calls)
    runner.rounds_s.append(tuple(answer["durations_s"]))


def save_feeds(feeds: Feeds, path: Path) -> Path:
    """Write inputs by name as an .npz file."""
    np.savez(path, allow_pickle=False, **feeds)
    return path


def read_outputs(path: Path) -> list[Array]:
    """What a worker's save request wrote."""
    with np.load(path) as stored:
        return [stored[f"arr_{index}"] for index in range(len(stored.files))]


def largest_error(outputs: Sequence[Array], reference: Sequence[Array]) -> float:
    """The largest relative error of any output; infinite when their number differs."""
    if len(outputs) != len(reference):
        return float("inf")
    errors = [relative_error(*pair) for pair in zip(outputs, reference, strict=True)]
    return max(errors, default=0.0)


def reference_outputs(case: ModelCase, cache: Path, sizes: Sizes | None = None) -> list[Array]:
    """The case's outputs from ONNX Runtime with every optimisation off."""
    with tempfile.TemporaryDirectory(prefix="luban-bench-") as folder:
        feeds = save_feeds(case.inputs(sizes), Path(folder) / "feeds.npz")
        outputs = Path(folder) / "outputs.npz"
        with EngineProcess("reference", cache) as process:
            process.ask("load", path=str(case.path()), feeds=str(feeds), threads=2)
            process.ask("save", path=str(outputs))
        return read_outputs(outputs)


@dataclass(frozen=True, slots=True)
class Start:
    """A fresh process: from loading the model to the first answer, and the whole process."""

    engine: str
    load_s: float
    first_call_s: float
    process_s: float
    failure: str | None = None


def start(case: ModelCase, engine: str, threads: int, cache: Path) -> Start:
    """Start a process, load the model, run it once. Cold or warm is a matter of `cache`."""
    with tempfile.TemporaryDirectory(prefix="luban-bench-") as folder:
        feeds = save_feeds(case.inputs(), Path(folder) / "feeds.npz")
        path = str(case.path())
        begin = time.perf_counter()
        try:
            with EngineProcess(engine, cache) as process:
                loaded = process.ask("load", path=path, feeds=str(feeds), threads=threads)
                process_s = time.perf_counter() - begin
        except EngineError as error:
            nan = float("nan")
            return Start(engine, nan, nan, nan, str(error))
        return Start(engine, loaded["load_s"], loaded["first_call_s"], process_s)


def cold_and_warm(case: ModelCase, engine: str, threads: int, repeats: int) -> tuple[Start, Start]:
    """The median start with an empty cache, and the median start right after it."""
    cold, warm = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="luban-cold-") as folder:
            cold.append(start(case, engine, threads, Path(folder)))
            warm.append(start(case, engine, threads, Path(folder)))
    return _median_start(cold), _median_start(warm)


def _median_start(starts: Sequence[Start]) -> Start:
    """The start in the middle by time to the first answer; a failure if any failed."""
    failed = [begun for begun in starts if begun.failure]
    ordered = sorted(starts, key=lambda begun: begun.load_s + begun.first_call_s)
    return failed[0] if failed else ordered[len(ordered) // 2]
