"""What is on this machine, what is used of it, and what is missing: `luban doctor`."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import luban
from luban.core import settings
from luban.core.errors import InternalError, LubanError
from luban.core.types import tensor
from luban.engine.compile import compile_graph
from luban.engine.hardware import measure_hardware
from luban.graph import build
from luban.ir.node import Graph
from luban.native.cache import Cache, default_cache
from luban.native.call import why_no_builtins
from luban.native.compiler import why_in_this_process
from luban.native.hardware_file import hardware_path, stored_hardware
from luban.native.host import host
from luban.native.target import Target, default_target, host_target
from luban.native.threads import thread_budget

__all__ = ["Diagnosis", "Problem", "diagnose"]

# Features that code generation makes a difference of.
_FEATURES = (
    "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni",
    "avx512bf16", "avx512fp16", "avxvnni", "amx-tile", "amx-int8", "amx-bf16",
    "neon", "dotprod", "fullfp16", "bf16", "i8mm", "sve",
)  # fmt: skip
_PACKAGES = ("numpy", "ml_dtypes", "llvmlite", "onnx", "rich")
_OPTIONAL = ("onnxruntime", "openvino", "torch")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong or slow: what, and what to do. `fatal`: models cannot run."""

    what: str
    hint: str
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings, by topic, and the problems; `works` if a kernel was compiled and ran right."""

    versions: dict[str, str]
    machine: dict[str, str]
    target: dict[str, str]
    threads: dict[str, str]
    cache: dict[str, str]
    limits: dict[str, str]
    settings: dict[str, str]
    optional: dict[str, str]
    works: bool
    problems: tuple[Problem, ...]

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data."""
        return asdict(self)


def diagnose(*, measure: bool = False) -> Diagnosis:
    """Look at everything. Problems are listed, never raised.

    measure   measure what this machine can do, too, and keep it
    """
    problems: list[Problem] = []
    environment = _settings(problems)
    usable = not problems
    target = _target(problems) if usable else host_target()
    store = default_cache() if usable else None
    cache = _cache(store, problems) if store is not None else {}
    budget = thread_budget() if usable else None
    threads = {} if budget is None else {"count": str(budget.count), "because": budget.reason}
    if (reason := why_no_builtins()) is not None:
        problems.append(
            Problem(f"each call costs tens of microseconds: {reason}", "use CPython with the GIL")
        )
    works = usable and _self_test(target, problems)
    limits = _limits(target, measure and works, problems) if usable else {}
    if usable and (reason := why_in_this_process()) is not None:
        problems.append(
            Problem(
                f"kernels compile in this process, with LLVM's memory and LLVM's crashes: {reason}",
                f"unset {settings.COMPILE_PROCESS.variable}, or run a plain Python on Linux",
            )
        )
    return Diagnosis(
        _versions(), _machine(), _target_lines(target), threads, cache, limits, environment,
        {name: _version(name) or "not installed" for name in _OPTIONAL}, works, tuple(problems),
    )  # fmt: skip


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _versions() -> dict[str, str]:
    python = f"{platform.python_implementation()} {platform.python_version()}"
    packages = {name: _version(name) or "missing" for name in _PACKAGES}
    return {"luban": luban.__version__, "python": python, **packages, "LLVM": host().llvm_version}


def _machine() -> dict[str, str]:
    found = {"system": platform.platform(), "processor": host_target().cpu}
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        found["memory"] = f"{size / 2**30:.1f} GiB"
    return found


def _target(problems: list[Problem]) -> Target:
    try:
        return default_target()
    except LubanError as error:
        problems.append(Problem(error.message, error.hint or "", fatal=True))
        return host_target()


def _target_lines(target: Target) -> dict[str, str]:
    used = [name for name in _FEATURES if target.has(name)]
    return {
        "name": target.name,
        "triple": target.triple,
        "vectors": f"{target.num_vector_registers} registers of {target.vector_bits} bits",
        "features used": ", ".join(used),
    }


def _settings(problems: list[Problem]) -> dict[str, str]:
    found: dict[str, str] = {}
    for setting in settings.SETTINGS:
        text = settings.environment(setting.variable)
        try:
            setting.get()
        except LubanError as error:
            problems.append(Problem(error.message, error.hint or "", fatal=True))
        found[setting.variable] = text or f"(default) {setting.doc}"
    return found


def _cache(store: Cache, problems: list[Problem]) -> dict[str, str]:
    stats = store.stats()
    if not stats.limit_bytes:
        problems.append(
            Problem("the cache is off: every start compiles again", "unset LUBAN_CACHE_SIZE")
        )
    else:
        try:
            Path(stats.directory).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=stats.directory) as file:
                file.write(b"luban")
        except OSError as error:
            problems.append(
                Problem(
                    f"the cache in {stats.directory} cannot be written: {error.strerror}",
                    "set LUBAN_CACHE_DIR to a folder you may write to",
                )
            )
    return {
        "folder": stats.directory,
        "entries": str(stats.num_entries),
        "used": f"{stats.size_bytes / 2**20:.1f} of {stats.limit_bytes / 2**20:.0f} MiB",
    }


def _limits(target: Target, measure: bool, problems: list[Problem]) -> dict[str, str]:
    """What this machine can do, by number of threads, if that has been measured."""
    try:
        found = measure_hardware(target) if measure else stored_hardware(target)
    except LubanError as error:
        problems.append(Problem(error.message, error.hint or ""))
        found = None
    if found is None:
        return {"limits": "not measured yet; run luban doctor --measure"}
    lines = {"measured": f"{found.measured}, kept in {hardware_path()}"}
    for limits in found.limits:
        rates = (f"{kind} {limits.rate(kind) / 1e9:.0f}" for kind in limits.operations_s)
        reads = (f"{level.name} {level.bytes_s / 1e9:.0f}" for level in limits.levels)
        who = f"{limits.threads} thread{'s' * (limits.threads > 1)}"
        lines[f"{who}, GFLOP/s"] = ", ".join(rates)
        lines[f"{who}, GB/s"] = ", ".join(reads)
        lines[f"{who}, launch"] = f"{limits.launch_s * 1e9:.0f} ns"
    return lines


def _self_test(target: Target, problems: list[Problem]) -> bool:
    """Compile x + x and run it."""
    x = build.parameter("x", tensor("f32", "n"))
    given = np.arange(1000, dtype=np.float32)
    try:
        compiled = compile_graph(Graph("doctor", (x,), (build.add(x, x),)), target=target)
        (result,) = compiled.executor.run([given])
    except (LubanError, InternalError) as error:
        problems.append(Problem(f"a kernel cannot run: {error}", "please report this", fatal=True))
        return False
    if not np.array_equal(result, given + given):
        problems.append(Problem("a kernel gives a wrong answer", "please report this", fatal=True))
        return False
    return True
