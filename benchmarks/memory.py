"""Peak resident size of a process that loads a model and runs it, next to ONNX Runtime's.

python -m benchmarks.memory [name ...]        exit 1 where Luban needs more
"""

import sys
import tempfile
from pathlib import Path

from benchmarks.compare import COLLECTION
from benchmarks.harness import Plan, compare
from benchmarks.report import OURS, table

MODELS = ("tiny_mlp", "magika", "mobilenet_v2", "resnet50", "bert_base", "minilm_int8_weights")


def main() -> int:
    """Print the peaks in MB: after the compile (cold) and from the cache (warm)."""
    plan = Plan(rounds=2, turn_s=0.1, warm_up_s=0.1)
    lines, met = [], True
    for name in sys.argv[1:] or MODELS:
        with tempfile.TemporaryDirectory(prefix="luban-cache-") as folder:
            cold, peer = compare(COLLECTION[name], [OURS, "onnxruntime"], 2, plan, Path(folder))
            (warm,) = compare(COLLECTION[name], [OURS], 2, plan, Path(folder))
        weights_mb = COLLECTION[name].path().stat().st_size / 1e6
        peaks_mb = [timing.peak_bytes / 1e6 for timing in (cold, warm, peer)]
        met = met and not cold.failure and peaks_mb[0] <= peaks_mb[2]
        lines.append(
            [
                name,
                f"{weights_mb:.0f}",
                *(f"{peak:.0f}" for peak in peaks_mb),
                f"{peaks_mb[0] / peaks_mb[2]:.2f}",
                f"{peaks_mb[1] / peaks_mb[2]:.2f}",
            ]
        )
    header = [
        "model",
        "file MB",
        "luban cold",
        "luban warm",
        "onnxruntime",
        "cold / ort",
        "warm / ort",
    ]
    print(table(header, lines))
    print("never above ONNX Runtime" if met else "MISSED: above ONNX Runtime somewhere")
    return int(not met)


if __name__ == "__main__":
    raise SystemExit(main())
