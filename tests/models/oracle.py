"""Run one case in Luban and in ONNX Runtime without optimisations, and judge the difference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.cases import ModelCase, Sizes, relative_error
from benchmarks.engines import Call, load_reference

THREADS = 2


def label(sizes: Sizes) -> str:
    """`batch=2 length=17`."""
    return " ".join(f"{name}={value}" for name, value in sizes.items())


def disagreements(case: ModelCase, model: Call) -> Iterator[str]:
    """One line for each output, at each of the case's sizes, that lies outside the bound."""
    reference = load_reference(case.path(), THREADS)
    for sizes in case.sizes:
        feeds = case.inputs(sizes)
        expected = reference(feeds)
        actual = model(feeds)
        if len(actual) != len(expected):
            yield f"{label(sizes)}: {len(actual)} outputs, expected {len(expected)}"
            continue
        for index, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
            error = relative_error(ours, theirs)
            if error > case.tolerance.max_relative:
                yield (
                    f"{label(sizes)}: output {index} {ours.dtype}{list(ours.shape)} has error "
                    f"{error:.1e}, allowed {case.tolerance.max_relative:.0e} for "
                    f"{case.tolerance.name}; expected {theirs.dtype}{list(theirs.shape)}"
                )


def compiled_files(cache: Path) -> set[Path]:
    """The object code in the cache so far. Weights and programs follow in the background."""
    return {path.relative_to(cache) for path in cache.glob("objects/*/*") if path.is_file()}
