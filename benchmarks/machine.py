"""What a figure belongs to: processor, cores, memory, versions, commit, date."""

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

ENGINE_PACKAGES = ("numpy", "llvmlite", "onnxruntime", "openvino")


def facts() -> dict[str, str]:
    """Name and value of everything that a reader needs to judge a figure."""
    found = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ""),
        "memory": memory(),
        "system": f"{platform.system()} {platform.release()}",
        "other load": load(),
        "python": platform.python_version(),
        "commit": commit(),
    }
    for package in ENGINE_PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def processor() -> str:
    """The processor's name and its vector extensions, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    entries = dict(
        [part.strip() for part in line.split(":", 1)] for line in reversed(lines) if ":" in line
    )
    flags = entries.get("flags", "").split()
    wanted = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile")
    name = entries.get("model name", platform.machine())
    return f"{name} ({', '.join(flag for flag in wanted if flag in flags) or 'no AVX2'})"


def memory() -> str:
    """The machine's memory, in GiB."""
    try:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return "unknown"
    return f"{pages / 2**30:.0f} GiB"


def load() -> str:
    """How busy others keep the machine: ask before measuring, as that is load too."""
    if not hasattr(os, "getloadavg"):
        return "unknown"
    running = os.getloadavg()[0]
    remark = ": BUSY, ratios at several threads are not to be trusted" if running > 0.5 else ""
    return f"{running:.1f} processes{remark}"


def commit() -> str:
    """The commit of this checkout, with a mark when files differ from it."""
    root = Path(__file__).parents[1]
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    return done.stdout.strip() or "unknown"
