"""Optimiser steps of ai.onnx.preview.training: each takes many tensors at once."""

from __future__ import annotations

from luban.frontend.onnx.context import NodeContext
from luban.frontend.onnx.registry import op
from luban.graph import build
from luban.ir.node import Node

__all__: list[str] = []

_DOMAIN = "ai.onnx.preview.training"


def _groups(ctx: NodeContext, tensors: tuple[Node, ...], kinds: int) -> list[tuple[Node, ...]]:
    """x1, x2, g1, g2, .. as (x1, g1, ..), (x2, g2, ..)."""
    if not tensors or len(tensors) % kinds:
        raise ctx.wrong(f"{len(tensors)} tensors, expected {kinds} for each that is trained")
    count = len(tensors) // kinds
    return [tensors[i::count] for i in range(count)]


def _in_order(groups: list[tuple[Node, ...]]) -> tuple[Node, ...]:
    return tuple(value for kind in zip(*groups, strict=True) for value in kind)


def _regularised(ctx: NodeContext, gradient: Node, x: Node) -> Node:
    return build.add(gradient, build.multiply(x, ctx.float("norm_coefficient", 0.0)))


def _scaled(value: Node, x: Node) -> Node:
    return build.cast(build.reshape(value, ()), x.tensor.dtype)


@op("Adagrad", since=1, domain=_DOMAIN)
def adagrad(ctx: NodeContext, rate: Node, steps: Node, *tensors: Node) -> tuple[Node, ...]:
    """x - rate * g / (sqrt(h + g * g) + epsilon), and the new h."""
    groups: list[tuple[Node, ...]] = []
    for x, gradient, squares in _groups(ctx, tensors, 3):
        decay = build.multiply(_scaled(steps, x), ctx.float("decay_factor", 0.0))
        current = build.divide(_scaled(rate, x), build.add(decay, 1))
        gradient = _regularised(ctx, gradient, x)
        total = build.add(squares, build.multiply(gradient, gradient))
        size = build.add(build.sqrt(total), ctx.float("epsilon", 1e-6))
        moved = build.divide(build.multiply(current, gradient), size)
        groups.append((build.subtract(x, moved), total))
    return _in_order(groups)


@op("Adam", since=1, domain=_DOMAIN)
def adam(ctx: NodeContext, rate: Node, steps: Node, *tensors: Node) -> tuple[Node, ...]:
    """One step of Adam, and the new running averages of the gradient and its square."""
    alpha, beta = ctx.float("alpha", 0.9), ctx.float("beta", 0.999)
    groups: list[tuple[Node, ...]] = []
    for x, gradient, first, second in _groups(ctx, tensors, 4):
        gradient = _regularised(ctx, gradient, x)
        first = _blend(first, gradient, alpha)
        second = _blend(second, build.multiply(gradient, gradient), beta)
        time = _scaled(steps, x)
        unbiased = build.divide(
            build.sqrt(build.subtract(1, build.power(build.lift(beta, x), time))),
            build.subtract(1, build.power(build.lift(alpha, x), time)),
        )
        base = _scaled(rate, x)
        current = build.select(build.greater(time, 0), build.multiply(base, unbiased), base)
        size = build.add(build.sqrt(second), ctx.float("epsilon", 1e-6))
        stepped = build.subtract(x, build.divide(build.multiply(current, first), size))
        kept = 1 - ctx.float("norm_coefficient_post", 0.0)
        groups.append((build.multiply(stepped, kept), first, second))
    return _in_order(groups)


def _blend(old: Node, new: Node, share: float) -> Node:
    return build.add(build.multiply(old, share), build.multiply(new, 1 - share))


@op("Momentum", since=1, domain=_DOMAIN)
def momentum(ctx: NodeContext, rate: Node, steps: Node, *tensors: Node) -> tuple[Node, ...]:
    """x moved along the running gradient, plain or looking ahead, and the new gradient."""
    alpha, beta = ctx.float("alpha"), ctx.float("beta")
    groups: list[tuple[Node, ...]] = []
    for x, gradient, velocity in _groups(ctx, tensors, 3):
        gradient = _regularised(ctx, gradient, x)
        first = build.less_equal(_scaled(steps, x), 0)
        share = build.select(first, build.lift(1.0, x), build.lift(beta, x))
        velocity = build.add(build.multiply(velocity, alpha), build.multiply(gradient, share))
        direction = velocity
        if ctx.text("mode") == "nesterov":
            direction = build.add(gradient, build.multiply(velocity, alpha))
        stepped = build.subtract(x, build.multiply(_scaled(rate, x), direction))
        groups.append((stepped, velocity))
    return _in_order(groups)
