"""Fusions to machine code: lower each, compile what the cache does not have, link."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from luban.codegen.llvm import emit, scratch_bytes
from luban.core.progress import report
from luban.core.registers import Registers
from luban.engine.steps import LinkedKernel
from luban.graph.ops.fusion import Fusion
from luban.ir.node import Node
from luban.lower.fusion import lower_fusion
from luban.lower.kernel import Kernel
from luban.lower.trace import Declined
from luban.native.cache import Cache
from luban.native.link import link
from luban.native.target import Target
from luban.tile.function import Module
from luban.tile.text import to_text

__all__ = ["LinkedKernel", "Lowered", "link_kernels", "lower_fusions", "registers_of"]


@dataclass(frozen=True, slots=True)
class Lowered:
    """The kernel of one fusion under a name made from its content."""

    name: str
    kernel: Kernel
    scratch_bytes: int


def _named(module: Module, name: str) -> Module:
    functions = tuple(
        replace(f, name=name) if f.name == module.entry else f for f in module.functions
    )
    return Module(functions, name)


def registers_of(target: Target) -> Registers:
    """The target's vector registers, as passes and templates want to know them."""
    return Registers(target.vector_bits // 8, target.num_vector_registers)


def lower_fusions(
    nodes: Sequence[Node], target: Target
) -> tuple[dict[Node, Lowered], dict[Node, str]]:
    """(kernels, reasons): what each fusion node was lowered to, or why it has no kernel.

    Nodes are interned, so equal bodies have the very same nodes: each is lowered once.
    """
    lowered: dict[Node, Lowered] = {}
    declined: dict[Node, str] = {}
    known: dict[tuple[object, ...], Lowered | str] = {}
    for number, n in enumerate(nodes):
        assert isinstance(n.op, Fusion)
        report("lowering", number, len(nodes))
        key = (n.op.kind, n.op.body.parameters, n.op.body.results)
        if key not in known:
            known[key] = _lower(n.op, target)
        found = known[key]
        if isinstance(found, str):
            declined[n] = found
        else:
            lowered[n] = found
    return lowered, declined


def _lower(fusion: Fusion, target: Target) -> Lowered | str:
    """The kernel under a name made from its content, or why there is none."""
    try:
        kernel = lower_fusion("kernel", fusion.body, registers_of(target))
    except Declined as reason:
        return str(reason)
    digest = hashlib.sha256(to_text(kernel.module).encode()).hexdigest()
    name = f"{fusion.kind}_{digest[:16]}"
    kernel = replace(kernel, module=_named(kernel.module, name))
    return Lowered(name, kernel, scratch_bytes(kernel.module))


def link_kernels(
    lowered: Mapping[Node, Lowered], target: Target, cache: Cache
) -> dict[Node, LinkedKernel]:
    """Compile each distinct kernel once, in parallel, and link it."""
    modules = {item.name: item.kernel.module for item in lowered.values()}
    texts = []
    for number, module in enumerate(modules.values()):
        report("generating code", number, len(modules))
        texts.append(emit(module, target))
    objects = cache.objects(texts, target)
    code = dict(zip(modules, objects, strict=True))
    libraries = {name: link([data], [name]) for name, data in code.items()}
    return {
        n: LinkedKernel(
            item.name,
            libraries[item.name].address(item.name),
            item.kernel.arguments,
            item.kernel.num_programs,
            item.scratch_bytes,
            libraries[item.name],
            code[item.name],
        )
        for n, item in lowered.items()
    }
