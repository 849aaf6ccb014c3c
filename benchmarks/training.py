"""Steps of training and inference through torch.compile, next to eager PyTorch and Inductor.

    python -m benchmarks.training [--engines luban,eager,inductor] [name ...]

Each model is compiled by every engine in one process, and timed in turns: the ratio is the median
over rounds. The losses of the first steps have to agree. Inductor needs a C++ compiler, and eager's
matrix products come from MKL, which is weak on AMD's processors.
"""

import argparse
import copy
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.harness import OURS, geometric_mean
from benchmarks.report import milliseconds, table

WANTED = {"eager": 1.6, "inductor": 1.2}
_LOSSES = 3


class Block(nn.Module):
    """Attention and a feed-forward network, each with a norm before and a residual round it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """f32[batch, length, width] to the same."""
        parts = self.mixed(self.norm_1(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class Characters(nn.Module):
    """A GPT of three blocks over 80 characters."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(80, 256), nn.Embedding(128, 256)
        self.blocks = nn.Sequential(*(Block(256, 8) for _ in range(3)))
        self.norm, self.last = nn.LayerNorm(256), nn.Linear(256, 80)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """i64[batch, length] to f32[batch, length, 80]."""
        x = self.table(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.last(self.norm(self.blocks(x)))


def layer(before: int, after: int, stride: int = 1) -> nn.Sequential:
    """Convolution, normalisation, relu."""
    convolution = nn.Conv2d(before, after, 3, stride, 1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after), nn.ReLU())


class Residual(nn.Module):
    """Two residual blocks for images of 32 x 32."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = layer(3, 32), layer(32, 64, 2)
        self.one = nn.Sequential(layer(32, 32), layer(32, 32))
        self.two = nn.Sequential(layer(64, 64), layer(64, 64))
        self.last = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """f32[batch, 3, 32, 32] to f32[batch, 10]."""
        x = self.first(x)
        x = self.down(x + self.one(x))
        return self.last((x + self.two(x)).mean((2, 3)))


class Tagger(nn.Module):
    """A perceptron on rows of a table."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (64, 512, 512, 256, 8)
        layers = [
            part
            for before, after in itertools.pairwise(sizes)
            for part in (nn.Linear(before, after), nn.SiLU())
        ]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """f32[batch, 64] to f32[batch, 8]."""
        return self.layers(x)


@dataclass(frozen=True)
class Case:
    """A model, its input, and what its output should be."""

    model: Callable[[], nn.Module]
    given: Callable[[], torch.Tensor]
    wanted: Callable[[], torch.Tensor]


CASES = {
    "characters": Case(
        Characters, lambda: torch.randint(80, (8, 128)), lambda: torch.randint(80, (8 * 128,))
    ),
    "residual": Case(
        Residual, lambda: torch.randn(16, 3, 32, 32), lambda: torch.randint(10, (16,))
    ),
    "perceptron": Case(Tagger, lambda: torch.randn(256, 64), lambda: torch.randint(8, (256,))),
}


class Engine:
    """One model compiled one way."""

    def __init__(
        self, name: str, model: nn.Module, given: torch.Tensor, wanted: torch.Tensor
    ) -> None:
        self.model = copy.deepcopy(model)
        self.given, self.wanted = given, wanted
        start = time.perf_counter()
        self.call: Any = self.model
        if name != "eager":
            options = {"threads": torch.get_num_threads()} if name == OURS else None
            self.call = torch.compile(self.model, backend=name, options=options)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.losses = [self.step()]
        self.infer()
        self.compile_s = time.perf_counter() - start
        self.losses += [self.step() for _ in range(_LOSSES)]

    def step(self) -> float:
        """Forward, backward, and a step of the optimiser; the loss."""
        self.optimiser.zero_grad()
        loss = functional.cross_entropy(self.call(self.given).flatten(0, -2), self.wanted)
        loss.backward()
        self.optimiser.step()
        return loss.item()

    def infer(self) -> None:
        """Forward alone."""
        with torch.no_grad():
            self.call(self.given)


def seconds(call: Callable[[], Any]) -> float:
    """Of one call, after one to warm up."""
    call()
    start = time.perf_counter()
    call()
    call()
    return (time.perf_counter() - start) / 2


def measured(
    name: str, engines: list[str], rounds: int
) -> Iterator[tuple[str, str, list[str], float]]:
    """For training and inference, each engine's line and its ratio to ours."""
    torch.manual_seed(0)
    case = CASES[name]
    model, given, wanted = case.model(), case.given(), case.wanted()
    made = {engine: Engine(engine, model, given, wanted) for engine in engines}
    for engine, one in made.items():
        for a, b in zip(one.losses, made[OURS].losses, strict=True):
            assert abs(a - b) <= 1e-3 * abs(b), f"{name}: losses of {engine} differ: {a}, {b}"
    for kind in ("train", "infer"):
        times: dict[str, list[float]] = {engine: [] for engine in engines}
        for _ in range(rounds):
            for engine, one in made.items():
                times[engine].append(seconds(one.step if kind == "train" else one.infer))
        for engine in engines:
            pairs = zip(times[engine], times[OURS], strict=True)
            ratio = statistics.median(theirs / ours for theirs, ours in pairs)
            middle = milliseconds(statistics.median(times[engine]))
            compiled = f"{made[engine].compile_s:.1f}"
            yield kind, engine, [name, kind, engine, middle, f"{ratio:.2f}", compiled], ratio


def main() -> int:
    """Print every line, the geometric means, and what was wanted."""
    parser = argparse.ArgumentParser(
        description="training steps next to eager PyTorch and Inductor"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--engines", default=f"{OURS},eager,inductor")
    parser.add_argument("names", nargs="*", default=list(CASES))
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    engines = chosen.engines.split(",")
    lines, ratios = [], dict[tuple[str, str], list[float]]()
    for name in chosen.names:
        for kind, engine, line, ratio in measured(name, engines, chosen.rounds):
            lines.append(line)
            ratios.setdefault((kind, engine), []).append(ratio)
    print(table(["model", "what", "engine", "ms", f"{OURS} is faster by", "compile s"], lines))
    met = True
    for (kind, engine), found in ratios.items():
        if engine == OURS:
            continue
        mean = geometric_mean(found)
        wanted = WANTED.get(engine) if kind == "train" else None
        met = met and (wanted is None or mean >= wanted)
        word = "met" if wanted is None or mean >= wanted else "MISSED"
        verdict = "" if wanted is None else f", wanted {wanted:g}: {word}"
        print(f"{kind}: {mean:.2f} times the speed of {engine}{verdict}")
    return int(not met)


if __name__ == "__main__":
    raise SystemExit(main())
