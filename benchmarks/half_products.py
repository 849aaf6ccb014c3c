"""Fast numerics (products of bf16 pairs) next to OpenVINO at bfloat16, and the errors of both.

    python -m benchmarks.half_products [--models name ...] [--threads 2] [--rounds 7]
                                       exit 1 if the mean ratio misses

A ratio is the median over rounds of the ratio within a round. An error is the largest difference to
ONNX Runtime without optimisations, in float32, relative to the largest value.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.compare import COLLECTION
from benchmarks.harness import OURS, Plan, compare, geometric_mean, reference_outputs, speedup
from benchmarks.report import milliseconds, table

MODELS = (
    "resnet50",
    "bert_base",
    "minilm",
    "vit_b16",
    "gpt2_prefill",
    "gpt2_decode",
    "unet",
    "yolov8n_like",
    "ppocr5_det",
)
FAST, PEER = "luban_fast", "openvino_bf16"
ENGINES = (FAST, PEER, OURS)
TARGET = 1.1


def measure(name: str, threads: int, plan: Plan, cache: Path) -> tuple[list[str], float]:
    """A row of the table, and how many times faster than the peer fast numerics are."""
    case = COLLECTION[name]
    timings = compare(case, ENGINES, threads, plan, cache, reference_outputs(case, cache))
    failures = [f"{t.engine}: {t.failure}" for t in timings if t.failure is not None]
    if failures:
        raise SystemExit(f"{name}: {'; '.join(failures)}")
    fast, peer, strict = timings
    ratio = speedup(fast, peer)
    return [
        name,
        str(threads),
        *(milliseconds(t.median_s) for t in timings),
        f"{ratio:.2f}",
        f"{speedup(fast, strict):.2f}",
        *(f"{t.error:.1e}" for t in (fast, peer)),
    ], ratio


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    plan = replace(Plan(), rounds=given.rounds)
    rows, met = [], True
    with tempfile.TemporaryDirectory(prefix="luban-halves-") as folder:
        means = []
        for threads in given.threads:
            ratios = []
            for name in given.models:
                row, ratio = measure(name, threads, plan, Path(folder))
                rows.append(row)
                ratios.append(ratio)
                print(" ".join(row), flush=True)
            mean = geometric_mean(ratios)
            met = met and mean >= TARGET
            means.append(f"{threads} threads: {mean:.2f} times the speed of {PEER}")
    header = ["model", "threads", *(f"{engine} ms" for engine in ENGINES)]
    header += [f"x {PEER}", f"x {OURS}", "error", f"{PEER} error"]
    print(table(header, rows))
    print("\n".join(means))
    print(f"target: {TARGET:g} times: {'met' if met else 'MISSED'}")
    return int(not met)


if __name__ == "__main__":
    raise SystemExit(main())
