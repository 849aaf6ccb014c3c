"""A roofline as one HTML file: a picture in SVG, the table below it, nothing loaded from elsewhere.

Both axes are logarithmic: operations for each byte to the right, operations a second upwards. Each
roof is a limit of the machine, each disc a kernel, the larger the more of the time it takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10, sqrt

from luban.core.hardware import Limits
from luban.profiler.roofline import KernelLine, Roofline

__all__ = ["picture", "roofline_page"]

_WIDTH, _HEIGHT = 960, 560
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 150, 20, 50
_LARGEST = 26  # radius of a kernel that takes all the time
_COLOURS = {
    "compute": "#2a6fbb",
    "L1": "#7a9e3a",
    "L2": "#4c9a2a",
    "L3": "#c58a00",
    "DRAM": "#c0392b",
    "launch": "#7d5ba6",
}
_OTHER = "#777777"
_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222; background: #fff }
table { border-collapse: collapse; margin-top: 1em }
th, td { padding: 2px 10px; text-align: right; border-bottom: 1px solid #ddd }
th:nth-child(-n+3), td:nth-child(-n+3), td:last-child, th:last-child { text-align: left }
td:nth-child(3) { max-width: 40em; font-size: 12px; color: #555 }
svg text { font: 12px system-ui, sans-serif; fill: #444 }
circle:hover { stroke: #000; stroke-width: 2 }
"""


@dataclass(frozen=True, slots=True)
class _Axis:
    """Decades from `low` to `high` on pixels from `start` to `end`."""

    low: int
    high: int
    start: float
    end: float

    def at(self, value: float) -> float:
        """The pixel of a value above 0; values outside lie on the edge."""
        place = (log10(value) - self.low) / (self.high - self.low)
        return self.start + min(max(place, 0.0), 1.0) * (self.end - self.start)

    def decades(self) -> range:
        return range(self.low, self.high + 1)


def _axes(lines: Sequence[KernelLine], limits: Limits) -> tuple[_Axis, _Axis]:
    peak = max(limits.operations_s.values())
    slowest = min(level.bytes_s for level in limits.levels)
    shown = [line for line in lines if line.operations and line.size_bytes and line.time_s]
    across = [line.intensity for line in shown] + [0.1, 2 * peak / slowest]
    upwards = [line.operations / line.time_s for line in shown] + [peak / 1000, 1.5 * peak]
    return (
        _Axis(floor(log10(min(across))), ceil(log10(max(across))), _LEFT, _WIDTH - _RIGHT),
        _Axis(floor(log10(min(upwards))), ceil(log10(max(upwards))), _HEIGHT - _BOTTOM, _TOP),
    )


def picture(found: Roofline) -> str:
    """The picture alone, as an SVG element."""
    lines, limits = found.grouped(), found.limits
    x, y = _axes(lines, limits)
    parts = [*_grid(x, y), *_roofs(x, y, limits), *_discs(x, y, lines)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
    return "\n".join([head + f'width="{_WIDTH}" height="{_HEIGHT}" role="img">', *parts, "</svg>"])


def _grid(x: _Axis, y: _Axis) -> Iterator[str]:
    for decade in x.decades():
        at = x.at(10.0**decade)
        yield _line(at, y.start, at, y.end, "#e8e8e8")
        yield _text(at, y.start + 18, f"{10.0**decade:g}", "middle")
    for decade in y.decades():
        at = y.at(10.0**decade)
        yield _line(x.start, at, x.end, at, "#e8e8e8")
        yield _text(x.start - 8, at + 4, f"{10.0 ** (decade - 9):g}", "end")
    yield _text((x.start + x.end) / 2, _HEIGHT - 10, "operations for each byte", "middle")
    yield f'<g transform="rotate(-90 16 {_HEIGHT / 2:g})">'
    yield _text(16, _HEIGHT / 2, "GFLOP/s", "middle") + "</g>"


def _roofs(x: _Axis, y: _Axis, limits: Limits) -> Iterator[str]:
    low, high = 10.0**x.low, 10.0**x.high
    top = max(limits.operations_s.values())
    for kind, rate in limits.operations_s.items():
        start = rate / max(level.bytes_s for level in limits.levels)
        at = y.at(rate)
        yield _line(x.at(max(start, low)), at, x.end, at, _COLOURS["compute"], "roof compute")
        yield _text(x.end + 6, at + 4, f"{kind} {rate / 1e9:.0f} GFLOP/s")
    for level in limits.levels:
        first = max(low, 10.0**y.low / level.bytes_s)
        last = min(high, top / level.bytes_s)
        colour = _COLOURS.get(level.name, _OTHER)
        ends = [(x.at(i), y.at(i * level.bytes_s)) for i in (first, last)]
        yield _line(*ends[0], *ends[1], colour, "roof memory")
        label = f"{level.name} {level.bytes_s / 1e9:.0f} GB/s"
        below = level.name in ("L3", "DRAM")
        yield _text(ends[0][0] + 6, ends[0][1] + (14 if below else -14), label)


def _discs(x: _Axis, y: _Axis, lines: Sequence[KernelLine]) -> Iterator[str]:
    for line in lines:  # the largest first, so that small ones lie on top
        if not (line.operations and line.size_bytes and line.time_s):
            continue
        told = (
            f"{line.computes}\n{line.shapes}\n{line.runs} runs, {line.time_s * 1e6:.1f} us, "
            f"{line.share:.1%} of the time\n{line.of_limit:.0%} of the limit by {line.bound}"
        )
        at = x.at(line.intensity), y.at(line.operations / line.time_s)
        yield (
            f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{3 + _LARGEST * sqrt(line.share):.1f}" '
            f'fill="{_COLOURS.get(line.bound, _OTHER)}" fill-opacity="0.6">'
            f"<title>{escape(told)}</title></circle>"
        )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, kind: str = "grid") -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{kind}" {ends} stroke="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def roofline_page(found: Roofline) -> str:
    """The whole page."""
    sizes = ", ".join(f"{name} = {size}" for name, size in found.sizes.items())
    threads = f"{found.threads} thread{'s' * (found.threads > 1)}"
    told = f"{threads}{', ' if sizes else ''}{sizes}; machine measured {found.hardware.measured}"
    head = ["kernel", "computes", "shapes", "runs", "us", "share", "GFLOP/s", "GB/s", "of limit"]
    cells = "".join(f"<th>{name}</th>" for name in (*head, "bound by"))
    title = f"<title>{escape(found.model)}: roofline</title>"
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>',
        f"{title}<style>{_STYLE}</style></head><body>",
        f"<h1>{escape(found.model)}</h1><p>{escape(told)}</p>",
        f"<p>A call takes {found.call_s * 1e3:.3f} ms, its limit {found.limit_s * 1e3:.3f} ms.</p>",
        picture(found),
        f"<table><thead><tr>{cells}</tr></thead><tbody>",
        *map(_row, found.grouped()),
        "</tbody></table></body></html>",
    ]
    return "\n".join(parts)


def _row(line: KernelLine) -> str:
    cells = [
        line.name,
        line.computes,
        line.shapes,
        str(line.runs),
        f"{line.time_s * 1e6:.1f}",
        f"{line.share:.1%}",
        f"{line.gflop_s:.1f}",
        f"{line.gb_s:.1f}",
        f"{line.of_limit:.0%}",
        line.bound,
    ]
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
