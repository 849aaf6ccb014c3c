"""Time the widths that products could have, inside their model, and keep what is faster for sure.

Products that are near what the machine can do at all are left alone. Every round compiles the model
once, with the next candidate of every other product, and times kernel by kernel in turns with the
model as it is. What won is compiled together and has to win again, product by product and as a
whole: nothing that is slower than the default is ever kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from luban.core.cost_model import predict
from luban.core.hardware import Hardware
from luban.core.progress import report
from luban.engine.compile import Compiled, compile_graph
from luban.engine.kernel_work import kernel_works
from luban.engine.kernels import registers_of
from luban.ir.node import Graph
from luban.native.knowledge import Measurement
from luban.native.target import Target
from luban.tuner.measure import Measure, Times, timed_in_turns
from luban.tuner.products import Product, products_of

__all__ = ["Tuned", "Tuning", "tune"]

_CLEAR = 1.03  # a candidate has to win by this much at first
_SURE = 1.01  # and by this much once more
_AT_LIMIT = 0.9  # of what the machine can do: no width gains more than tuning costs
_SHARE = 0.005  # of the model's time: products below are left as they are

Store = Callable[[Mapping[str, Measurement]], None]


@dataclass(frozen=True, slots=True)
class Tuned:
    """What became of one product: widths in vectors, the speedup of `best` over `default`."""

    words: str
    default: int
    best: int
    speedup: float
    share: float
    tried: tuple[int, ...]


@dataclass(slots=True)
class Tuning:
    """The outcome.

    products   those that were timed, those that take longest first
    speedup    of the whole model, over what it was before
    known      products that earlier runs had timed
    at_limit   products that are as fast as this machine can be, nearly
    left       products with candidates that the budget did not reach
    """

    products: list[Tuned] = field(default_factory=list)
    speedup: float = 1.0
    known: int = 0
    at_limit: int = 0
    left: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data."""
        return asdict(self)


def tune(
    graph: Graph,
    inputs: Sequence[Any],
    *,
    target: Target,
    threads: int,
    budget_s: float,
    known: Mapping[str, Measurement],
    store: Store,
    hardware: Hardware | None = None,
    measure: Measure = timed_in_turns,
) -> Tuning:
    """Find the fastest widths for a model's products on these inputs.

    budget_s   no round begins that would end later than this, by the length of the longest so far
    known      measurements of earlier runs: their products are not timed again
    store      takes new measurements once they are sure, so that the next run goes on from there
    hardware   what this machine can do, to leave alone what reaches that
    measure    times two compiled models in turns
    """
    began = time.monotonic()
    tuner = _Tuner(graph, inputs, target, threads, known, measure)
    report("compiling")
    base = tuner.compiled({})
    products = products_of(base, tuner.registers)
    shares, times = tuner.shares(base, products)
    timed = [p for p in products.values() if shares[p.words] >= _SHARE and p.candidates]
    unknown = [p for p in timed if p.words not in known]
    limits = tuner.limits(base, products, hardware) if hardware is not None else {}
    new = [p for p in unknown if limits.get(p.words, 0.0) < _AT_LIMIT * times[p.words]]
    rounds = tuner.rounds(base, new, began + budget_s)
    finished = [p for p in new if len(p.candidates) <= rounds]
    winners = tuner.winners(finished)
    store({p.words: tuner.lost(p) for p in finished if p.words not in winners})
    report("confirming")
    speedup, gains = tuner.confirmed(base, winners)
    store({p.words: tuner.lost(p) for p in finished if p.words in winners.keys() - gains.keys()})
    store({p.words: tuner.won(p, winners, gains) for p in finished if p.words in gains})
    rows = [
        Tuned(
            p.words,
            p.vectors,
            winners[p.words] if p.words in gains else p.vectors,
            gains.get(p.words, 1.0),
            shares[p.words],
            p.candidates,
        )
        for p in sorted(finished, key=lambda p: -shares[p.words])
    ]
    seconds = time.monotonic() - began
    return Tuning(
        rows,
        speedup,
        len(timed) - len(unknown),
        len(unknown) - len(new),
        len(new) - len(finished),
        seconds,
    )


