"""Printing and parsing: round trips, goldens, and what the parser refuses."""

from contextlib import suppress
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luban.core.dims import bounds, symbol
from luban.core.errors import InternalError, ModelError
from luban.core.loc import Loc
from luban.core.types import OptionalType, SequenceType, tensor
from luban.graph import build
from luban.graph.evaluate import evaluate
from luban.graph.meaning.context import Array
from luban.graph.ops.control import If, Loop
from luban.graph.ops.data import HostCall
from luban.graph.parse import parse_graph
from luban.graph.text import print_graph
from luban.graph.verify import verify
from luban.ir.node import Graph, Node, located, node, results_of
from tests.graph.programs import inputs_for, programs

GOLDEN = Path(__file__).parent / "golden"


def round_trip(graph: Graph, *, max_inline: int = 16) -> Graph:
    text, literals = print_graph(graph, max_inline=max_inline)
    again = parse_graph(text, literals)
    assert print_graph(again, max_inline=max_inline).text == text
    return again


@given(programs())
@settings(max_examples=60, deadline=None)
def test_random_programs_come_back(graph: Graph) -> None:
    verify(graph)
    again = round_trip(graph)
    assert again.parameters == graph.parameters
    assert again.result_names == graph.result_names
    for before, after in zip(
        evaluate(graph, inputs_for(graph)), evaluate(again, inputs_for(graph)), strict=True
    ):
        assert (before.dtype, before.tobytes()) == (after.dtype, after.tobytes())


def test_pure_programs_come_back_as_the_same_nodes() -> None:
    x = build.parameter("x", tensor("f32", symbol("batch", 1, 64), 3))
    graph = Graph("main", (x,), (build.softmax(build.mean(x, [0], keep_axes=True), 1),))
    assert round_trip(graph).results == graph.results


def sample() -> Graph:
    """Bounds, sub-graphs used twice, a host call, an external literal, odd names."""
    n = symbol("n", 1, 512)
    x = build.parameter("input:0", tensor("f32", n, "min(2*h,8)+1"))
    inner = build.parameter("v", tensor("f32", n))
    then = Graph("then", (inner,), (build.exp(inner),))
    otherwise = Graph("otherwise/1", (inner,), (build.negative(inner),))
    choice = If(then, otherwise, (inner.type,))
    p = build.parameter("p", tensor("bool"))
    (first,) = results_of(node(choice, p, build.reduce("sum", x, [1])))
    (second,) = results_of(node(choice, build.bitwise_not(p), first))
    weights = build.constant(np.arange(32, dtype=np.float32), label="layer.0/weight")
    call = HostCall(
        "tokens",
        (("pattern", 'a"b\n'), ("limits", (1, 2.5, None, True))),
        (tensor("str", "count"), SequenceType(OptionalType(tensor("i64")))),
    )
    words = node(call, weights)
    return Graph("main", (x, p), (second, words), ("y", "words"))


def test_golden(request: pytest.FixtureRequest) -> None:
    printed = print_graph(sample())
    path = GOLDEN / "sample.txt"
    if request.config.getoption("--update-golden"):
        path.write_text(printed.text, encoding="utf-8")
    assert printed.text == path.read_text(encoding="utf-8")
    assert list(printed.literals) == ["layer.0/weight"]


def test_the_sample_comes_back() -> None:
    again = round_trip(sample())
    verify(again)
    assert bounds(again.parameters[0].tensor.shape[0]) == (1, 512)


def test_a_loop_comes_back() -> None:
    i, c = build.parameter("i", tensor("i64")), build.parameter("c", tensor("bool"))
    v = build.parameter("v", tensor("f32", 2))
    body = Graph("body", (i, c, v), (c, build.add(v, v), v))
    limit, go, start = (
        build.parameter(a, t) for a, t in (("m", i.type), ("g", c.type), ("s", v.type))
    )
    op = Loop(body, 1, (tensor("f32", 2), tensor("f32", "trips", 2)))
    graph = Graph("main", (limit, go, start), results_of(node(op, limit, go, start)))
    values = [np.array(3), np.array(True), np.ones(2, np.float32)]
    for a, b in zip(evaluate(graph, values), evaluate(round_trip(graph), values), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "array",
    [
        np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 0.1, 1e-45, 3.4e38], np.float32),
        np.array([0x7FC00001, 0xFFC00000, 0x7F800001], np.uint32).view(np.float32),
        np.array([0.1, -0.0, 5e-324], np.float64),
        np.array([0.1, -2, np.nan], ml_dtypes.bfloat16),
        np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e5m2),
        np.array([-8, 7], ml_dtypes.int4),
        np.array([2**64 - 1, 0], np.uint64),
        np.array([-(2**63)], np.int64),
        np.array([True, False]),
        np.array([1 + 2j, complex(0.0, -0.0)], np.complex64),
        np.array(["a", 'b"\\', "ü\n"], object),
        np.zeros((0, 3), np.float16),
        np.array(7, np.int16),
    ],
)
def test_literals_come_back_bit_by_bit(array: Array) -> None:
    graph = Graph("main", (), (build.constant(array),))
    result = evaluate(round_trip(graph, max_inline=999), [])[0]
    assert (result.dtype, result.shape) == (array.dtype, array.shape)
    if array.dtype.kind == "O":
        assert result.tolist() == array.tolist()
    else:
        assert result.tobytes() == array.tobytes()


