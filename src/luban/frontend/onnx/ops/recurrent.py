"""RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Sequence

from luban.frontend.onnx.recurrence import (
    Layer,
    activations_of,
    float_products,
    num_directions,
    one_direction,
)
from luban.frontend.onnx.registry import NodeContext, op
from luban.graph import build
from luban.ir.node import Node

__all__ = ["LSTM_ACTIVATIONS", "lstm_of"]

LSTM_ACTIVATIONS = ("Sigmoid", "Tanh", "Tanh")


def _layer(
    ctx: NodeContext,
    x: Node,
    weights: Node,
    recurrent: Node,
    bias: Node | None,
    lengths: Node | None,
    defaults: Sequence[str],
    num_gates: int,
) -> Layer:
    count = num_directions(ctx)
    if any(x.tensor.rank != 3 for x in (x, weights, recurrent)):
        given = ", ".join(str(x.type) for x in (x, weights, recurrent))
        raise ctx.wrong(f"X, W and R are {given}, expected 3 axes each")
    if weights.tensor.shape[0] != count or recurrent.tensor.shape[0] != count:
        raise ctx.wrong(
            f"weights are {weights.tensor} and {recurrent.tensor}, expected {count} directions"
        )
    return Layer(
        ctx,
        x,
        float_products(weights),
        float_products(recurrent),
        recurrent.tensor.shape[2],
        bias,
        lengths,
        num_gates,
        activations_of(ctx, defaults, count),
    )


def _product(state: Node, weights: Node) -> Node:
    """state @ weights.T"""
    return build.dot_general(state, weights, ([1], [1]))


@op("RNN", since=1)
def rnn(
    ctx: NodeContext,
    x: Node,
    weights: Node,
    recurrent: Node,
    bias: Node | None = None,
    lengths: Node | None = None,
    initial: Node | None = None,
) -> tuple[Node, ...]:
    """h = f(x W' + h R' + b)"""
    layer = _layer(ctx, x, weights, recurrent, bias, lengths, ("Tanh",), 1)

    def run(direction: int) -> tuple[Node, ...]:
        activation = layer.activations[direction]

        def step(inputs: Node, states: list[Node], extra: list[Node]) -> list[Node]:
            total = build.add(inputs, layer.recurrent.of(states[0], extra))
            return [activation(layer.clipped(total))]

        states = [layer.initial(initial, direction)]
        return layer.run(direction, states, layer.recurrent.operands(direction), step)

    return layer.joined([run(d) for d in range(len(layer.reverse))], 1)


@op("GRU", since=1)
def gru(
    ctx: NodeContext,
    x: Node,
    weights: Node,
    recurrent: Node,
    bias: Node | None = None,
    lengths: Node | None = None,
    initial: Node | None = None,
) -> tuple[Node, ...]:
    """Gates z, r and the candidate h~; h = (1 - z) h~ + z h."""
    layer = _layer(ctx, x, weights, recurrent, bias, lengths, ("Sigmoid", "Tanh"), 3)
    hidden = layer.hidden
    reset_first = not ctx.int("linear_before_reset", 0)

    def run(direction: int) -> tuple[Node, ...]:
        gate, candidate = layer.activations[2 * direction : 2 * direction + 2]
        gates, last = build.split(one_direction(recurrent, direction), 0, (2 * hidden, hidden))
        extra = [gates, last]
        biases = layer.biases(direction)
        if biases is not None:
            extra += build.split(biases[1], 0, (2 * hidden, hidden))

        def step(inputs: Node, states: list[Node], inside: list[Node]) -> list[Node]:
            (state,) = states
            x_gates, x_last = build.split(inputs, 1, (2 * hidden, hidden))
            h_gates = _product(state, inside[0])
            if biases is not None:
                h_gates = build.add(h_gates, inside[2])
            z, r = build.split(
                gate(layer.clipped(build.add(x_gates, h_gates))), 1, (hidden, hidden)
            )
            h_last = _product(build.multiply(r, state) if reset_first else state, inside[1])
            if biases is not None:
                h_last = build.add(h_last, inside[3])
            if not reset_first:
                h_last = build.multiply(r, h_last)
            new = candidate(layer.clipped(build.add(x_last, h_last)))
            kept = build.multiply(z, state)
            return [build.add(build.multiply(build.subtract(1.0, z), new), kept)]

        return layer.run(direction, [layer.initial(initial, direction)], extra, step)

    return layer.joined([run(d) for d in range(len(layer.reverse))], 1)


@op("LSTM", since=1)
def lstm(
    ctx: NodeContext,
    x: Node,
    weights: Node,
    recurrent: Node,
    bias: Node | None = None,
    lengths: Node | None = None,
    initial_h: Node | None = None,
    initial_c: Node | None = None,
    peepholes: Node | None = None,
) -> tuple[Node, ...]:
    """Gates i, o, f and the candidate c~; c = f c + i c~, h = o h(c)."""
    layer = _layer(ctx, x, weights, recurrent, bias, lengths, LSTM_ACTIVATIONS, 4)
    return lstm_of(layer, initial_h, initial_c, peepholes)


def lstm_of(
    layer: Layer, initial_h: Node | None, initial_c: Node | None, peepholes: Node | None
) -> tuple[Node, ...]:
    """Y, Y_h and Y_c of an LSTM whatever its weights are."""
    hidden = layer.hidden
    couples = bool(layer.ctx.int("input_forget", 0))

    def run(direction: int) -> tuple[Node, ...]:
        gate, candidate, outer = layer.activations[3 * direction : 3 * direction + 3]
        extra = layer.recurrent.operands(direction)
        count = len(extra)
        if peepholes is not None:
            extra += build.split(one_direction(peepholes, direction), 0, (hidden,) * 3)

        def step(inputs: Node, states: list[Node], inside: list[Node]) -> list[Node]:
            h, c = states
            total = build.add(inputs, layer.recurrent.of(h, inside[:count]))
            i, o, f, new = build.split(total, 1, (hidden,) * 4)
            if peepholes is not None:
                i = build.add(i, build.multiply(inside[count], c))
                f = build.add(f, build.multiply(inside[count + 2], c))
            i = gate(layer.clipped(i))
            f = build.subtract(1.0, i) if couples else gate(layer.clipped(f))
            new_c = build.add(
                build.multiply(f, c), build.multiply(i, candidate(layer.clipped(new)))
            )
            if peepholes is not None:
                o = build.add(o, build.multiply(inside[count + 1], new_c))
            return [build.multiply(gate(layer.clipped(o)), outer(new_c)), new_c]

        states = [layer.initial(initial_h, direction), layer.initial(initial_c, direction)]
        return layer.run(direction, states, extra, step)

    return layer.joined([run(d) for d in range(len(layer.reverse))], 2)
