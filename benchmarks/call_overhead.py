"""What one call costs from Python: the tiny MLP, whose own work is a fraction of a microsecond.

python -m benchmarks.call_overhead        exit 1 if Luban needs more than the target
"""

import tempfile
from pathlib import Path

from benchmarks.harness import OURS, Plan, compare, speedup
from benchmarks.models import BUILT
from benchmarks.report import table

TARGET_US = 5.0


def main() -> int:
    """Median and p95 of a call in microseconds, each engine at one thread and at two."""
    case = next(case for case in BUILT if case.name == "tiny_mlp")
    plan = Plan(rounds=15, turn_s=0.05)
    engines = (OURS, "onnxruntime", "openvino")
    lines: list[list[str]] = []
    met = True
    with tempfile.TemporaryDirectory(prefix="luban-cache-") as folder:
        for threads in (1, 2):
            timings = compare(case, engines, threads, plan, Path(folder))
            ours = timings[0]
            lines += [
                [
                    timing.engine,
                    str(threads),
                    f"{timing.median_s * 1e6:.2f}",
                    f"{timing.p95_s * 1e6:.2f}",
                    f"{speedup(ours, timing):.2f}",
                ]
                for timing in timings
            ]
            met = met and ours.median_s * 1e6 <= TARGET_US
    print(table(["engine", "threads", "us a call", "p95", "luban is x times faster"], lines))
    print(f"target: at most {TARGET_US:g} us: {'met' if met else 'MISSED'}")
    return int(not met)


if __name__ == "__main__":
    raise SystemExit(main())
