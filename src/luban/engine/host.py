"""Host steps: nodes without a kernel, run by their meaning in Python. `explain` lists each."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from luban.core.errors import LubanError, ShapeError
from luban.engine.steps import HostCall, SubRunner
from luban.graph.bind import bind_symbols
from luban.graph.evaluate import evaluate_node
from luban.graph.meaning import MEANING
from luban.graph.meaning.context import Context
from luban.graph.ops.control import sub_graphs
from luban.graph.ops.fusion import Fusion
from luban.ir.node import Graph, Node

__all__ = ["host_call"]


def host_call(node: Node) -> HostCall:
    """What runs `node` on values: control flow runs its sub-graphs as compiled programs.

    >>> from luban.graph import build
    >>> x = build.constant([1.0, 2.0])
    >>> host_call(build.add(x, x))([np.ones(2), np.ones(2)], {}, None)
    (array([2., 2.]),)
    """
    has_programs = bool(sub_graphs(node.op)) and not isinstance(node.op, Fusion)
    return functools.partial(_control if has_programs else _plain, node)


def _plain(
    node: Node, operands: Sequence[Any], sizes: dict[str, int], _run: SubRunner
) -> tuple[Any, ...]:
    with _explained(node, operands):
        result = evaluate_node(node, operands, sizes, "model")
    return _separate(result, operands)


@contextmanager
def _explained(node: Node, operands: Sequence[Any]) -> Iterator[None]:
    """Say which node it was when numpy cannot do it: sizes beyond all memory, mostly."""
    try:
        yield
    except (ValueError, OverflowError, MemoryError) as error:
        given = ", ".join(str(np.shape(operand)) for operand in operands)
        raise ShapeError(
            f"{node.op.name}: cannot be computed for operands of shapes {given}: {error}",
            hint="check the sizes that this call's inputs ask for",
            loc=node.loc,
        ) from error


def _control(
    node: Node, operands: Sequence[Any], sizes: dict[str, int], run: SubRunner
) -> tuple[Any, ...]:
    def inside(graph: Graph, values: Sequence[Any]) -> tuple[Any, ...]:
        return run(graph, values, sizes)

    types = tuple(operand.type for operand in node.operands)
    context = Context("model", types, node.type, sizes, inside)
    try:
        result = MEANING[type(node.op)](node.op, list(operands), context)
    except LubanError as error:
        raise error.located(node.loc) from None
    bind_symbols(node.type, result, sizes, what="result", given=False)
    return _separate(result, operands)


def _separate(result: Any, operands: Sequence[Any]) -> tuple[Any, ...]:
    """The results one by one, each in memory of its own."""
    parts = result if isinstance(result, tuple) else (result,)
    return tuple(_owned(part, operands) for part in parts)


def _owned(value: Any, operands: Sequence[Any]) -> Any:
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    array = np.asarray(value, order="C")
    if any(isinstance(o, np.ndarray) and np.may_share_memory(array, o) for o in operands):
        return array.copy()
    return array
