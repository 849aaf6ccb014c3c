"""What wins is kept, what does not is not, and an interrupted run goes on where it was.

Times are made up by width, so that nothing here depends on the machine's mood.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from luban.core.hardware import Hardware, Level, Limits
from luban.core.types import tensor
from luban.engine.compile import Compiled, compile_graph
from luban.engine.kernels import registers_of
from luban.graph import build as g
from luban.ir.node import Graph
from luban.native.knowledge import Measurement
from luban.native.target import default_target
from luban.tuner.measure import Measure, Times, timed_in_turns
from luban.tuner.products import products_of
from luban.tuner.tune import Tuning, tune

RNG = np.random.default_rng(1)
X = RNG.standard_normal((24, 64)).astype(np.float32)
WIDE = "panel_dot f32[24,64] to 768 x f32"
BACK = "panel_dot f32[24,768] to 64 x f32"


def matrix(rows: int, columns: int) -> Any:
    return g.constant(RNG.standard_normal((rows, columns)).astype(np.float32) / 8, "f32")


@pytest.fixture(scope="module")
def model() -> Graph:
    x = g.parameter("x", tensor("f32", 24, 64))
    hidden = g.maximum(g.matmul(x, matrix(64, 768)), g.constant(0, x.tensor.dtype))
    return Graph("two", (x,), (g.matmul(hidden, matrix(768, 64)),), ("y",))


def by_width(cost: Callable[[str, int], float]) -> Measure:
    """A clock that shows `cost(words, vectors)` for each product's kernel."""

    def times(compiled: Compiled) -> Times:
        products = products_of(compiled, registers_of(compiled.target)).values()
        return {k: 1000 * cost(p.words, p.vectors) for p in products for k in p.kernels}

    def measure(
        one: Compiled, other: Compiled, _inputs: Sequence[Any]
    ) -> list[tuple[Times, Times]]:
        return [(times(one), times(other))] * 3

    return measure


def tuned(
    model: Graph,
    measure: Measure,
    known: Mapping[str, Measurement] | None = None,
    budget_s: float = 1000.0,
    hardware: Hardware | None = None,
) -> tuple[Tuning, dict[str, Measurement]]:
    stored: dict[str, Measurement] = {}
    found = tune(
        model,
        [X],
        target=default_target(),
        threads=1,
        budget_s=budget_s,
        known=known or {},
        store=stored.update,
        hardware=hardware,
        measure=measure,
    )
    return found, stored


def test_the_fastest_width_is_stored_and_compiled(model: Graph) -> None:
    found, stored = tuned(model, by_width(lambda words, v: 2.0 if v == 1 else 4.0))
    assert {row.words: row.best for row in found.products} == {WIDE: 1, BACK: 1}
    assert stored[WIDE].vectors == 1
    assert stored[WIDE].speedup == pytest.approx(2.0)
    assert found.speedup == pytest.approx(2.0)
    widths = {words: m.vectors for words, m in stored.items()}
    compiled = compile_graph(model, num_threads=1, measured=widths)
    made = products_of(compiled, registers_of(compiled.target))
    assert {words: p.vectors for words, p in made.items()} == {WIDE: 1, BACK: 1}
    default = compile_graph(model, num_threads=1, measured={})
    np.testing.assert_allclose(
        compiled.executor.run([X])[0], default.executor.run([X])[0], rtol=1e-5, atol=1e-5
    )


def test_a_slower_or_equal_width_is_not_kept(model: Graph) -> None:
    found, stored = tuned(model, by_width(lambda words, v: 1.0))
    assert all(row.best == row.default and row.speedup == 1.0 for row in found.products)
    assert all(m.speedup == 1.0 for m in stored.values())
    assert stored.keys() == {WIDE, BACK}
    assert found.speedup == 1.0


def test_a_winner_that_loses_when_all_are_together_is_dropped(model: Graph) -> None:
    calls = 0

    def measure(one: Compiled, other: Compiled, inputs: Sequence[Any]) -> Any:
        nonlocal calls
        calls += 1
        kind = by_width(lambda words, v: 2.0 if v == 1 else 4.0)
        if len({p.vectors for p in products_of(other, registers_of(other.target)).values()}) == 1:
            kind = by_width(lambda words, v: 8.0 if v == 1 else 4.0)
        return kind(one, other, inputs)

    found, stored = tuned(model, measure)
    assert calls > 2
    assert all(m.speedup == 1.0 for m in stored.values())
    assert found.speedup == 1.0


def test_one_product_may_win_alone(model: Graph) -> None:
    found, stored = tuned(model, by_width(lambda words, v: 1.0 if (words, v) == (BACK, 2) else 3.0))
    assert (stored[BACK].vectors, stored[WIDE].speedup) == (2, 1.0)
    assert 1.0 < found.speedup < 3.0


def test_known_products_are_not_timed_again(model: Graph) -> None:
    known = {WIDE: Measurement(1, 2.0, (2, 3, 4), 1)}
    found, stored = tuned(model, by_width(lambda words, v: 1.0), known)
    assert found.known == 1
    assert stored.keys() == {BACK}


def test_no_budget_times_nothing_and_says_what_is_left(model: Graph) -> None:
    found, stored = tuned(model, by_width(lambda words, v: 1.0), budget_s=0.0)
    assert (found.products, stored, found.left) == ([], {}, 2)


def test_the_real_clock_sees_every_kernel(model: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luban.tuner.measure._TIMING_S", 0.01)
    compiled = compile_graph(model, num_threads=1)
    pairs = timed_in_turns(compiled, compiled, [X])
    assert len(pairs) >= 7
    kernels = set(compiled.kernels.linked.values())
    assert all(times.keys() <= kernels and sum(times.values()) > 0 for p in pairs for times in p)


def test_candidates_leave_out_what_is_mostly_padding() -> None:
    x = g.parameter("x", tensor("f32", 8, 32))
    graph = Graph("narrow", (x,), (g.matmul(x, matrix(32, 16)),), ("y",))
    compiled = compile_graph(graph, num_threads=1)
    registers = registers_of(compiled.target)
    (product,) = products_of(compiled, registers).values()
    least = -(-16 // registers.lanes(4))
    assert product.vectors not in product.candidates
    assert all(v <= 1.5 * least for v in product.candidates)


def test_what_is_near_its_limit_is_left_alone(model: Graph) -> None:
    """Both products are 2 * 24 * 64 * 768 operations; the clock shows 4 us for one, 8 for other."""
    operations = 2 * 24 * 64 * 768
    limits = Limits(1, {"f32": operations / 3.7e-6}, (Level("DRAM", None, 1e15),), 1e-9)
    measure = by_width(lambda words, v: 4.0 if words == WIDE else 8.0)
    found, stored = tuned(model, measure, hardware=Hardware("made up", "2026-01-01", (limits,)))
    assert found.at_limit == 1
    assert stored.keys() == {BACK}
    assert tuned(model, measure)[0].at_limit == 0


def test_candidates_come_in_the_order_of_their_predicted_cost() -> None:
    x = g.parameter("x", tensor("f32", 128, 64))
    compiled = compile_graph(Graph("wide", (x,), (g.matmul(x, matrix(64, 768)),)), num_threads=1)
    registers = registers_of(compiled.target)
    (product,) = products_of(compiled, registers).values()
    costs = [registers.width_cost(v, 768, 4, 128, 64, 64) for v in product.candidates]
    assert costs == sorted(costs)
    assert 1 <= len(costs) <= 6
