"""The walk from a model to a graph: names, order, functions, sizes, and what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from luban.core.errors import InputError, LubanError, ModelError, ShapeError, UnsupportedError
from luban.frontend.onnx import import_model
from luban.graph.evaluate import evaluate
from luban.graph.verify import verify
from luban.ir.node import Node
from tests.frontend.onnx.backend_cases import cases

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def value(name: str, sizes: Sequence[int | str | None] | None, code: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, code, sizes)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: dict[str, Any] | None = None,
    *,
    opset: int = 20,
    functions: Sequence[onnx.FunctionProto] = (),
    **options: Any,
) -> onnx.ModelProto:
    weights = [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "main", list(inputs), list(outputs), weights, **options)
    domains = {f.domain for f in functions} | {n.domain for n in nodes} - {""}
    imports = [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(d, 1) for d in sorted(domains)),
    ]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=list(functions))


def run(given: onnx.ModelProto, *inputs: Any) -> tuple[Any, ...]:
    graph = import_model(given).graph
    verify(graph)
    return evaluate(graph, list(inputs))


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs, **attributes)


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_names_values_and_locations() -> None:
    given = model(
        [node("Add", ["x", "one"], ["t"], name="plus"), node("Relu", ["t"], ["y"])],
        [value("x", ["n", 3])],
        [value("y", None)],
        {"one": np.float32(1)},
    )
    imported = import_model(given, "net.onnx")
    assert str(imported.graph.results[0].type) == "f32[n,3]"
    assert imported.graph.result_names == ("y",)
    assert imported.values["t"] is not imported.values["y"]
    assert str(imported.values["t"].loc) == "net.onnx: plus"
    assert str(imported.values["y"].loc) == "net.onnx: Relu_1"
    assert dict(imported.opset) == {"": 20}


def test_file_order_does_not_matter() -> None:
    nodes = [node("Relu", ["t"], ["y"]), node("Neg", ["x"], ["t"])]
    assert run(model(nodes, [value("x", [2, 3])], [value("y", None)]), X)[0].max() == 0


def test_cycles_are_named() -> None:
    nodes = [
        node("Add", ["x", "b"], ["a"], name="first"),
        node("Relu", ["a"], ["b"], name="second"),
    ]
    with pytest.raises(ModelError, match="nodes form a cycle: first <- second <- first"):
        import_model(model(nodes, [value("x", [2])], [value("a", None)]))


def test_a_deep_chain_needs_no_recursion() -> None:
    count = 3000
    nodes = [node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in reversed(range(count))]
    graph = import_model(model(nodes, [value("t0", [1])], [value(f"t{count}", None)])).graph
    assert len(graph.nodes()) > count


def test_a_value_that_nothing_makes() -> None:
    nodes = [node("Relu", ["ghost"], ["y"], name="relu")]
    with pytest.raises(ModelError, match="Relu uses 'ghost', which nothing makes"):
        import_model(model(nodes, [value("x", [1])], [value("y", None)]))
    with pytest.raises(ModelError, match="no value 'gone', which it states as an output"):
        import_model(model([node("Relu", ["x"], ["y"])], [value("x", [1])], [value("gone", None)]))


def test_two_makers_of_one_value() -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])]
    with pytest.raises(ModelError, match="two nodes make 'y'"):
        import_model(model(nodes, [value("x", [1])], [value("y", None)]))
    twice = model([node("Relu", ["x"], ["y"])], [value("x", [1])] * 2, [value("y", None)])
    with pytest.raises(ModelError, match="two inputs are called 'x'"):
        import_model(twice)


def test_numbers_of_inputs_are_checked() -> None:
    with pytest.raises(ModelError, match=r"MatMul .* 1 inputs, expected 2"):
        import_model(model([node("MatMul", ["x"], ["y"])], [value("x", [1])], [value("y", None)]))


def test_inputs_that_are_needed_are_not_left_out() -> None:
    nodes = [node("MatMul", ["", "x"], ["y"])]
    with pytest.raises(ModelError, match="input 0 is left out, but it is needed"):
        import_model(model(nodes, [value("x", [1])], [value("y", None)]))
    with pytest.raises(ModelError, match="0 inputs, expected 1 to more"):
        import_model(model([node("Concat", [], ["y"], axis=0)], [], [value("y", None)]))


def test_more_outputs_than_there_are() -> None:
    nodes = [node("Relu", ["x"], ["y", "z"])]
    with pytest.raises(ModelError, match="Relu has 2 outputs, expected 1"):
        import_model(model(nodes, [value("x", [1])], [value("y", None)]))


def test_what_the_standard_refuses_is_no_error_of_ours() -> None:
    """Where a handler stumbles, ONNX's own inference says whether the model is at fault."""
    nodes = [node("Reshape", ["x", "s"], ["y"])]
    given = model(nodes, [value("x", [2]), value("s", [], INT64)], [value("y", None)])
    with pytest.raises(ModelError, match=r"Reshape .*: given \(f32\[2\], i64\[\]\): "):
        import_model(given)