class _Tuner:
    """One model, and what has been measured of it."""

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[Any],
        target: Target,
        threads: int,
        known: Mapping[str, Measurement],
        measure: Measure,
    ) -> None:
        self.graph = graph
        self.inputs = inputs
        self.target = target
        self.threads = threads
        self.measure = measure
        self.registers = registers_of(target)
        self.widths = {w: m.vectors for w, m in known.items() if m.speedup > 1.0}
        self.gained: dict[str, dict[int, float]] = {}  # product -> width -> speedup

    def compiled(self, trial: Mapping[str, int]) -> Compiled:
        """The model with these widths for these products."""
        return compile_graph(
            self.graph,
            num_threads=self.threads,
            target=self.target,
            measured={**self.widths, **trial},
        )

    def shares(
        self, base: Compiled, products: Mapping[str, Product]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """The part of a call's time that each product takes, and nanoseconds of it."""
        rows = [times for pair in self.measure(base, base, self.inputs) for times in pair]
        total = median(sum(times.values()) for times in rows) or 1.0
        taken = {words: median(_of(t, p) for t in rows) for words, p in products.items()}
        return {words: ns / total for words, ns in taken.items()}, taken

    def limits(
        self, base: Compiled, products: Mapping[str, Product], hardware: Hardware
    ) -> dict[str, float]:
        """The least nanoseconds that each product could take in a call, as far as that is known."""
        call = base.executor.timed()(self.inputs)
        works = kernel_works(base, call.sizes)
        least = {
            kernel: 1e9
            * spent.runs
            * predict(works[kernel].work, hardware.at(spent.threads)).seconds
            for kernel, spent in call.kernels.items()
            if kernel in works
        }
        return {words: _of(least, product) for words, product in products.items()}

    def rounds(self, base: Compiled, new: Sequence[Product], deadline: float) -> int:
        """Time one candidate of each product after the other; how many that were."""
        most = max((len(p.candidates) for p in new), default=0)
        longest = 0.0
        for number in range(most):
            start = time.monotonic()
            if start + longest >= deadline:
                return number
            report("timing widths", number, most + 1)
            trial = {p.words: p.candidates[number] for p in new if number < len(p.candidates)}
            for words, gain in self._gains(base, self.compiled(trial), list(trial)).items():
                self.gained.setdefault(words, {})[trial[words]] = gain
            longest = max(longest, time.monotonic() - start)
        return most

    def _gains(self, base: Compiled, variant: Compiled, words: Sequence[str]) -> dict[str, float]:
        """How many times faster each product is in `variant`."""
        before, after = products_of(base, self.registers), products_of(variant, self.registers)
        pairs = self.measure(base, variant, self.inputs)
        return {
            each: median(
                _of(old, before[each]) / max(_of(new, after[each]), 1.0) for old, new in pairs
            )
            for each in words
            if each in after
        }

    def winners(self, finished: Sequence[Product]) -> dict[str, int]:
        """The fastest width of each product that has a clearly faster one than now."""
        best = {p.words: max(self.gained[p.words].items(), key=lambda row: row[1])
                for p in finished if self.gained.get(p.words)}  # fmt: skip
        return {words: width for words, (width, gain) in best.items() if gain > _CLEAR}

    def confirmed(
        self, base: Compiled, winners: Mapping[str, int]
    ) -> tuple[float, dict[str, float]]:
        """The whole model's speedup, and that of each winner which won again; all or none."""
        if not winners:
            return 1.0, {}
        final = self.compiled(winners)
        gains = self._gains(base, final, list(winners))
        kept = {words: gain for words, gain in gains.items() if gain > _SURE}
        if not kept:
            return 1.0, {}
        if len(kept) < len(winners):
            final = self.compiled({words: winners[words] for words in kept})
        pairs = self.measure(base, final, self.inputs)
        speedup = median(sum(old.values()) / max(sum(new.values()), 1.0) for old, new in pairs)
        return (speedup, kept) if speedup > 1.0 else (1.0, {})

    def lost(self, product: Product) -> Measurement:
        """To remember: nothing beats the default."""
        return Measurement(product.vectors, 1.0, product.candidates, self.threads)

    def won(
        self, product: Product, winners: Mapping[str, int], gains: Mapping[str, float]
    ) -> Measurement:
        """To remember: the winner, and what it beat."""
        best = winners[product.words]
        beaten = tuple(v for v in (product.vectors, *product.candidates) if v != best)
        return Measurement(best, gains[product.words], beaten, self.threads)


def _of(times: Times, product: Product) -> float:
    return sum(times.get(kernel, 0.0) for kernel in product.kernels)
