"""Convolutions with bias and ReLU, next to ONNX Runtime and to the machine's peak.

    python -m benchmarks.kernels_conv [--threads 1 2]

A chain of layers is timed at two lengths, and the figure is the difference for one layer: a call
from Python and the change of layout at both ends of a network are in neither engine's figure.
"""

import argparse
from dataclasses import dataclass

import numpy as np
from onnx import helper

from benchmarks.kernels import HEADER, Contest, Outcome, Peak, compare, model_of
from benchmarks.report import table

_SHORT, _LONG = 1, 5  # pairs of layers


@dataclass(frozen=True)
class Layer:
    """A convolution and the one that leads back to its channels, alternating in the chain."""

    channels: int
    between: int
    size: int
    window: int
    groups: int = 1

    @property
    def name(self) -> str:
        """As in the tables of the papers: window, channels, image."""
        kind = "depthwise " if self.groups > 1 else ""
        return f"{kind}{self.window} x {self.window}, {self.channels}-{self.between} at {self.size}"

    @property
    def flops(self) -> float:
        """Of the pair."""
        return 4.0 * self.size**2 * self.between * self.channels * self.window**2 / self.groups


LAYERS = [
    Layer(64, 64, 56, 3),
    Layer(128, 128, 28, 3),
    Layer(256, 256, 14, 3),
    Layer(512, 512, 7, 3),
    Layer(64, 256, 56, 1),
    Layer(128, 512, 28, 1),
    Layer(256, 1024, 14, 1),
    Layer(512, 2048, 7, 1),
    Layer(24, 144, 56, 1),
    Layer(96, 576, 14, 1),
    Layer(32, 32, 112, 3, 32),
    Layer(144, 144, 56, 3, 144),
    Layer(192, 192, 28, 3, 192),
    Layer(384, 384, 14, 3, 384),
    Layer(960, 960, 7, 3, 960),
]


def chain(layer: Layer, pairs: int) -> bytes:
    """`pairs` times there and back."""
    random = np.random.default_rng(1)
    nodes, weights, given = [], {}, "x"
    for number in range(2 * pairs):
        sizes = [layer.channels, layer.between]
        source, target = sizes if number % 2 == 0 else sizes[::-1]
        shape = (target, source // layer.groups, layer.window, layer.window)
        scale = (2 / np.prod(shape[1:])) ** 0.5
        weights[f"w{number}"] = (random.standard_normal(shape) * scale).astype(np.float32)
        weights[f"b{number}"] = random.standard_normal(target).astype(np.float32) * np.float32(0.1)
        names = [given, f"w{number}", f"b{number}"]
        pads = [layer.window // 2] * 4
        nodes.append(helper.make_node("Conv", names, [f"c{number}"], group=layer.groups, pads=pads))
        given = "y" if number == 2 * pairs - 1 else f"r{number}"
        nodes.append(helper.make_node("Relu", [f"c{number}"], [given]))
    return model_of(nodes, (1, layer.channels, layer.size, layer.size), weights)


def measure(layer: Layer, threads: int, peak: Peak) -> Outcome:
    """One layer, from the difference of two chains."""
    shape = (1, layer.channels, layer.size, layer.size)
    contests = [Contest(chain(layer, pairs), shape, threads) for pairs in (_SHORT, _LONG)]
    layers = 2.0 * (_LONG - _SHORT)
    return compare(layer.name, threads, layer.flops / 2, contests, peak, layers)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    threads = parser.parse_args().threads
    peak = Peak()
    print(f"peak of one thread: {peak.gflops():.0f} GFLOP/s")
    print(table(HEADER, [measure(x, n, peak).row() for n in threads for x in LAYERS]))


if __name__ == "__main__":
    main()