def test_locations_print_as_comments_and_are_skipped() -> None:
    x = build.parameter("x", tensor("f32", 5, 7))
    with located(Loc("model.onnx", "Exp_3")):
        y = build.exp(x)
    text = print_graph(Graph("main", (x,), (y,)), locations=True).text
    assert "%0 = exp(%x) : f32[5,7]  # model.onnx: Exp_3\n" in text
    assert parse_graph(text).results == (y,)


def test_printing_an_open_graph_is_refused() -> None:
    x = build.parameter("x", tensor("f32"))
    with pytest.raises(InternalError, match="parameter 'x' is used but not declared"):
        print_graph(Graph("main", (), (build.exp(x),)))


def test_printing_an_unknown_attribute_is_refused() -> None:
    op = HostCall("f", (("options", 1 + 2j),), (tensor("f32"),))
    with pytest.raises(InternalError, match=r"attribute \(1\+2j\) has no text form"):
        print_graph(Graph("main", (), (node(op),)))


HEAD = "graph @f(%x: f32[n]) {\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: found 'the end', expected 'graph'"),
        ("graph @f[n: 3..2]()", r"column 10: .* bounds of a size: dimension n: bounds \[3, 2\]"),
        ("graph f", "column 7: found 'f', expected '@'"),
        (
            HEAD + "  %0 = frob(%x) : f32[n]",
            "line 2, column 8: found 'frob.*, expected the name of a",
        ),
        (
            HEAD + "  %0 = exp(%y) : f32[n]",
            "column 12: found '%y.*, expected a value that is defined",
        ),
        (HEAD + "  %0 = exp(%x) : f64[n]", r"column 18: found 'f64.*, expected the type f32\[n\]"),
        (
            HEAD + "  %0 = exp(%x, %x) : f32[n]",
            "expected a fitting exp: exp: given .* 1 tensor operand",
        ),
        (
            HEAD + "  %0 = sort(%x) {axis=9} : f32[n]",
            "expected a fitting sort: sort: axis 9 is outside",
        ),
        (
            HEAD + "  %0 = sort(%x) {axes=0} : f32[n]",
            "expected a fitting sort: .*unexpected keyword",
        ),
        (HEAD + "  %x = exp(%x) : f32[n]", "expected a new value: %x exists already"),
        (HEAD + "  %0 = exp(%x) : f32[n+]", "expected a dimension: dimension 'n.' cannot be read"),
        (HEAD + "  %0 = exp(%x) : f33[n]", "expected one of bool, i2"),
        (HEAD + "  return %x as y }", "expected a string"),
        (HEAD + '  return %x, %x as "y" }', "expected a name for each result or for none"),
        (HEAD + "  %0 = exp(%x) : f32[1if]", "a dimension: dimension '1if' cannot be read"),
        (HEAD + "  %0 = get_item(%x) {index=0} : f32[n]", "a fitting get_item: internal error"),
        (
            HEAD + "  %0 = if(%x) {then=@g} : ()",
            "expected the name of a graph that is defined above",
        ),
        (
            HEAD + '  %0 = constant() {value=external(f32[9], "w")} : f32[9]',
            "name of a given array of",
        ),
        (HEAD + "  %0 = constant() {value=literal(f32[2], [1.0])} : f32[2]", "the elements of f32"),
        (HEAD + "  %0 = constant() {value=literal(u8[1], [300])} : u8[1]", "the elements of u8"),
        (HEAD + "  %0 = constant() {value=?}", "expected an attribute"),
        (HEAD + "  return %x ", "found 'the end', expected ','"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        parse_graph(text)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_garbled_text_is_refused_and_never_crashes(data: st.DataObject) -> None:
    text, literals = print_graph(sample())
    at = data.draw(st.integers(0, len(text) - 1))
    length = data.draw(st.integers(0, 8))
    junk = data.draw(st.text('(){}[]<>@%=:,."0159-xnf_ \n', max_size=4))
    with suppress(ModelError):  # what is garbled may still be a program
        parse_graph(text[:at] + junk + text[at + length :], literals)


@pytest.mark.parametrize(
    "attributes",
    ["kind=3, axes=(0,)", 'kind="sum", axes=0', 'kind="sum", axes=("a",)', "kind=f32, axes=none"],
)
def test_attributes_of_a_wrong_kind_are_refused(attributes: str) -> None:
    with pytest.raises(ModelError, match=r"line 2, column 8: .*expected a fitting reduce"):
        parse_graph(HEAD + f"  %0 = reduce(%x) {{{attributes}}} : f32[]\n return %0 }}")


def test_a_dtype_attribute_must_be_a_dtype() -> None:
    with pytest.raises(ModelError, match="expected a fitting cast"):
        parse_graph(HEAD + "  %0 = cast(%x) {dtype=3} : f32[n] return %0 }")


def test_an_external_literal_of_another_type_is_refused() -> None:
    text = 'graph @f() { %0 = constant() {value=external(f32[2], "w")} : f32[2] return %0 }'
    with pytest.raises(ModelError, match=r"expected an array of type f32\[2\], not f64\[2\]"):
        parse_graph(text, {"w": np.zeros(2)})


def test_a_deep_chain_prints_and_parses() -> None:
    x: Node = build.parameter("x", tensor("f32", 2))
    y = x
    for _ in range(5_000):
        y = build.negative(y)
    graph = Graph("deep", (x,), (y,))
    assert round_trip(graph).results == (y,)