def test_wrong_attribute_kind() -> None:
    nodes = [node("Softmax", ["x"], ["y"], axis=0.5)]
    with pytest.raises(ModelError, match="attribute 'axis' is FLOAT, expected INT"):
        import_model(model(nodes, [value("x", [2])], [value("y", None)]))


def test_shape_errors_name_the_node_and_what_it_was_given() -> None:
    nodes = [node("Conv", ["x", "w"], ["y"], name="body/conv")]
    given = model(
        nodes, [value("x", [1, 3, 8, 8])], [value("y", None)], {"w": np.zeros((4, 5, 3, 3), "f4")}
    )
    with pytest.raises(ShapeError) as caught:
        import_model(given, "net.onnx")
    text = str(caught.value)
    assert text.startswith("Conv of (f32[1,3,8,8], f32[4,5,3,3]): convolution: input f32[1,3,8,8]")
    assert "expected 5" in text
    assert text.endswith("at net.onnx: body/conv")


def test_symbolic_sizes_are_kept_and_shared() -> None:
    given = model(
        [node("Add", ["x", "z"], ["y"])],
        [value("x", ["batch size", None]), value("z", ["batch size", 1])],
        [value("y", None)],
    )
    graph = import_model(given).graph
    assert str(graph.results[0].type) == "f32[batch_size,x_1]"


def test_arithmetic_in_size_names_is_understood() -> None:
    given = model(
        [node("Identity", ["m"], ["y"])],
        [value("m", ["past + length"]), value("p", ["past"]), value("q", ["length"])],
        [value("y", None)],
    )
    assert str(import_model(given).graph.parameters[0].type) == "f32[length+past]"


def test_different_names_stay_different() -> None:
    given = model(
        [node("Identity", ["x"], ["y"])], [value("x", ["a b", "a-b"])], [value("y", None)]
    )
    first, second = import_model(given).graph.parameters[0].tensor.shape
    assert first != second


def test_sizes_and_shapes_can_be_fixed() -> None:
    given = model([node("Relu", ["x"], ["y"])], [value("x", ["n", 3, "w"])], [value("y", None)])
    assert str(import_model(given, sizes={"n": 2}).graph.results[0].type) == "f32[2,3,w]"
    fixed = import_model(given, shapes={"x": [1, "rows", 8]})
    assert str(fixed.graph.results[0].type) == "f32[1,rows,8]"
    with pytest.raises(InputError, match="no symbolic size 'm'\nhint: symbolic sizes: n, w"):
        import_model(given, sizes={"m": 2})
    with pytest.raises(InputError, match="size 'n' is -1, expected 0 or more"):
        import_model(given, sizes={"n": -1})
    with pytest.raises(InputError, match="no input 'z'\nhint: inputs: x"):
        import_model(given, shapes={"z": [1]})
    with pytest.raises(InputError, match=r"\[1\] has 1 axes, expected 3"):
        import_model(given, shapes={"x": [1]})


def test_an_input_without_axes_needs_a_shape() -> None:
    given = model([node("Relu", ["x"], ["y"])], [value("x", None)], [value("y", None)])
    with pytest.raises(InputError, match="input 'x' has no number of axes"):
        import_model(given)
    assert str(import_model(given, shapes={"x": ["n", 2]}).graph.results[0].type) == "f32[n,2]"


def test_inner_values_can_be_asked_for() -> None:
    given = model(
        [node("Neg", ["x"], ["t"]), node("Relu", ["t"], ["y"])],
        [value("x", [2, 3])],
        [value("y", None)],
    )
    graph = import_model(given, outputs=["t", "y"]).graph
    np.testing.assert_array_equal(evaluate(graph, [X])[0], -X)
    with pytest.raises(InputError, match="has no value 'u'"):
        import_model(given, outputs=["u"])


