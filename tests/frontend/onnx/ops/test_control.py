"""If, Loop and Scan: what is decided early, what is carried, and sizes that the run settles."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from luban.core.errors import InputError, ModelError, ShapeError
from luban.frontend.onnx import Imported, import_model
from luban.graph.evaluate import evaluate
from luban.graph.ops.control import If, Loop
from luban.graph.verify import verify


def imported(text: str, opset: int = 21) -> Imported:
    head = f'<ir_version: 10, opset_import: ["" : {opset}]>\n'
    model: onnx.ModelProto = parser.parse_model(head + text)
    found = import_model(model)
    verify(found.graph)
    return found


def run(text: str, *inputs: Any, opset: int = 21) -> tuple[Any, ...]:
    return evaluate(imported(text, opset).graph, list(inputs))


def names(text: str) -> list[str]:
    return [n.op.name for n in imported(text).graph.nodes()]


CHOICE = """
main (bool p, float[n] x) => (float[m] y) {
  one = Constant<value_float = 1.0>()
  big = Add(x, one)
  y = If(p) <
    then_branch = left () => (a) { a = Mul(big, x) },
    else_branch = right () => (b) { b = Concat<axis = 0>(x, x) }
  >
}
"""
X = np.array([1, 2, 3], np.float32)


def test_if_takes_a_branch_at_run_time() -> None:
    assert run(CHOICE, np.array(True), X)[0].tolist() == [2, 6, 12]
    assert run(CHOICE, np.array(False), X)[0].tolist() == [1, 2, 3, 1, 2, 3]


def test_if_captures_what_it_uses_and_repeats_constants() -> None:
    graph = imported(CHOICE).graph
    (choice,) = [n for n in graph.nodes() if isinstance(n.op, If)]
    assert [o.op.name for o in choice.operands] == ["parameter", "add", "parameter"]
    inside = {n.op.name for n in choice.op.then.nodes()}  # type: ignore[attr-defined]
    assert inside == {"parameter", "multiply"}


def test_a_constant_if_is_decided_and_keeps_the_branch_constants() -> None:
    text = """
    main (float[1, 3] x) => (float[3] y) {
      yes = Constant<value = bool {1}>()
      y = If(yes) <
        then_branch = a () => (s) <int64[1] axes = {0}> { s = Squeeze(x, axes) },
        else_branch = b () => (t) { t = Identity(x) }
      >
    }
    """
    assert "if" not in names(text)
    assert run(text, X[None])[0].tolist() == [1, 2, 3]


def test_branches_with_another_number_of_axes() -> None:
    """Exporters write If(size == 1, Squeeze(x), x): a run that takes the other one says so."""
    text = """
    main (float[n, 3] x) => (float[3] y) {
      one = Constant<value_int = 1>()
      zero = Constant<value_int = 0>()
      axes = Constant<value_ints = [0]>()
      shape = Shape(x)
      rows = Gather(shape, zero)
      single = Equal(rows, one)
      y = If(single) <
        then_branch = a () => (s) { s = Squeeze(x, axes) },
        else_branch = b () => (t) { t = Identity(x) }
      >
    }
    """
    (assumption,) = imported(text).assumptions
    assert "compiled for then_branch, which gives f32[3]" in assumption
    assert "the other branch gives f32[n,3]" in assumption
    assert run(text, X[None])[0].tolist() == [1, 2, 3]
    with pytest.raises(ShapeError, match=r"If_6: compiled for then_branch, which gives f32\[3\]"):
        run(text, np.ones((2, 3), np.float32))
    assert "host_call" not in names(text)


STEP = """
main (float[n] x, int64 count) => (RESULT) {
  one = Constant<value_int = 1>()
  single = Equal(count, one)
  s = If(single) <
    then_branch = a () => (u) { u = Constant<value_float = 5.0>() },
    else_branch = b () => (v) { v = Constant<value_floats = [7.0]>() }
  >
  USE
}
"""
BESIDE = "then_branch = p () => (z) { z = Mul(x, s) }, else_branch = q () => (z) { z = Neg(x) }"


@pytest.mark.parametrize(
    "use",
    [
        "y = Mul(x, s)",
        "h = Neg(s) k = Neg(h) y = Mul(k, x)",
        "c = CastLike(x, s) y = Mul(c, s)",
        f"always = Constant<value = bool {{1}}>() y = If(always) <{BESIDE}>",
    ],
)
def test_a_number_beside_a_vector_of_one_is_either_beside_a_longer_vector(use: str) -> None:
    text = STEP.replace("USE", use).replace("RESULT", "float[n] y")
    assert imported(text).assumptions == ()
    for count, factor in ((1, 5), (2, 7)):
        (y,) = run(text, X, np.array(count))
        assert y.tolist() == (factor * X).tolist()


@pytest.mark.parametrize(
    "use",
    [
        "y = Identity(s)",
        "h = Neg(s) y = ReduceSum(h)",
        "h = Neg(s) y = Shape(h)",
        "axes = Constant<value_ints = [0]>() y = Unsqueeze(s, axes)",
        f"some = Greater(count, one) y = If(some) <{BESIDE}>",
    ],
)
def test_one_of_two_ranks_is_assumed_where_they_can_be_told_apart(use: str) -> None:
    text = STEP.replace("USE", use).replace("RESULT", "y")
    (assumption,) = imported(text).assumptions
    assert "compiled for then_branch, which gives f32[]" in assumption
    run(text, X, np.array(1))
    with pytest.raises(InputError, match=r"takes the other branch of .*If"):
        run(text, X, np.array(2))


TWO_RANKS = """
main (float[n, 3] x, int64 wanted) => (float[3] y) {
  zero = Constant<value_int = 0>()
  axes = Constant<value_ints = [0]>()
  shape = Shape(x)
  rows = Gather(shape, zero)
  single = CONDITION
  y = If(single) <
    then_branch = a () => (s) { s = ReduceSum<keepdims = 0>(x, axes) },
    else_branch = b () => (t) { t = Identity(x) }
  >
}
"""


@pytest.mark.parametrize("condition", ["Less(rows, wanted)", "Equal(rows, wanted)"])
def test_a_branch_that_data_decides_is_checked_when_it_runs(condition: str) -> None:
    text = TWO_RANKS.replace("CONDITION", condition)
    x = np.ones((2, 3), np.float32)
    wanted = 3 if condition.startswith("Less") else 2
    assert run(text, x, np.array(wanted))[0].tolist() == [2, 2, 2]
    with pytest.raises(InputError, match=r"takes the other branch of .*If"):
        run(text, x, np.array(0))


def test_sizes_that_must_differ_are_checked_where_the_graph_begins() -> None:
    text = """
    main (float[n, 3] x) => (float[3] y) {
      one = Constant<value_int = 1>()
      zero = Constant<value_int = 0>()
      axes = Constant<value_ints = [0]>()
      shape = Shape(x)
      rows = Gather(shape, zero)
      single = Equal(rows, one)
      several = Not(single)
      y = If(several) <
        then_branch = a () => (s) { s = ReduceSum<keepdims = 0>(x, axes) },
        else_branch = b () => (t) { t = Identity(x) }
      >
    }
    """
    assert names(text).count("host_call") == 1
    assert run(text, np.ones((2, 3), np.float32))[0].tolist() == [2, 2, 2]
    with pytest.raises(InputError, match=r"takes the other branch of .*If"):
        run(text, np.ones((1, 3), np.float32))


COUNT = """
main (int64 limit, float[3] x) => (float[3] total, float[turns, 3] each) {
  go = Constant<value = bool {1}>()
  total, each = Loop(limit, go, x) <body = body
    (int64 i, bool c, float[3] t) => (bool again, float[3] next, float[3] shown) {
      again = Identity(c)
      next = Add(t, x)
      shown = Identity(next)
    }
  >
}
"""


@pytest.mark.parametrize("turns", [0, 1, 4])
def test_loop_counts_and_stacks(turns: int) -> None:
    total, each = run(COUNT, np.array(turns), X)
    np.testing.assert_array_equal(total, X * (turns + 1))
    assert each.shape == (turns, 3)
    np.testing.assert_array_equal(each, [X * (i + 2) for i in range(turns)] or np.zeros((0, 3)))


def test_a_negative_limit_is_no_turn() -> None:
    assert run(COUNT, np.array(-2), X)[1].shape == (0, 3)


def test_loop_ends_when_its_condition_fails() -> None:
    text = """
    main (int64 limit, float[4] x) => (float[4] y, float[turns, 4] each) {
      go = Constant<value = bool {1}>()
      y, each = Loop(limit, go, x) <body = body
        (int64 i, bool c, float[4] t) => (bool again, float[4] next, float[4] shown) {
          again = Constant<value = bool {0}>()
          next = Identity(t)
          shown = Identity(t)
        }
      >
    }
    """
    x = np.ones(4, np.float32)
    assert run(text, np.array(5), x)[1].shape == (1, 4)
    assert run(text, np.array(0), x)[1].shape == (0, 4)


def test_a_fixed_number_of_turns_is_a_known_size() -> None:
    text = COUNT.replace("int64 limit, ", "").replace(
        "go = Con", "limit = Constant<value_int = 7>()\n  go = Con"
    )
    graph = imported(text).graph
    assert str(graph.results[1].type) == "f32[7,3]"


def test_carried_sizes_that_grow_become_symbols() -> None:
    text = """
    main (int64 limit, float[n] x) => (float[m] y) {
      go = Constant<value = bool {1}>()
      y = Loop(limit, go, x) <body = body
        (int64 i, bool c, float[k] t) => (bool again, float[j] next) {
          again = Identity(c)
          next = Concat<axis = 0>(t, x)
        }
      >
    }
    """
    for turns in (0, 1, 3):
        np.testing.assert_array_equal(run(text, np.array(turns), X)[0], np.tile(X, turns + 1))


def test_an_endless_loop_has_no_limit() -> None:
    text = """
    main (float x) => (float y) {
      go = Constant<value = bool {1}>()
      top = Constant<value_float = 100.0>()
      y = Loop("", go, x) <body = body
        (int64 i, bool c, float t) => (bool again, float next) {
          next = Add(t, t)
          again = Less(next, top)
        }
      >
    }
    """.replace('""', "")
    text = text.replace("Loop(, go", "Loop(none, go").replace(
        "main (float x)", "main (float x, int64 none)"
    )
    # The parser has no word for a left-out input, so it is taken out here.
    head = '<ir_version: 10, opset_import: ["" : 21]>\n'
    model = parser.parse_model(head + text)
    (loop,) = [n for n in model.graph.node if n.op_type == "Loop"]
    loop.input[0] = ""
    graph = import_model(model).graph
    (result,) = evaluate(graph, [np.array(3, np.float32), np.array(0)])
    assert result == 192


def test_state_that_only_a_nested_if_uses() -> None:
    text = """
    main (int64 limit, bool flag) => (int64 y) {
      go = Constant<value = bool {1}>()
      zero = Constant<value_int = 0>()
      y = Loop(limit, go, zero) <body = body
        (int64 i, bool c, int64 count) => (bool again, int64 next) {
          again = Identity(c)
          next = If(flag) <
            then_branch = a () => (int64 same) { same = Identity(count) },
            else_branch = b () => (int64 more) {
              one = Constant<value_int = 1>()
              more = Add(count, one)
            }
          >
        }
      >
    }
    """
    assert run(text, np.array(4), np.array(False))[0] == 4
    assert run(text, np.array(4), np.array(True))[0] == 0


def test_scan_carries_and_walks_backwards() -> None:
    text = """
    main (float[2] start, float[t, 2] xs) => (float[2] last, float[t, 2] sums) {
      last, sums = Scan<num_scan_inputs = 1, scan_input_directions = [1],
        scan_output_directions = [1], body = body
        (float[2] s, float[2] x) => (float[2] n, float[2] shown) {
          n = Add(s, x)
          shown = Identity(n)
        }>(start, xs)
    }
    """
    xs = np.arange(6, dtype=np.float32).reshape(3, 2)
    last, sums = run(text, np.zeros(2, np.float32), xs)
    np.testing.assert_array_equal(sums, np.cumsum(xs[::-1], axis=0)[::-1])
    np.testing.assert_array_equal(last, xs.sum(0))


def test_scan_of_more_inputs_than_there_are() -> None:
    text = """
    main (float[t] xs) => (float[t] y) {
      y = Scan<num_scan_inputs = 2, body = body (float x) => (float n) { n = Neg(x) }>(xs)
    }
    """
    with pytest.raises(ModelError, match="num_scan_inputs is 2, expected 1 to 1"):
        imported(text)


def test_a_body_that_takes_another_number_of_values() -> None:
    text = COUNT.replace("(int64 i, bool c, float[3] t)", "(int64 i, bool c)").replace(
        "Add(t, x)", "Add(x, x)"
    )
    with pytest.raises(ModelError, match="'body' takes 2 values, given 3"):
        imported(text)


def test_a_loop_knows_its_values_are_carried() -> None:
    graph = imported(COUNT).graph
    (loop,) = [n.op for n in graph.nodes() if isinstance(n.op, Loop)]
    assert loop.num_carried == 1
    assert loop.body.parameter_names[:3] == ("Loop_1/body/i", "Loop_1/body/c", "Loop_1/body/t")
