"""What is recognised as attention, and the reasons where nothing is."""

from __future__ import annotations

from luban.graph import build as g
from luban.graph.attention import Attention, find_attention
from luban.ir.node import Node
from tests.programs import p


def product(weights: Node) -> Attention | str:
    return find_attention(g.matmul(weights, p("v", 7, 4)))


def scores() -> Node:
    return g.matmul(p("q", 5, 8), p("k", 8, 7))


def test_the_parts_are_named() -> None:
    raw = scores()
    biased = g.add(g.multiply(raw, 0.5), p("bias", 7))
    found = product(g.softmax(biased, 1))
    assert isinstance(found, Attention)
    assert found.raw is raw
    assert found.scores is biased
    assert {raw, biased, found.weights, found.result} <= found.members
    assert p("bias", 7) not in found.members


def test_what_is_no_attention_says_why() -> None:
    raw, other = scores(), g.matmul(p("x", 5, 3), p("y", 3, 7))
    assert find_attention(raw.operands[0]) == "no product"
    assert product(raw) == "the left operand is no softmax"
    assert product(g.exp(raw)) == "the left operand is no softmax"
    assert product(g.divide(g.exp(raw), 2.0)) == "the left operand is no softmax"
    assert product(g.softmax(p("x", 5, 7), 1)) == "the scores come from 0 products"
    assert product(g.softmax(g.add(raw, other), 1)) == "the scores come from 2 products"


def test_the_sum_must_run_over_the_keys() -> None:
    weights = g.softmax(g.matmul(p("q", 7, 8), p("k", 8, 7)), 1)
    turned = g.dot_general(weights, p("v", 7, 4), ([0], [0]))
    wanted = "the product does not sum over the axis of the softmax"
    assert find_attention(turned) == wanted


def test_a_sum_of_something_else_is_no_softmax() -> None:
    raw = scores()
    e = g.exp(g.subtract(raw, g.reduce("maximum", raw, [1], keep_axes=True)))
    total = g.reduce("sum", g.multiply(e, 2.0), [1], keep_axes=True)
    assert product(g.divide(e, total)) == "the left operand is no softmax"