def test_a_constant_output_keeps_its_name_and_value() -> None:
    given = model(
        [
            node(
                "ConstantOfShape",
                ["s"],
                ["y"],
                value=numpy_helper.from_array(np.array([7.0], "f4")),
            )
        ],
        [],
        [value("y", None)],
        {"s": np.array([2, 2], np.int64)},
    )
    graph = import_model(given).graph
    assert graph.result_names == ("y",)
    np.testing.assert_array_equal(evaluate(graph, [])[0], np.full((2, 2), 7, np.float32))


def doubled() -> onnx.FunctionProto:
    return helper.make_function(
        "local",
        "Scaled",
        ["x", "extra"],
        ["y"],
        [
            helper.make_node("Constant", [], ["c"], value_float=None),
            helper.make_node("Mul", ["x", "c"], ["m"]),
            helper.make_node("Clip", ["m", "extra"], ["y"]),
        ],
        [helper.make_opsetid("", 20)],
        ["by"],
    )


def scaled_function() -> onnx.FunctionProto:
    function = doubled()
    attribute = function.node[0].attribute.add(name="value_float", ref_attr_name="by")
    attribute.type = onnx.AttributeProto.FLOAT
    return function


def test_model_functions_attributes_and_left_out_inputs() -> None:
    nodes = [
        node("Scaled", ["x"], ["a"], domain="local", by=3.0),
        node("Scaled", ["x", "low"], ["b"], domain="local", by=2.0),
    ]
    given = model(
        nodes,
        [value("x", [2, 3])],
        [value("a", None), value("b", None)],
        {"low": np.float32(5)},
        functions=[scaled_function()],
    )
    a, b = run(given, X)
    np.testing.assert_array_equal(a, X * 3)
    np.testing.assert_array_equal(b, np.maximum(X * 2, 5))


def test_a_function_that_calls_itself() -> None:
    loop = helper.make_function(
        "local",
        "Loopy",
        ["x"],
        ["y"],
        [helper.make_node("Loopy", ["x"], ["y"], domain="local")],
        [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)],
    )
    given = model(
        [node("Loopy", ["x"], ["y"], domain="local")],
        [value("x", [1])],
        [value("y", None)],
        functions=[loop],
    )
    with pytest.raises(ModelError, match=r"function local\.Loopy calls itself"):
        import_model(given)


def test_everything_unsupported_is_listed_at_once() -> None:
    body = helper.make_graph([node("Bogus", ["x"], ["b"])], "body", [], [value("b", None)])
    nodes = [
        node("Frobnicate", ["x"], ["a"], name="layer/frob"),
        node("MatMull", ["x", "x"], ["c"]),
        node("If", ["p"], ["d"], then_branch=body, else_branch=body, name="choice"),
        node("Magic", ["x"], ["e"], domain="com.example"),
    ]
    given = model(
        nodes,
        [value("x", [2, "n"]), value("p", [], TensorProto.BOOL)],
        [value(name, None) for name in "acde"],
    )
    with pytest.raises(UnsupportedError) as caught:
        import_model(given, "net.onnx")
    items = caught.value.items
    assert len(items) == 5
    assert items[0].startswith("layer/frob: ai.onnx.Frobnicate (opset 20) of (f32[2,n]); nothing")
    assert items[1].endswith("did you mean MatMul?")
    assert items[2].startswith("choice/Bogus_0: ai.onnx.Bogus")
    assert items[4].startswith("Magic_3: com.example.Magic (opset 1)")
    assert str(caught.value).startswith("net.onnx: 5 nodes cannot be translated:\n  layer/frob")


def test_unsupported_forms_are_listed_together_too() -> None:
    nodes = [
        node("Dropout", ["x"], ["a"], name="first"),
        node("Relu", ["a"], ["b"]),
        node("Dropout", ["x"], ["c"], name="second"),
    ]
    given = model(nodes, [value("x", [2])], [value("b", None), value("c", None)], opset=1)
    with pytest.raises(UnsupportedError) as caught:
        import_model(given)
    assert [item.split(":")[0] for item in caught.value.items] == ["first", "second"]
    assert "nearest: is_test=1" in caught.value.items[0]


