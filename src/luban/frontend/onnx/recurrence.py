"""What RNN, GRU and LSTM share: the input products of all steps at once, then a scan over them.

A row shorter than the longest keeps its state once it has ended and gives zeros. Walking backwards,
that is the row reversed inside its own length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from luban.core.dims import DimLike
from luban.core.types import TensorType
from luban.frontend.onnx.context import NodeContext
from luban.graph import build
from luban.graph.ops.control import Scan
from luban.ir.node import Graph, Node, node, results_of

__all__ = [
    "DIRECTIONS",
    "Layer",
    "Products",
    "activations_of",
    "float_products",
    "num_directions",
    "one_direction",
]

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


def activations_of(
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
class Products:
    """How a layer multiplies by a weight: `operands` gives what a direction needs, `of` uses it."""

    operands: Callable[[int], list[Node]]
    of: Callable[[Node, Sequence[Node]], Node]


def float_products(weights: Node) -> Products:
    """x @ w.T with the weights [directions, results, inputs]."""
    return Products(
        lambda direction: [one_direction(weights, direction)],
        lambda x, operands: build.dot_general(x, operands[0], ([x.tensor.rank - 1], [1])),
    )


def one_direction(parameter: Node, direction: int) -> Node:
    """The entry of one direction of a parameter that has them along axis 0."""
    piece = build.slice_axis(parameter, 0, direction, 1)
    return build.reshape(piece, parameter.tensor.shape[1:])


@dataclass(frozen=True, slots=True)
class Layer:
    """What the three operators share: inputs by direction, geometry and attributes."""

    ctx: NodeContext
    x: Node
    weights: Products
    recurrent: Products
    hidden: DimLike
    bias: Node | None
    lengths: Node | None
    num_gates: int
    activations: list[Activation]

    @property
    def reverse(self) -> tuple[bool, ...]:
        """For each direction whether it walks backwards."""
        found = DIRECTIONS.get(self.ctx.text("direction", "forward"))
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

    def clipped(self, x: Node) -> Node:
        """x within the bound that the model states, if any."""
        bound = self.ctx.float("clip", None)
        return x if bound is None else build.minimum(build.maximum(x, -bound), bound)

    def biases(self, direction: int) -> tuple[Node, Node] | None:
        """The biases of the input products and of the recurrent ones."""
        if self.bias is None:
            return None
        size = self.hidden * self.num_gates
        first, second = build.split(one_direction(self.bias, direction), 0, (size, size))
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
        inputs = self.weights.of(self.x, self.weights.operands(direction))
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


DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def num_directions(ctx: NodeContext) -> int:
    """1, or 2 if bidirectional."""
    return len(DIRECTIONS.get(ctx.text("direction", "forward"), (False,)))
