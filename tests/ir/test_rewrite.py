"""The rewrite engine: fires, declines, checks, stops, bisects."""

import numpy as np
import pytest

from luban.core.errors import InternalError, OptionError
from luban.core.loc import Loc
from luban.core.types import tensor
from luban.graph import build
from luban.graph.evaluate import evaluate
from luban.graph.ops.control import If
from luban.graph.ops.data import Constant
from luban.graph.ops.elementwise import BINARY, UNARY
from luban.ir.node import Graph, Node, located, node
from luban.ir.rewrite import Decline, rewrite, rule

X = build.parameter("x", tensor("f32", 4))


def _is_constant(n: Node, value: float) -> bool:
    source = n.operands[0] if n.op.name == "broadcast_in_dim" else n
    return isinstance(source.op, Constant) and bool(np.all(source.op.value.array == value))


@rule(BINARY["multiply"])
def mul_by_one(n: Node) -> Node | Decline | None:
    """x * 1 -> x"""
    x, y = n.operands
    if _is_constant(y, 1):
        return x
    return Decline("the factor is 0") if _is_constant(y, 0) else None


@rule(UNARY["negative"])
def negative_twice(n: Node) -> Node | Decline | None:
    """-(-x) -> x"""
    (inner,) = n.operands
    return inner.operands[0] if isinstance(inner.op, UNARY["negative"]) else None


@rule(BINARY["add"])
def add_to_itself(n: Node) -> Node | Decline | None:
    """x + x -> x * 2"""
    x, y = n.operands
    return build.multiply(x, 2.0) if x is y else None


def _graph(*results: Node) -> Graph:
    return Graph("main", (X,), results)


def test_a_matching_node_is_replaced() -> None:
    new, effects = rewrite(_graph(build.multiply(X, 1.0)), [mul_by_one])
    assert new.results == (X,)
    assert effects.applied == {"mul_by_one": 1}


def test_another_factor_stays() -> None:
    graph = _graph(build.multiply(X, 2.0))
    new, effects = rewrite(graph, [mul_by_one])
    assert new is graph
    assert effects.num_rewrites == 0


def test_a_near_miss_is_recorded_with_its_reason() -> None:
    with located(Loc("m.onnx", "Mul_1")):
        graph = _graph(build.multiply(X, 0.0))
    _, effects = rewrite(graph, [mul_by_one])
    (miss,) = effects.declined
    assert (miss.rule, miss.op, miss.why) == ("mul_by_one", "multiply", "the factor is 0")
    assert str(miss.loc) == "m.onnx: Mul_1"


def test_one_rewrite_uncovers_the_next() -> None:
    inner = build.negative(build.multiply(X, 1.0))
    new, effects = rewrite(_graph(build.negative(inner)), [mul_by_one, negative_twice])
    assert new.results == (X,)
    assert effects.applied == {"mul_by_one": 1, "negative_twice": 1}


def test_a_result_is_rewritten_again() -> None:
    @rule(BINARY["multiply"])
    def mul_by_two(n: Node) -> Node | Decline | None:
        """x * 2 -> -(-(x * 2)) without the multiplication"""
        return build.exp(n.operands[0]) if _is_constant(n.operands[1], 2) else None

    new, _ = rewrite(_graph(build.add(X, X)), [add_to_itself, mul_by_two])
    assert new.results == (build.exp(X),)


def test_the_meaning_is_kept() -> None:
    graph = _graph(build.negative(build.negative(build.add(X, X))))
    new, effects = rewrite(graph, [negative_twice, add_to_itself])
    assert effects.num_rewrites == 2
    values = [np.linspace(-1, 1, 4, dtype=np.float32)]
    np.testing.assert_array_equal(evaluate(new, values), evaluate(graph, values))


def test_a_rule_left_out_does_not_fire() -> None:
    graph = _graph(build.multiply(X, 1.0))
    new, _ = rewrite(graph, [mul_by_one], without=frozenset({"mul_by_one"}))
    assert new is graph


