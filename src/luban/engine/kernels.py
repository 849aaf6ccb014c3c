"""Fusions to machine code: lower each, compile what the cache does not have, link."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from luban.codegen.llvm import emit_named, scratch_bytes
from luban.core.numerics import Numerics
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
from luban.native.objects import objects_of
from luban.native.target import Target
from luban.tile.function import Module

__all__ = ["Kernels", "LinkedKernel", "Lowered", "build_kernels", "registers_of"]


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


def registers_of(
    target: Target, measured: Mapping[str, int] | None = None, numerics: Numerics = "strict"
) -> Registers:
    """The target's vector registers, as passes and templates want to know them.

    measured   products to the vectors of their panels, where that is known better
    numerics   what may be computed in less precision than the model says
    """
    pairs = numerics == "fast" and target.has("avx512bf16")
    return Registers(target.vector_bits // 8, target.num_vector_registers, measured or {}, pairs)


@dataclass(frozen=True, slots=True)
class Kernels:
    """What became of fusion nodes: lowered and linked, or declined with a reason."""

    lowered: Mapping[Node, Lowered]
    linked: Mapping[Node, LinkedKernel]
    declined: Mapping[Node, str]


def build_kernels(
    nodes: Sequence[Node], target: Target, cache: Cache, once: Collection[Node] = ()
) -> Kernels:
    """Lower fusions, generate their code and compile what the cache does not have, all at once.

    once    nodes that run one time, when the model is loaded

    Nodes are interned, so equal bodies have the very same nodes: each is lowered once. LLVM works
    on one kernel while the next is being lowered.
    """
    bodies: dict[tuple[object, ...], list[Node]] = {}
    for n in nodes:
        assert isinstance(n.op, Fusion)
        bodies.setdefault((n.op.kind, n.op.body.parameters, n.op.body.results), []).append(n)
    lowered: dict[Node, Lowered] = {}
    declined: dict[Node, str] = {}
    names: dict[str, None] = {}
    emitted: dict[Module, tuple[str, Module, int]] = {}

    def texts() -> Iterator[str]:
        for number, group in enumerate(bodies.values()):
            report("lowering", number, len(bodies))
            assert isinstance(group[0].op, Fusion)
            kernel = _lower(group[0].op, target, all(n in once for n in group))
            if isinstance(kernel, str):
                declined.update(dict.fromkeys(group, kernel))
                continue
            known = emitted.get(kernel.module)
            if known is None:
                name, text = emit_named(kernel.module, target, group[0].op.kind)
                module = _named(kernel.module, name)
                known = emitted[kernel.module] = name, module, scratch_bytes(module)
                if name not in names:
                    names[name] = None
                    yield text
            name, module, scratch = known
            item = Lowered(name, replace(kernel, module=module), scratch)
            lowered.update(dict.fromkeys(group, item))

    objects = objects_of(texts(), target, cache)
    code = dict(zip(names, objects, strict=True))
    library = link(list(code.values()), list(code))
    linked = {
        n: LinkedKernel(
            item.name,
            library.address(item.name),
            item.kernel.arguments,
            item.kernel.num_programs,
            item.scratch_bytes,
            library,
            code[item.name],
        )
        for n, item in lowered.items()
    }
    return Kernels(lowered, linked, declined)


def _lower(fusion: Fusion, target: Target, once: bool) -> Kernel | str:
    """The kernel, or why there is none."""
    try:
        return lower_fusion("kernel", fusion.body, registers_of(target), once=once)
    except Declined as reason:
        return str(reason)
