"""Which lowering a fusion gets: the template of its contraction, or the loop nest for all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from luban.core.registers import Registers
from luban.graph.ops.coded import PanelCodedDot
from luban.graph.ops.contract import Convolution
from luban.graph.ops.packed import PanelConvolution, PanelDot
from luban.graph.ops.reduce import Cumulative, ReduceWindow, Sort, TopK
from luban.graph.ops.structure import Concatenate, Scatter, Transpose
from luban.graph.ops.winograd import WinogradConvolution
from luban.ir.node import Graph, Op
from luban.lower.attention import lower_attention
from luban.lower.attention_plan import holds_attention
from luban.lower.coded import lower_panel_coded_dot
from luban.lower.concatenate import lower_concatenate
from luban.lower.cumulative import lower_cumulative
from luban.lower.emit import lower_nest
from luban.lower.gemm import lower_panel_product
from luban.lower.kernel import Kernel
from luban.lower.ordering import lower_ordering
from luban.lower.scatter import lower_scatter
from luban.lower.trace import Declined
from luban.lower.transposes import lower_transpose
from luban.lower.windows import lower_window
from luban.lower.winograd import lower_winograd
from luban.tile.function import Module

__all__ = ["TEMPLATES", "lower_fusion"]

TEMPLATES: dict[type[Op], Callable[[str, Graph, Registers], Kernel]] = {
    PanelDot: lower_panel_product,
    PanelConvolution: lower_panel_product,
    WinogradConvolution: lower_winograd,
    PanelCodedDot: lower_panel_coded_dot,
    Convolution: lower_window,
    ReduceWindow: lower_window,
}


def lower_fusion(name: str, body: Graph, registers: Registers, *, once: bool = False) -> Kernel:
    """The kernel of a fusion body; its notes say which template declined, and why.

    once    it runs one time: less to compile is better than a faster kernel; operands lie in the
            model's file, which aligns nothing

    Raises Declined if there is no kernel at all.
    """
    kernel = _lowered(name, body, registers, once)
    return replace(kernel, module=_reading_anywhere(kernel.module)) if once else kernel


def _reading_anywhere(module: Module) -> Module:
    """The same for memory that is only read and may lie at any address."""
    functions = []
    for function in module.functions:
        params = [
            replace(p, alignment=1) if p.is_pointer and p.access == "read" else p
            for p in function.params
        ]
        functions.append(replace(function, params=tuple(params)))
    return replace(module, functions=tuple(functions))


def _lowered(name: str, body: Graph, registers: Registers, once: bool) -> Kernel:
    notes: list[str] = []
    if holds_attention(body):
        return lower_attention(name, body, registers)
    if any(isinstance(n.op, Scatter) for n in body.nodes()):
        return lower_scatter(name, body, registers)
    if any(isinstance(n.op, (Sort, TopK)) for n in body.nodes()):
        return lower_ordering(name, body, registers)
    if any(isinstance(n.op, Cumulative) for n in body.nodes()):
        return lower_cumulative(name, body, registers)
    for n in body.nodes():
        if type(n.op) in TEMPLATES:
            try:
                return TEMPLATES[type(n.op)](name, body, registers)
            except Declined as reason:
                notes.append(f"{n.op.name} as a plain loop nest: {reason}")
    if isinstance(body.results[0].op, Concatenate):
        with suppress(Declined):
            return lower_concatenate(name, body, registers)
    if any(isinstance(n.op, Transpose) for n in body.nodes()):
        with suppress(Declined):  # what is more than a copy is no matter for explain
            return lower_transpose(name, body, registers, once=once)
    kernel = lower_nest(name, body, registers.vector_bytes)
    return replace(kernel, notes=(*kernel.notes, *notes))
