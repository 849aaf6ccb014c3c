"""The meaning of a graph: run it in numpy, in the model's own dtypes or in float64.

>>> from luban.core.types import tensor
>>> from luban.graph import build
>>> x = build.parameter("x", tensor("f32", "n"))
>>> double = Graph("double", (x,), (build.add(x, x),))
>>> evaluate(double, {"x": np.array([1, 2], np.float32)})
(array([2., 4.], dtype=float32),)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from luban.core.errors import InternalError, LubanError
from luban.core.types import TensorType
from luban.graph.bind import bind_all, bind_inputs, bind_symbols
from luban.graph.meaning import MEANING
from luban.graph.meaning.context import Context, Precision, Value, conform
from luban.graph.ops.control import If, Loop, Scan
from luban.graph.ops.data import Constant, HostCall
from luban.graph.order import execution_order
from luban.ir.node import GetItem, Graph, Node, Parameter

__all__ = ["bind_symbols", "evaluate", "evaluate_node", "ordered_inputs"]

Observer = Callable[[Node, Value], None]


def evaluate(
    graph: Graph,
    inputs: Mapping[str, Any] | Sequence[Any],
    *,
    precision: Precision = "model",
    observe: Observer | None = None,
) -> tuple[Value, ...]:
    """Run a graph on inputs, by name or in order, and give its results in order.

    precision  "model": every value in its own dtype;
               "float64": the oracle, which rounds only in casts to 8 bits and fewer
    observe    called with each node and its value, in order

    Values are freed after their last use. Raises InputError for inputs that do not fit, and what
    a node raises when its operands do not fit at run time.
    """
    given = ordered_inputs(graph, inputs)
    sizes: dict[str, int] = {}
    labels = graph.parameter_names
    bind_all(
        (
            (f"input {label!r}", p.type, value)
            for label, p, value in zip(labels, graph.parameters, given, strict=True)
        ),
        sizes,
    )
    held = [conform(v, p.type, precision) for v, p in zip(given, graph.parameters, strict=True)]
    return _run(graph, _planned(graph), held, sizes, precision, observe)


def ordered_inputs(graph: Graph, inputs: Mapping[str, Any] | Sequence[Any]) -> list[Value]:
    """The inputs in the graph's order, as arrays of the declared dtypes.

    Raises InputError for missing or unknown names, a wrong count or another dtype.
    """
    types = [p.type for p in graph.parameters]
    return bind_inputs(graph.name, graph.parameter_names, types, inputs)


def evaluate_node(
    node: Node, operands: Sequence[Value], sizes: dict[str, int], precision: Precision = "model"
) -> Value:
    """The value of one node: an array, a tuple for several results, or what a host operator gives.

    Operands come in their own dtypes; "float64" widens them before anything is computed. Symbols
    that the node settles (a count of non-zeros, the trips of a loop) are added to `sizes`. Raises
    ShapeError or what the primitive raises, with the node's name and place.

    >>> from luban.graph import build
    >>> x = build.constant([1.0, 2.0])
    >>> evaluate_node(build.add(x, x), [np.ones(2), np.ones(2)], {})
    array([2., 2.])
    """
    types = [o.type for o in node.operands]
    held = [conform(x, t, precision) for x, t in zip(operands, types, strict=True)]
    return _evaluate_node(node, held, sizes, precision)


def _evaluate_node(
    node: Node, operands: Sequence[Value], sizes: dict[str, int], precision: Precision
) -> Value:
    """The same for operands as this precision holds them."""
    meaning = MEANING.get(type(node.op))
    if meaning is None:
        raise InternalError(f"{node.op.name} has no meaning: add it to graph/meaning/")

    plans: dict[Graph, _Plan] = {}

    def run(graph: Graph, values: Sequence[Value]) -> tuple[Value, ...]:
        if graph not in plans:
            plans[graph] = _planned(graph)
        return _run_sub_graph(graph, plans[graph], values, sizes, precision)

    context = Context(precision, tuple(o.type for o in node.operands), node.type, sizes, run)
    try:
        with np.errstate(all="ignore"):
            value = meaning(node.op, list(operands), context)
        if not isinstance(node.op, GetItem):
            bind_symbols(node.type, value, sizes, what="result", given=False)
    except LubanError as error:
        if error.loc is None and not error.message.startswith(node.op.name):
            error.message = f"{node.op.name}: {error.message}"
        raise error.located(node.loc) from None
    return value


@dataclass(frozen=True, slots=True)
class _Plan:
    """The order that a graph runs in, what each step frees, constants kept from turn to turn.

    fixed   nodes that hang on constants alone: the same in every turn
    """

    order: list[Node]
    last_uses: list[list[Node]]
    fixed: frozenset[Node]
    constants: dict[Node, Value] = field(default_factory=dict)


def _planned(graph: Graph) -> _Plan:
    order = execution_order(graph)
    last_uses: list[list[Node]] = [[] for _ in order]
    seen = set(graph.results)
    for step in range(len(order) - 1, -1, -1):
        for operand in order[step].operands:
            if operand not in seen:
                seen.add(operand)
                last_uses[step].append(operand)
    fixed: set[Node] = set()
    for n in order:
        constant = isinstance(n.op, Constant) or (
            bool(n.operands) and all(o in fixed for o in n.operands)
        )
        if constant and _is_steady(n):
            fixed.add(n)
    return _Plan(order, last_uses, frozenset(fixed))


def _is_steady(n: Node) -> bool:
    """True if equal operands give equal results, whatever sizes are given."""
    if isinstance(n.op, (HostCall, If, Loop, Scan)) or not isinstance(n.type, TensorType):
        return False
    return all(isinstance(size, int) for size in n.type.shape)


def _run_sub_graph(
    graph: Graph,
    plan: _Plan,
    values: Sequence[Value],
    outer: Mapping[str, int],
    precision: Precision,
) -> tuple[Value, ...]:
    """Run a sub-graph. Its parameters say the sizes; the outer ones serve what they leave open."""
    sizes: dict[str, int] = {}
    rows = [
        (f"operand {label!r} of {graph.name}", p.type, v)
        for label, p, v in zip(graph.parameter_names, graph.parameters, values, strict=True)
    ]
    bind_all(rows, sizes, given=False)
    for name, size in outer.items():
        sizes.setdefault(name, size)
    for n in plan.order:
        if n in plan.fixed and n not in plan.constants:
            operands = [plan.constants[o] for o in n.operands]
            plan.constants[n] = _evaluate_node(n, operands, sizes, precision)
    return _run(graph, plan, values, sizes, precision, None)


def _run(
    graph: Graph,
    plan: _Plan,
    values: Sequence[Value],
    sizes: dict[str, int],
    precision: Precision,
    observe: Observer | None,
) -> tuple[Value, ...]:
    held: dict[Node, Value] = dict(zip(graph.parameters, values, strict=True))
    for n, freed in zip(plan.order, plan.last_uses, strict=True):
        if isinstance(n.op, Parameter):
            if n not in held:
                raise InternalError(f"{graph.name} is not closed: it uses parameter {n.op.label!r}")
        elif n in plan.constants:
            held[n] = plan.constants[n]
        else:
            held[n] = _evaluate_node(n, [held[o] for o in n.operands], sizes, precision)
        if observe is not None:
            observe(n, held[n])
        for operand in freed:
            del held[operand]
    return tuple(held[r] for r in graph.results)
