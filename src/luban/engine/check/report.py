"""What a check found: layers with their errors, and, if something is wrong, who is to blame."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from luban.engine.check.bound import Verdict

__all__ = ["CheckReport", "Finding", "Layer"]


@dataclass(frozen=True, slots=True)
class Layer:
    """One checked value: where it comes from, the operations behind it, and its verdict."""

    name: str
    ops: str
    verdict: Verdict

    @property
    def closeness(self) -> float:
        """How much of its bound the error takes; infinite beyond it."""
        if not self.verdict.ok:
            return float("inf")
        return self.verdict.error / self.verdict.bound if self.verdict.bound else 0.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, and where.

    level  "pass", "lowering", "code generation", "memory plan", "control flow", "host operation",
           "runtime" or "end to end"
    culprit  the pass and rule, the kernel, or the node
    """

    level: str
    culprit: str
    nodes: tuple[str, ...]
    detail: str

    def __str__(self) -> str:
        where = f"\n  nodes: {', '.join(self.nodes)}" if self.nodes else ""
        return f"{self.level}: {self.culprit}\n  {self.detail}{where}"


@dataclass(slots=True)
class CheckReport:
    """The result of `luban.check`: truthy if everything stayed inside the bound.

    finding  the first thing that did not; None if all is well
    repro    the self-contained script that shows it, if one was asked for
    """

    model: str
    runtime: str
    inputs: dict[str, str]
    layers: list[Layer] = field(default_factory=list)
    outputs: list[Layer] = field(default_factory=list)
    finding: Finding | None = None
    repro: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if nothing left its bound."""
        return self.finding is None

    def __bool__(self) -> bool:
        return self.ok

    def worst(self, count: int = 5) -> list[Layer]:
        """The layers nearest to (or beyond) their bound."""
        return sorted(self.layers, key=lambda layer: layer.closeness, reverse=True)[:count]

    def to_json(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {
            "model": self.model,
            "runtime": self.runtime,
            "ok": self.ok,
            "inputs": self.inputs,
            "finding": None if self.finding is None else asdict(self.finding),
            "repro": self.repro,
            "notes": self.notes,
            "outputs": [_line(layer) for layer in self.outputs],
            "layers": [_line(layer) for layer in self.layers],
        }

    def lines(self) -> Iterator[str]:
        """The summary for people."""
        checked = len(self.layers)
        if self.ok:
            yield f"{self.model}: {checked} layers checked against float64, all inside the bound"
        else:
            yield f"{self.model}: WRONG after {checked} layers checked against float64"
            yield str(self.finding)
        yield from dict.fromkeys(
            self.notes
        )  # loops of one node, such as both directions of an LSTM
        if self.repro is not None:
            yield f"repro: {self.repro}"

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _line(layer: Layer) -> dict[str, Any]:
    verdict = layer.verdict
    return {
        "name": layer.name,
        "ops": layer.ops,
        "ok": verdict.ok,
        "error": verdict.error,
        "bound": verdict.bound,
        "detail": str(verdict),
    }