def test_shape_arithmetic_stays_static() -> None:
    """Shape -> Gather -> Concat -> Reshape keeps the batch symbolic and the rank known."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Concat", ["n", "minus"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["y"]),
    ]
    constants = {"zero": np.array([0], np.int64), "minus": np.array([-1], np.int64)}
    given = model(nodes, [value("x", ["n", 4, 5])], [value("y", None)], constants)
    graph = import_model(given).graph
    assert str(graph.results[0].type) == "f32[n,20]"
    assert {n.op.name for n in graph.nodes()} == {"parameter", "reshape"}


def test_a_size_that_only_a_dead_node_settles() -> None:
    """Shape(NonZero(x)): no operand leads from the shape to the count."""
    nodes = [node("NonZero", ["x"], ["i"]), node("Shape", ["i"], ["y"])]
    given = model(nodes, [value("x", [2, 3])], [value("y", None)])
    assert run(given, X)[0].tolist() == [2, 5]


def test_axes_known_at_run_time_only() -> None:
    nodes = [node("ReduceSum", ["x", "axes"], ["y"], keepdims=1)]
    given = model(
        nodes, [value("x", [2, "n"]), value("axes", [1], INT64)], [value("y", ["a", "b"])]
    )
    graph = import_model(given).graph
    steps = [n.op.name for n in graph.nodes() if n.op.name == "host_call"]
    assert len(steps) == 1
    for axis in (0, 1, -1):
        (result,) = evaluate(graph, [X, np.array([axis])])
        np.testing.assert_array_equal(result, X.sum(axis, keepdims=True))


def test_a_run_time_step_is_exact_in_the_oracle() -> None:
    nodes = [node("ReduceSum", ["x", "axes"], ["y"], keepdims=1)]
    given = model(nodes, [value("x", [3]), value("axes", [1], INT64)], [value("y", ["a"])])
    x = np.array([1e8, 1, -1e8], np.float32)
    (result,) = evaluate(import_model(given).graph, [x, np.array([0])], precision="float64")
    assert result.dtype == np.float64
    assert result.tolist() == [1.0]


def test_every_value_has_a_place() -> None:
    given = model(
        [node("Softmax", ["x"], ["y"], name="soft")], [value("x", [2, 3])], [value("y", None)]
    )
    made: list[Node] = [n for n in import_model(given).graph.nodes() if n.operands]
    assert {str(n.loc) for n in made} == {"model.onnx: soft"}


def test_constants_repeat_no_memory() -> None:
    weights = np.ones((64, 64), np.float32)
    given = model(
        [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "w"], ["y"])],
        [value("x", [2, 64])],
        [value("y", None)],
        {"w": weights},
    )
    names = [n.op.name for n in import_model(given).graph.nodes()]
    assert names.count("constant") == 1


def test_an_input_with_a_default_is_a_constant() -> None:
    """Old files list every initializer among the inputs."""
    given = model(
        [node("Add", ["x", "w"], ["y"])],
        [value("x", [2, 3]), value("w", [3])],
        [value("y", None)],
        {"w": np.array([1, 2, 3], np.float32)},
    )
    graph = import_model(given).graph
    assert graph.parameter_names == ("x",)
    np.testing.assert_array_equal(evaluate(graph, [X])[0], X + np.array([1, 2, 3]))


MUTATIONS = 300


def mutated(given: onnx.ModelProto, random: Random) -> onnx.ModelProto:
    """The model with one thing changed: an attribute, an input, a size, a type, the version."""
    changed = onnx.ModelProto()
    changed.CopyFrom(given)
    proto = random.choice(changed.graph.node)
    inputs = [v.type.tensor_type for v in changed.graph.input if v.type.HasField("tensor_type")]
    match random.randrange(7):
        case 0 if proto.attribute:
            attribute = random.choice(proto.attribute)
            attribute.i = random.choice([-1, 0, 99, 1 << 40])
            if attribute.ints:
                attribute.ints[random.randrange(len(attribute.ints))] = attribute.i
        case 1 if proto.attribute:
            del proto.attribute[random.randrange(len(proto.attribute))]
        case 2 if proto.input:
            del proto.input[random.randrange(len(proto.input))]
        case 3 if proto.input:
            proto.input[random.randrange(len(proto.input))] = ""
        case 4 if inputs:
            random.choice(inputs).elem_type = random.randrange(30)
        case 5 if inputs:
            random.choice(inputs).shape.dim.add().dim_value = random.choice([0, 1, 2, 1000])
        case _:
            changed.opset_import[0].version = random.randrange(1, 28)
    return changed


def test_damaged_models_give_errors_that_are_ours() -> None:
    random = Random(0)
    names = sorted(cases())
    for _ in range(MUTATIONS):
        given = mutated(cases()[random.choice(names)].model, random)
        with warnings.catch_warnings(), suppress(LubanError):
            warnings.simplefilter("ignore")
            import_model(given)
