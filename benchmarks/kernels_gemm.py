"""Matrix products with constant weights, next to ONNX Runtime and to the machine's peak.

    python -m benchmarks.kernels_gemm [--threads 1 2]

A call through Python is in both figures. The shapes are those of BERT, ViT, a classifier's last
layer and decoding with few rows.
"""

import argparse

import numpy as np
from onnx import helper

from benchmarks.kernels import HEADER, Contest, Outcome, Peak, compare, model_of
from benchmarks.report import table

# rows, depth, columns
SHAPES = [
    (128, 768, 768),
    (128, 768, 3072),
    (128, 3072, 768),
    (197, 768, 768),
    (512, 512, 512),
    (1024, 1024, 1024),
    (3136, 64, 256),
    (100, 100, 100),
    (64, 1024, 1024),
    (16, 1024, 1024),
    (4, 1024, 1024),
    (1, 1024, 1024),
    (1, 4096, 4096),
]


def measure(shape: tuple[int, int, int], threads: int, peak: Peak) -> Outcome:
    """One product with a bias."""
    rows, depth, columns = shape
    random = np.random.default_rng(1)
    weights = {
        "w": random.standard_normal((depth, columns)).astype(np.float32),
        "b": random.standard_normal(columns).astype(np.float32),
    }
    model = model_of([helper.make_node("Gemm", ["x", "w", "b"], ["y"])], (rows, depth), weights)
    contest = Contest(model, (rows, depth), threads)
    name = f"{rows} x {depth} x {columns}"
    return compare(name, threads, 2.0 * rows * depth * columns, [contest], peak)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    threads = parser.parse_args().threads
    peak = Peak()
    print(f"peak of one thread: {peak.gflops():.0f} GFLOP/s")
    print(table(HEADER, [measure(s, n, peak).row() for n in threads for s in SHAPES]))


if __name__ == "__main__":
    main()
