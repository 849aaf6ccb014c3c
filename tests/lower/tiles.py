"""Run a graph through layout, fusion and the templates, each kernel by the tile evaluator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from luban.core.registers import Registers
from luban.graph.bind import bind_all
from luban.graph.evaluate import evaluate_node
from luban.graph.ops.fusion import Fusion
from luban.ir.node import Graph, Node, Parameter
from luban.lower.fusion import lower_fusion
from luban.lower.interpret import run_kernel
from luban.lower.kernel import Kernel
from luban.lower.support import no_kernel
from luban.passes.fuse import fuse
from luban.passes.half_products import half_products
from luban.passes.layout import choose_layouts

AVX512, AVX2, NEON = Registers(64, 32), Registers(32, 16), Registers(16, 32)


def optimised(graph: Graph, registers: Registers) -> Graph:
    """The graph with chosen layouts, in pairs where the registers say so, fused."""
    graph = choose_layouts(graph, registers)[0]
    if registers.pair_products:
        graph = half_products(graph, registers)[0]
    return fuse(graph, no_kernel)[0]


def kernels(
    graph: Graph, registers: Registers, *, once: bool = False
) -> Iterator[tuple[Node, Kernel]]:
    """Each fusion with its kernel."""
    for n in optimised(graph, registers).nodes():
        if isinstance(n.op, Fusion):
            yield n, lower_fusion("kernel", n.op.body, registers, once=once)


def notes(graph: Graph, registers: Registers = AVX512) -> str:
    """What the lowering says about the kernels."""
    return "\n".join(note for _, kernel in kernels(graph, registers) for note in kernel.notes)


def run_tiles(
    graph: Graph, inputs: Sequence[Any], registers: Registers, *, once: bool = False
) -> list[Any]:
    """The results, with every access of every kernel checked."""
    sizes: dict[str, int] = {}
    rows = zip(graph.parameter_names, graph.parameters, inputs, strict=True)
    bind_all([(label, parameter.type, x) for label, parameter, x in rows], sizes)
    held: dict[Node, Any] = dict(zip(graph.parameters, inputs, strict=True))
    whole = optimised(graph, registers)
    for n in whole.nodes():
        if isinstance(n.op, Parameter):
            continue
        operands = [held[o] for o in n.operands]
        if isinstance(n.op, Fusion):
            kernel = lower_fusion("kernel", n.op.body, registers, once=once)
            types = [r.tensor for r in n.op.body.results]
            results = run_kernel(kernel, operands, types, sizes)
            held[n] = results[0] if len(results) == 1 else tuple(results)
        else:
            held[n] = evaluate_node(n, operands, sizes)
    return [held[r] for r in whole.results]
