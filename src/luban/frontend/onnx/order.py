"""The order in which the nodes of a graph can be read: operands first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx

from luban.core.errors import ModelError

__all__ = ["free_names", "in_order"]


def free_names(graph: onnx.GraphProto) -> set[str]:
    """Names that a sub-graph uses but does not make itself."""
    made = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    made |= {t.values.name for t in graph.sparse_initializer}
    made |= {name for proto in graph.node for name in proto.output}
    used = {name for proto in graph.node for name in _used(proto)}
    used |= {v.name for v in graph.output}
    return used - made


def _used(proto: onnx.NodeProto) -> list[str]:
    """Every name that a node needs, those in its sub-graphs included."""
    names = [name for name in proto.input if name]
    for attribute in proto.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            names += sorted(free_names(attribute.g))
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            names += sorted(name for graph in attribute.graphs for name in free_names(graph))
    return names


def in_order(nodes: Sequence[onnx.NodeProto], source: str) -> Iterator[tuple[int, onnx.NodeProto]]:
    """Each node with its place in the file, after the nodes that make its operands.

    Raises ModelError naming the nodes of a cycle.

    >>> second = onnx.helper.make_node("Neg", ["t"], ["y"])
    >>> first = onnx.helper.make_node("Relu", ["x"], ["t"])
    >>> [node.op_type for _, node in in_order([second, first], "model.onnx")]
    ['Relu', 'Neg']
    """
    makers = {name: i for i, proto in enumerate(nodes) for name in proto.output if name}
    needs = [[makers[name] for name in _used(proto) if name in makers] for proto in nodes]
    done = [False] * len(nodes)
    for root in range(len(nodes)):
        stack, on_stack = ([root], {root}) if not done[root] else ([], set())
        while stack:
            current = stack[-1]
            following = next((n for n in needs[current] if not done[n]), None)
            if following is None:
                done[current] = True
                on_stack.discard(stack.pop())
                yield current, nodes[current]
            elif following in on_stack:
                cycle = [*stack[stack.index(following) :], following]
                names = [nodes[i].name or f"{nodes[i].op_type}_{i}" for i in cycle]
                raise ModelError(
                    f"{source}: nodes form a cycle: {' <- '.join(names)}",
                    hint="an ONNX graph must be acyclic",
                )
            else:
                stack.append(following)
                on_stack.add(following)
