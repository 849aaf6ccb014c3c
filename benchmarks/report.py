"""Results as a Markdown table and as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import OURS, Start, Timing, geometric_mean, speedup


@dataclass(frozen=True, slots=True)
class Row:
    """One case with one number of threads: what every engine did."""

    case: str
    tags: frozenset[str]
    threads: int
    bound: float
    timings: tuple[Timing, ...]

    def of(self, engine: str) -> Timing | None:
        """The engine's timing, unless it failed or was not run."""
        found = (t for t in self.timings if t.engine == engine and t.failure is None)
        return next(found, None)

    def ratio(self, engine: str) -> float | None:
        """How many times faster Luban is than `engine`."""
        ours, theirs = self.of(OURS), self.of(engine)
        return speedup(ours, theirs) if ours and theirs else None

    def best_ratio(self, peers: Sequence[str]) -> float | None:
        """How many times faster Luban is than the fastest of `peers`; below 1 it is behind."""
        ratios = [ratio for peer in peers if (ratio := self.ratio(peer)) is not None]
        return min(ratios, default=None)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is left-aligned, the others right.

    >>> print(table(["model", "ms"], [["a", "1.0"], ["long name", "12.5"]]))
    | model     |   ms |
    | :-------- | ---: |
    | a         |  1.0 |
    | long name | 12.5 |
    """
    widths = [max(len(line[column]) for line in [header, *rows]) for column in range(len(header))]
    widths = [max(width, 3) for width in widths]

    def line(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "| " + " | ".join([first, *rest]) + " |"

    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(header), "| " + " | ".join(rule) + " |", *(line(row) for row in rows)])


def milliseconds(seconds: float) -> str:
    """Three significant digits.

    >>> milliseconds(0.0123456), milliseconds(4.2e-6), milliseconds(1.5), milliseconds(0.9996)
    ('12.3', '0.0042', '1500', '1000')
    """
    value = seconds * 1e3
    return f"{value:.0f}" if value >= 999.5 else f"{value:.3g}"


def speed_table(rows: Sequence[Row], engines: Sequence[str]) -> str:
    """Median and p95 of each engine in ms, Luban's ratio to each peer, and its error."""
    peers = [engine for engine in engines if engine != OURS]
    header = ["model", "threads"]
    for engine in engines:
        header += [f"{engine} ms", "p95"]
    header += [*(f"x {peer}" for peer in peers), "x best", "of limit", "error", "bound"]
    lines = [_speed_line(row, engines, peers) for row in rows]
    return table(header, lines)


def _speed_line(row: Row, engines: Sequence[str], peers: Sequence[str]) -> list[str]:
    cells = [row.case, str(row.threads)]
    for engine in engines:
        timing = row.of(engine)
        cells += (
            [milliseconds(timing.median_s), milliseconds(timing.p95_s)] if timing else ["fails", ""]
        )
    for ratio in (*(row.ratio(peer) for peer in peers), row.best_ratio(peers)):
        cells.append("" if ratio is None else f"{ratio:.2f}")
    ours = row.of(OURS)
    limit = ours.limit_s if ours else None
    cells.append("" if ours is None or limit is None else f"{limit / ours.median_s:.0%}")
    error = ours.error if ours else None
    return [*cells, "" if error is None else f"{error:.1e}", f"{row.bound:.0e}"]


def means(rows: Sequence[Row], peers: Sequence[str]) -> dict[str, dict[int, tuple[float, int]]]:
    """Geometric mean of the ratio and the number of models in it, by peer and threads.

    The peer "the best peer" is the fastest one of each model. Extra models and failures are left
    out.
    """
    result: dict[str, dict[int, tuple[float, int]]] = {}
    counted = [row for row in rows if "extra" not in row.tags]
    for name in (*peers, *(["the best peer"] if len(peers) > 1 else [])):
        by_threads: dict[int, list[float]] = {}
        for row in counted:
            ratio = row.ratio(name) if name in peers else row.best_ratio(peers)
            if ratio is not None:
                by_threads.setdefault(row.threads, []).append(ratio)
        result[name] = {
            threads: (geometric_mean(ratios), len(ratios))
            for threads, ratios in sorted(by_threads.items())
        }
    return result


def mean_lines(rows: Sequence[Row], peers: Sequence[str]) -> str:
    """The geometric means as sentences."""
    lines = []
    for peer, by_threads in means(rows, peers).items():
        for threads, (mean, count) in by_threads.items():
            total = sum(row.threads == threads and "extra" not in row.tags for row in rows)
            lines.append(
                f"- {threads} thread{'s' * (threads > 1)}: {mean:.3f} times the speed of {peer} "
                f"(geometric mean of {count} of {total} models)"
            )
    return "\n".join(lines)


def memory_table(rows: Sequence[Row], engines: Sequence[str]) -> str:
    """Peak resident size of each engine's process in MB, and Luban's share of ONNX Runtime's."""
    header = ["model", *(f"{engine} MB" for engine in engines), "luban / onnxruntime"]
    lines = []
    for row in rows:
        sizes = {engine: row.of(engine) for engine in engines}
        cells = [f"{t.peak_bytes / 1e6:.0f}" if t else "fails" for t in sizes.values()]
        ours, theirs = sizes.get(OURS), sizes.get("onnxruntime")
        share = f"{ours.peak_bytes / theirs.peak_bytes:.2f}" if ours and theirs else ""
        lines.append([row.case, *cells, share])
    return table(header, lines)


def start_table(starts: Mapping[str, Sequence[tuple[str, Start]]]) -> str:
    """Seconds from load to first answer by case; each entry is (column name, start)."""
    columns = [name for name, _ in next(iter(starts.values()))]
    lines = []
    for case, entries in starts.items():
        cells = [
            "fails" if s.failure else milliseconds(s.load_s + s.first_call_s) for _, s in entries
        ]
        lines.append([case, *cells])
    return table(["model", *(f"{column} ms" for column in columns)], lines)


def failure_lines(rows: Sequence[Row]) -> str:
    """Each engine's failure once a case, with its first line of text."""
    seen = {
        (row.case, t.engine): t.failure.splitlines()[0][:200]
        for row in rows
        for t in row.timings
        if t.failure
    }
    return "\n".join(f"- {case}: {text}" for (case, _), text in seen.items())


def wrong_lines(rows: Sequence[Row]) -> str:
    """Cases whose answer by Luban lies outside their bound."""
    wrong = {
        row.case: t.error
        for row in rows
        if (t := row.of(OURS)) and t.error is not None and t.error > row.bound
    }
    return "\n".join(f"- {case}: error {error:.1e}" for case, error in wrong.items())


def write_json(
    path: Path,
    machine: Mapping[str, str],
    rows: Sequence[Row],
    starts: Mapping[str, Sequence[tuple[str, Start]]],
) -> None:
    """Everything that was measured, for other tools."""

    def timing(value: Timing) -> dict[str, Any]:
        return {
            **{k: v for k, v in asdict(value).items() if k != "rounds_s"},
            "round_medians_s": [sorted(calls)[len(calls) // 2] for calls in value.rounds_s],
            "median_s": value.median_s,
            "p95_s": value.p95_s,
        }

    content = {
        "machine": dict(machine),
        "rows": [
            {
                "case": row.case,
                "tags": sorted(row.tags),
                "threads": row.threads,
                "bound": row.bound,
                "engines": [timing(value) for value in row.timings],
            }
            for row in rows
        ],
        "starts": {
            case: [{"column": column, **asdict(value)} for column, value in entries]
            for case, entries in starts.items()
        },
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
