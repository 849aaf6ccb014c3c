"""`luban explain`: why the compiled model is as it is."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from luban.cli.options import add_compile_options, compiled_model, sizes_of
from luban.cli.output import bytes_text, emit, heading, progress, table

if TYPE_CHECKING:
    from luban.engine.explain import Explanation, KernelLine

SUMMARY = "print every decision of the compiler with its reason: passes, fusions, kernels, memory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add_compile_options(parser)
    parser.add_argument(
        "--size", action="append", default=[], metavar="NAME=N", help="a symbolic size; repeatable"
    )
    parser.add_argument(
        "--declined", action="store_true", help="print near misses only: what was not done, and why"
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="run it on inputs that are made up: times of kernels next to predicted ones",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Compile and explain."""
    from luban.engine.explain import explain

    model = compiled_model(arguments, cache=False)
    with progress():
        assumptions = model.imported.assumptions if model.imported is not None else ()
        found = explain(
            model.compiled, sizes_of(arguments.size), assumptions, measure=arguments.measure
        )
    emit(found.to_json(), arguments.json, lambda: _text(found, arguments.declined))
    return 0


def _text(found: Explanation, declined_only: bool) -> Iterator[str]:
    yield f"{found.model} for {found.target}, {found.threads} threads, {found.numerics} numerics"
    if found.vetoed:
        yield f"left out: {', '.join(found.vetoed)}"
    for assumption in found.assumptions:
        yield f"assumed: {assumption}"
    yield from _decisions(found, declined_only)
    if declined_only:
        return
    yield heading("kernels")
    rows = [
        [
            kernel.name,
            kernel.launches,
            kernel.grid,
            bytes_text(kernel.moved_bytes),
            *_times(kernel),
            kernel.results,
            ", ".join(f"{n} {op}" if n > 1 else op for op, n in kernel.operators.items()),
        ]
        for kernel in found.kernels
    ]
    times = ["predicted us", "bound by", "measured us", "ratio"]
    yield from table(
        ["kernel", "launches", "programs", "moves", *times, "result", "operators"], rows
    )
    if all(kernel.predicted_s is None for kernel in found.kernels):
        yield "nothing is predicted: this machine is not measured yet; run luban doctor --measure"
    if found.correlation is not None:
        yield f"predicted and measured times rank alike to {found.correlation:.2f} (1: the same)"
    for kernel in found.kernels:
        for line in kernel.notes:
            yield f"{kernel.name}: {line}"
    yield heading("host steps")
    if found.host_steps:
        yield from table(["operator", "reason", "node"], found.host_steps)
    else:
        yield "none: everything runs in kernels"
    yield from _memory(found)


def _times(kernel: KernelLine) -> list[str | None]:
    """Predicted, bound by, measured, and how many times longer that is."""
    predicted, measured = kernel.predicted_s, kernel.measured_s
    return [
        None if predicted is None else f"{predicted * 1e6:.2f}",
        kernel.bound or None,
        None if measured is None else f"{measured * 1e6:.2f}",
        None if predicted is None or measured is None else f"{measured / predicted:.2f}",
    ]


def _decisions(found: Explanation, declined_only: bool) -> Iterator[str]:
    yield heading("passes")
    rows = [
        [p.name, p.graph, p.nodes_before, p.nodes_after, len(p.done), len(p.declined), p.doc]
        for p in found.passes
    ]
    yield from table(["pass", "graph", "nodes", "after", "done", "declined", "what it does"], rows)
    for line in found.passes:
        done = () if declined_only else line.done
        if done or line.declined:
            yield heading(f"{line.name} ({line.graph})")
            yield from (f"+ {text}" for text in done)
            yield from (f"- {text}" for text in line.declined)


def _memory(found: Explanation) -> Iterator[str]:
    sizes = ", ".join(f"{name} = {size}" for name, size in found.sizes.items())
    yield heading("memory" + (f" for {sizes}" if sizes else ""))
    rows = [
        [
            m.stage,
            m.kernels,
            bytes_text(m.arena_bytes),
            bytes_text(m.lower_bound_bytes),
            f"{m.gap:.1%}",
        ]
        for m in found.memory
    ]
    yield from table(["stage", "kernels", "arena", "least possible", "gap"], rows)
    yield f"weights {bytes_text(found.constant_bytes)}"
    yield f"prepared at load {bytes_text(found.prepared_bytes)}"
