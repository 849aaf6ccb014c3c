"""RNN, GRU and LSTM: the input products for all steps at once, then a scan over the steps.

A row shorter than the longest keeps its state once it has ended and gives zeros. Walking backwards,
that is the row reversed inside its own length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from luban.core.dims import DimLike
from luban.core.types import TensorType
from luban.frontend.onnx.registry import NodeContext, op
from luban.graph import build
from luban.graph.ops.control import Scan
from luban.ir.node import Graph, Node, node, results_of

__all__: list[str] = []

Activation = Callable[[Node], Node]
Step = Callable[[Node, list[Node], list[Node]], list[Node]]


def _hard_sigmoid(alpha: float, beta: float) -> Activation:
    return lambda x: build.maximum(build.minimum(build.add(build.multiply(x, alpha), beta), 1), 0)


def _scaled_tanh(alpha: float, beta: float) -> Activation:
    return lambda x: build.multiply(build.tanh(build.multiply(x, beta)), alpha)


def _leaky_relu(alpha: float, _: float) -> Activation:
    return lambda x: build.select(build.less(x, 0), build.multiply(x, alpha), x)


def _thresholded_relu(alpha: float, _: float) -> Activation:
    return lambda x: build.select(build.greater(x, alpha), x, 0)


def _elu(alpha: float, _: float) -> Activation:
    return lambda x: build.select(build.less(x, 0), build.multiply(build.expm1(x), alpha), x)


def _softsign(x: Node) -> Node:
    return build.divide(x, build.add(build.absolute(x), 1))


def _softplus(x: Node) -> Node:
    return build.add(build.maximum(x, 0), build.log1p(build.exp(build.negative(build.absolute(x)))))


_PLAIN: dict[str, Activation] = {
    "relu": lambda x: build.maximum(x, 0),
    "tanh": build.tanh,
    "sigmoid": build.logistic,
    "softsign": _softsign,
    "softplus": _softplus,
}
# Those with numbers: how to make one, the default alpha (None: it takes none) and beta.
_NUMBERED: dict[str, tuple[Callable[[float, float], Activation], float | None, float | None]] = {
    "affine": (lambda a, b: lambda x: build.add(build.multiply(x, a), b), 1.0, 0.0),
    "leakyrelu": (_leaky_relu, 0.01, None),
    "thresholdedrelu": (_thresholded_relu, 1.0, None),
    "scaledtanh": (_scaled_tanh, 1.0, 1.0),
    "hardsigmoid": (_hard_sigmoid, 0.2, 0.5),
    "elu": (_elu, 1.0, None),
}


def _activations(
    ctx: NodeContext, defaults: Sequence[str], num_directions: int
) -> list[Activation]:
    """All activations in order; each that takes numbers takes the next ones given."""
    names = ctx.texts("activations", tuple(defaults) * num_directions)
    if len(names) != len(defaults) * num_directions:
        raise ctx.wrong(f"activations are {list(names)}, expected {len(defaults)} a direction")
    alphas, betas = (
        iter(ctx.floats("activation_alpha", ())),
        iter(ctx.floats("activation_beta", ())),
    )
    found: list[Activation] = []
    for name in names:
        key = name.lower()
        if key in _PLAIN:
            found.append(_PLAIN[key])
        elif key in _NUMBERED:
            make, alpha, beta = _NUMBERED[key]
            found.append(make(_next(alphas, alpha), _next(betas, beta)))
        else:
            known = ", ".join(sorted((*_PLAIN, *_NUMBERED)))
            raise ctx.wrong(f"activation {name!r} is unknown", hint=f"one of {known}")
    return found


def _next(given: Iterator[float], default: float | None) -> float:
    return 0.0 if default is None else next(given, default)


@dataclass(frozen=True, slots=True)
class _Layer:
    """What the three operators share: inputs by direction, geometry and attributes."""

    ctx: NodeContext
    x: Node
    weights: Node
    recurrent: Node
    bias: Node | None
    lengths: Node | None
    num_gates: int
    activations: list[Activation]

    @property
    def reverse(self) -> tuple[bool, ...]:
        """For each direction whether it walks backwards."""
        found = _DIRECTIONS.get(self.ctx.text("direction", "forward"))
        if found is None:
            raise self.ctx.wrong(f"direction is {self.ctx.text('direction')!r}")
        return found

    @property
    def time_axis(self) -> int:
        """The axis of the steps: 0, or 1 with layout 1."""
        return 1 if self.ctx.int("layout", 0) else 0

    @property
    def steps(self) -> DimLike:
        """The number of steps."""
        return self.x.tensor.shape[self.time_axis]

    @property
    def batch(self) -> DimLike:
        """The number of rows."""
        return self.x.tensor.shape[1 - self.time_axis]

    @property
    def hidden(self) -> DimLike:
        """The size of the state."""
        return self.recurrent.tensor.shape[2]

    def clipped(self, x: Node) -> Node:
        """x within the bound that the model states, if any."""
        bound = self.ctx.float("clip", None)
        return x if bound is None else build.minimum(build.maximum(x, -bound), bound)

    def of(self, parameter: Node, direction: int) -> Node:
        """The entry of one direction of a parameter that has them along axis 0."""
        piece = build.slice_axis(parameter, 0, direction, 1)
        return build.reshape(piece, parameter.tensor.shape[1:])

    def biases(self, direction: int) -> tuple[Node, Node] | None:
        """The biases of the input products and of the recurrent ones."""
        if self.bias is None:
            return None
        size = self.hidden * self.num_gates
        first, second = build.split(self.of(self.bias, direction), 0, (size, size))
        return first, second

    def initial(self, state: Node | None, direction: int) -> Node:
        """A starting state [batch, hidden]; zeros if none is given."""
        shape = (self.batch, self.hidden)
        if state is None:
            return build.full(shape, 0, self.x.tensor.dtype)
        axis = self.time_axis  # layout 1 has the batch first
        return build.reshape(build.slice_axis(state, axis, direction, 1), shape)

    def run(
        self, direction: int, states: Sequence[Node], extra: Sequence[Node], step: Step
    ) -> tuple[Node, ...]:
        """The final states, then the first state after each step."""
        inputs = build.dot_general(self.x, self.of(self.weights, direction), ([2], [1]))
        added = self._added_bias(direction)
        if added is not None:
            inputs = build.add(inputs, added)
        scanned, axes = [inputs], [self.time_axis]
        if self.lengths is not None:
            scanned.append(self._is_live())
            axes.append(0)
        body = self._body(direction, states, scanned, axes, extra, step)
        reverse = self.reverse[direction]
        operation = Scan(
            body,
            len(states),
            tuple(axes),
            (reverse,) * len(axes),
            (self.time_axis,),
            (reverse,),
        )
        return results_of(node(operation, *states, *scanned, *extra))

    def _added_bias(self, direction: int) -> Node | None:
        """What can be added to all steps beforehand: both biases where they may."""
        biases = self.biases(direction)
        if biases is None:
            return None
        if self.ctx.op == "GRU":
            return biases[0]
        return build.add(*biases)

    def _is_live(self) -> Node:
        """bool[steps, batch]: the row has not ended at that step."""
        assert self.lengths is not None
        shape = (self.steps, self.batch)
        index = build.iota(shape, 0, "i64")
        lengths = build.broadcast_to(build.cast(self.lengths, "i64"), shape)
        return build.less(index, lengths)

    def _body(
        self,
        direction: int,
        states: Sequence[Node],
        scanned: Sequence[Node],
        axes: Sequence[int],
        extra: Sequence[Node],
        step: Step,
    ) -> Graph:
        name = f"{self.ctx.loc.path}/{self.ctx.op.lower()}_{direction}"
        slices = [
            x.tensor.with_shape(s for i, s in enumerate(x.tensor.shape) if i != axis)
            for x, axis in zip(scanned, axes, strict=True)
        ]
        types: list[TensorType] = [*(s.tensor for s in states), *slices, *(e.tensor for e in extra)]
        parameters = [build.parameter(f"{name}/{i}", t) for i, t in enumerate(types)]
        old = parameters[: len(states)]
        inside = parameters[len(states) + len(slices) :]
        new = step(parameters[len(states)], old, inside)
        output = new[0]
        if self.lengths is not None:
            live = build.reshape(parameters[len(states) + 1], (self.batch, 1))
            output = build.select(
                live, new[0], build.full(new[0].tensor.shape, 0, new[0].tensor.dtype)
            )
            new = [build.select(live, n, o) for n, o in zip(new, old, strict=True)]
        return Graph(name, tuple(parameters), (*new, output))

    def joined(self, runs: Sequence[tuple[Node, ...]], num_states: int) -> tuple[Node, ...]:
        """All outputs of all directions, Y first, then each final state, as ONNX lays them out."""
        axis = 2 if self.time_axis else 1
        all_steps = build.concatenate([build.expand_dims(r[-1], [axis]) for r in runs], axis)
        place = self.time_axis
        finals = [
            build.concatenate([build.expand_dims(r[i], [place]) for r in runs], place)
            for i in range(num_states)
        ]
        return (all_steps, *finals)


_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def _layer(
    ctx: NodeContext,
    x: Node,
    weights: Node,
    recurrent: Node,
    bias: Node | None,
    lengths: Node | None,
    defaults: Sequence[str],
    num_gates: int,
) -> _Layer:
    count = len(_DIRECTIONS.get(ctx.text("direction", "forward"), (False,)))
    if weights.tensor.shape[0] != count or recurrent.tensor.shape[0] != count:
        raise ctx.wrong(
            f"weights are {weights.tensor} and {recurrent.tensor}, expected {count} directions"
        )
    activations = _activations(ctx, defaults, count)
    return _Layer(ctx, x, weights, recurrent, bias, lengths, num_gates, activations)


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
            total = build.add(inputs, _product(states[0], extra[0]))
            return [activation(layer.clipped(total))]

        states = [layer.initial(initial, direction)]
        return layer.run(direction, states, [layer.of(recurrent, direction)], step)

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
        gates, last = build.split(layer.of(recurrent, direction), 0, (2 * hidden, hidden))
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
    layer = _layer(ctx, x, weights, recurrent, bias, lengths, ("Sigmoid", "Tanh", "Tanh"), 4)
    hidden = layer.hidden
    couples = bool(ctx.int("input_forget", 0))

    def run(direction: int) -> tuple[Node, ...]:
        gate, candidate, outer = layer.activations[3 * direction : 3 * direction + 3]
        extra = [layer.of(recurrent, direction)]
        if peepholes is not None:
            extra += build.split(layer.of(peepholes, direction), 0, (hidden,) * 3)

        def step(inputs: Node, states: list[Node], inside: list[Node]) -> list[Node]:
            h, c = states
            total = build.add(inputs, _product(h, inside[0]))
            i, o, f, new = build.split(total, 1, (hidden,) * 4)
            if peepholes is not None:
                i = build.add(i, build.multiply(inside[1], c))
                f = build.add(f, build.multiply(inside[3], c))
            i = gate(layer.clipped(i))
            f = build.subtract(1.0, i) if couples else gate(layer.clipped(f))
            new_c = build.add(
                build.multiply(f, c), build.multiply(i, candidate(layer.clipped(new)))
            )
            if peepholes is not None:
                o = build.add(o, build.multiply(inside[2], new_c))
            return [build.multiply(gate(layer.clipped(o)), outer(new_c)), new_c]

        states = [layer.initial(initial_h, direction), layer.initial(initial_c, direction)]
        return layer.run(direction, states, extra, step)

    return layer.joined([run(d) for d in range(len(layer.reverse))], 2)
