"""The page stands by itself, parses, and shows each kernel where its figures say."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from luban.core.hardware import Hardware, Level, Limits
from luban.profiler.picture import picture, roofline_page
from luban.profiler.roofline import KernelLine, Roofline

SVG = "{http://www.w3.org/2000/svg}"
LEVELS = (Level("L2", 1 << 20, 100e9), Level("DRAM", None, 10e9))
MACHINE = Hardware("m", "2026-01-01", (Limits(1, {"f32": 100e9, "i8": 400e9}, LEVELS, 1e-7),))


def line(
    name: str, operations: float, size_bytes: float, time_s: float, share: float
) -> KernelLine:
    limit_s = max(operations / 100e9, size_bytes / 10e9)
    return KernelLine(
        name, f"dot<{name}>", "f32[1]", (), 1, 1, time_s, share, operations, operations, size_bytes,
        limit_s, "compute" if operations / 100e9 >= limit_s else "DRAM",
    )  # fmt: skip


LINES = (
    line("fast", 1e9, 1e7, 1.25e-2, 0.7),
    line("near", 1e8, 1e8, 1.15e-2, 0.2),
    line("slow", 1e6, 1e6, 1e-2, 0.1),
    line("moves", 0.0, 1e6, 1e-3, 0.0),
)
FOUND = Roofline("a & b", 1, {"n": 4}, MACHINE, 1.0, 9, 5e-2, LINES, 0)


@pytest.fixture(scope="module")
def svg() -> ElementTree.Element:
    return ElementTree.fromstring(picture(FOUND))


def number(element: ElementTree.Element, name: str) -> float:
    return float(element.attrib[name])


def test_the_page_is_well_formed_and_loads_nothing() -> None:
    page = roofline_page(FOUND)
    document = ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>"))
    assert document.find("head/title").text == "a & b: roofline"  # type: ignore[union-attr]
    rows = document.findall("body/table/tbody/tr")
    assert [row[0].text for row in rows] == ["fast", "near", "slow", "moves"]
    assert [row[-1].text for row in rows] == ["compute", "DRAM", "DRAM", "DRAM"]
    assert not re.search(r"(src|href)=|url\(|@import|<script", page)


def test_every_kernel_that_computes_is_a_disc(svg: ElementTree.Element) -> None:
    discs = svg.findall(f"{SVG}circle")
    titles = [disc.find(f"{SVG}title").text for disc in discs]  # type: ignore[union-attr]
    assert [title.split("\n")[0] for title in titles if title] == [
        "dot<fast>", "dot<near>", "dot<slow>",
    ]  # fmt: skip
    assert "80% of the limit by compute" in (titles[0] or "")
    sizes = [number(disc, "r") for disc in discs]
    assert sizes == sorted(sizes, reverse=True)


def test_axes_are_logarithmic_and_no_disc_is_above_its_roof(svg: ElementTree.Element) -> None:
    fast, near, slow = ((number(d, "cx"), number(d, "cy")) for d in svg.findall(f"{SVG}circle"))
    assert fast[0] > near[0] == slow[0]
    assert fast[1] < near[1] < slow[1]
    roofs = {e.attrib["class"]: e for e in svg.findall(f"{SVG}line")}
    memory = roofs["roof memory"]  # the last one: DRAM
    part = (near[0] - number(memory, "x1")) / (number(memory, "x2") - number(memory, "x1"))
    height = number(memory, "y1") + part * (number(memory, "y2") - number(memory, "y1"))
    assert near[1] > height
    assert slow[1] > near[1]


def test_everything_lies_inside(svg: ElementTree.Element) -> None:
    width, height = (float(svg.attrib[name]) for name in ("width", "height"))
    limits = dict.fromkeys(("x1", "x2", "cx", "x"), width)
    limits |= dict.fromkeys(("y1", "y2", "cy", "y"), height)
    for each in svg.iter():
        for name, limit in limits.items():
            assert 0 <= float(each.attrib.get(name, 0)) <= limit


def test_a_model_without_arithmetic_has_an_empty_picture() -> None:
    nothing = Roofline("moves", 1, {}, MACHINE, 1.0, 9, 5e-2, LINES[3:], 0)
    assert not ElementTree.fromstring(picture(nothing)).findall(f"{SVG}circle")