def test_sub_graphs_are_rewritten() -> None:
    then = Graph("then", (X,), (build.multiply(X, 1.0),))
    otherwise = Graph("otherwise", (X,), (X,))
    p = build.parameter("p", tensor("bool"))
    call = node(If(then, otherwise, (X.type,)), p, X)
    new, effects = rewrite(Graph("main", (p, X), (call,)), [mul_by_one])
    assert effects.num_rewrites == 1
    op = new.results[0].op
    assert isinstance(op, If)
    assert op.then.results == (X,)
    assert op.otherwise is otherwise


def test_limit_applies_only_the_first_rewrites() -> None:
    graph = _graph(build.multiply(build.exp(build.multiply(X, 1.0)), 1.0))
    for limit, left in ((0, 2), (1, 1), (2, 0), (9, 0)):
        new, effects = rewrite(graph, [mul_by_one], limit=limit)
        assert effects.num_rewrites == min(limit, 2)
        assert sum(n.op.name == "multiply" for n in new.nodes()) == left


def test_the_hook_sees_every_rewrite_in_order() -> None:
    seen: list[tuple[str, str, str]] = []
    graph = _graph(build.negative(build.negative(build.add(X, X))))
    rewrite(
        graph,
        [negative_twice, add_to_itself],
        on_rewrite=lambda r, old, new: seen.append((r.name, old.op.name, new.op.name)),
    )
    assert seen == [
        ("add_to_itself", "add", "multiply"),
        ("negative_twice", "negative", "multiply"),
    ]


def test_new_nodes_inherit_the_place_of_the_old() -> None:
    y = build.parameter("y", tensor("f32", 7))
    with located(Loc("m.onnx", "Add_1")):
        total = build.add(y, y)
    new, _ = rewrite(Graph("main", (y,), (total,)), [add_to_itself])
    assert str(new.results[0].loc) == "m.onnx: Add_1"


def test_a_rule_that_changes_the_type_is_blamed() -> None:
    @rule(UNARY["exp"])
    def wrong(n: Node) -> Node | Decline | None:
        """exp(x) -> cast(x)"""
        return build.cast(n.operands[0], "f64")

    with pytest.raises(InternalError, match=r"rule wrong .* type of exp from f32\[4\] to f64\[4\]"):
        rewrite(_graph(build.exp(X)), [wrong])


def test_rules_that_undo_one_another_are_stopped() -> None:
    @rule(UNARY["exp"])
    def there(n: Node) -> Node | Decline | None:
        """exp -> tanh"""
        return build.tanh(n.operands[0])

    @rule(UNARY["tanh"])
    def back(n: Node) -> Node | Decline | None:
        """tanh -> exp"""
        return build.exp(n.operands[0])

    with pytest.raises(InternalError, match=r"without end .*there 1x, back 1x"):
        rewrite(_graph(build.exp(X)), [there, back])


def test_a_rule_that_wraps_its_own_node_is_stopped() -> None:
    @rule(UNARY["exp"])
    def wrap(n: Node) -> Node | Decline | None:
        """exp(x) -> -(-exp(x))"""
        return build.negative(build.negative(n))

    with pytest.raises(InternalError, match="without end"):
        rewrite(_graph(build.exp(X)), [wrap])


def test_a_rule_that_always_finds_something_new_is_stopped() -> None:
    @rule(BINARY["multiply"])
    def grow(n: Node) -> Node | Decline | None:
        """x * y -> x * exp(y)"""
        return build.multiply(n.operands[0], build.exp(n.operands[1]))

    with pytest.raises(InternalError, match="without end"):
        rewrite(_graph(build.multiply(X, X)), [grow])


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(OptionError, match="two rules are called mul_by_one"):
        rewrite(_graph(X), [mul_by_one, mul_by_one])
    with pytest.raises(OptionError, match="limit is -1, expected at least 0"):
        rewrite(_graph(X), [mul_by_one], limit=-1)
    with pytest.raises(InternalError, match="rule nameless needs an op and a docstring"):

        @rule(UNARY["exp"])
        def nameless(n: Node) -> Node | Decline | None:
            return None


def test_a_deep_chain_needs_no_recursion_and_linear_time() -> None:
    x = X
    for _ in range(10_000):
        x = build.exp(build.multiply(x, 1.0))
    new, effects = rewrite(_graph(x), [mul_by_one, negative_twice])
    assert len(new.nodes()) == 10_001
    assert effects.applied == {"mul_by_one": 10_000}
