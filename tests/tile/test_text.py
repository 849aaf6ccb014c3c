from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luban.core.errors import ModelError
from luban.tile import Function, FunctionBuilder, Module, parse, to_text
from luban.tile.text import operation_text
from tests.tile.programs import functions

GOLDEN = """\
func noinline row_sum(%x: ptr<f32> {access=read, alignment=64, noalias="in", extent="n*64"}, \
%y: ptr<f32> {access=write}, %n: i64 {access=read, multiple_of=4, doc="rows"}) doc "Sums rows." {
  %0 = program_id : i64
  %1 = constant 64 : i64
  %2 = mul %0, %1 : i64
  %3 = constant 0.0 : f32
  %4 = broadcast{shape=[16]} %3 : tile<16xf32>
  %5 = constant 0 : i64
  %6 = constant 16 : i64
  %7 = for{unroll=2} %5, %1, %6, %4 : tile<16xf32> {
    ^(%8: i64, %9: tile<16xf32>)
    %10 = add %2, %8 : i64
    %11 = load{shape=[16], strides=[1], align=64, cache=stream} %x, %10 : tile<16xf32>
    %12 = add %9, %11 : tile<16xf32>
    yield %12
  }
  %13 = reduce{kind=sum, axis=0} %7 : f32
  %14 = lt %0, %n : bool
  store{shape=[], strides=[]} %y, %0, %13, %14
}"""


def row_sum() -> Function:
    b = FunctionBuilder("row_sum", noinline=True, doc="Sums rows.")
    x = b.pointer("x", "f32", access="read", alignment=64, noalias="in", extent="n*64")
    y = b.pointer("y", "f32", access="write")
    n = b.scalar("n", multiple_of=4, doc="rows")
    row = b.program_id()
    start = row * 64
    zero = b.full((16,), 0.0, "f32")
    with b.for_(0, 64, 16, carried=[zero], unroll=2) as loop:
        part = b.load(x, start + loop.index, (16,), align=64, cache="stream")
        loop.yield_(loop.carried[0] + part)
    b.store(y, row, b.reduce("sum", loop.results[0], 0), mask=row < n)
    return b.finish()


def test_text_is_the_golden_one() -> None:
    assert to_text(row_sum()) == GOLDEN


def test_text_does_not_depend_on_value_names() -> None:
    assert to_text(row_sum()) == to_text(row_sum())


def test_text_parses_back() -> None:
    parsed = parse(GOLDEN)
    assert isinstance(parsed, Function)
    assert parsed.param("n").doc == "rows"
    assert parsed.noinline
    assert to_text(parsed) == GOLDEN


@given(functions())
@settings(max_examples=60, deadline=None)
def test_print_and_parse_are_inverse(function: Function) -> None:
    text = to_text(function)
    assert to_text(parse(text)) == text


def test_every_attribute_form_round_trips() -> None:
    b = FunctionBuilder("forms")
    p, q = b.pointer("p", "f32"), b.pointer("q", "i8", per_thread=True)
    m = b.scalar("m")
    b.load(
        p, m, (2, 4), [m, 0], row_offsets=[None, (0, 5, 7, -1)], mask=b.full((2, 4), True, "bool")
    )
    for value in (-0.0, float("inf"), -float("inf"), float("nan"), 1e-30, 1e30):
        b.constant(value, "f32")
    b.constant(2**64 - 1, "u64")
    b.constant(-(2**63), "i64")
    b.cast(b.constant(1, "i32"), "f8e4m3fn", saturate=False)
    b.scratch("bf16", 7, align=128)
    b.prefetch(q, 3, locality=1, write=True)
    b.require(m < 3, 'a "quoted" \\ name\n with é')
    b.atomic_rmw("exchange", q, m, 1)
    with b.while_([]) as loop:
        with loop.condition():
            loop.test(m < 3)
        with loop.body():
            loop.yield_()
    with b.if_(m < 2) as branch, branch.otherwise():
        b.store(q, 0, 1)
    text = to_text(b.finish())
    assert to_text(parse(text)) == text
    assert "row_offsets=[?, [0, 5, 7, -1]]" in text
    assert "constant -0.0 : f32" in text
    assert "while {" in text


def test_a_module_names_its_entry() -> None:
    inner = FunctionBuilder("inner")
    doubled = inner.scalar("x", "f32") * 2.0
    callee = inner.finish(doubled)
    b = FunctionBuilder("outer")
    p = b.pointer("p", "f32")
    (result,) = b.call(callee, b.load(p, 0))
    b.store(p, 0, result)
    text = to_text(b.finish_module())
    assert text.startswith("module outer\n\nfunc outer(")
    assert 'call{callee="inner"}' in text
    parsed = parse(text)
    assert isinstance(parsed, Module)
    assert [function.name for function in parsed.functions] == ["outer", "inner"]
    assert to_text(parsed) == text


def test_operation_text_leaves_regions_out() -> None:
    loop = row_sum().body.body[7]
    assert operation_text(loop) == "%4 = for{unroll=2} %0, %1, %2, %3 : tile<16xf32> {...}"


REFUSED = {
    "func f() { %0 = sin : f32 }": "got 0 operands",
    "func f() { %0 = nothing : f32 }": "unknown operation 'nothing'",
    "func f() { %0 = add %1, %1 : f32 }": "%1 is not defined",
    "func f() { %0 = constant 1 : i64 %0 = constant 1 : i64 }": "%0 is defined twice",
    "func f() { %0 = constant 1 : f32 }": "1 is not a value of f32",
    "func f() { %0 = constant 1 : i65 }": "unknown dtype 'i65'",
    "func f() { %0 = constant 1 : tile<axf32> }": "type tile<axf32>",
    "func f() { %0 = constant 300 : i8 }": "300 is not a value of i8",
    "func f() { %0 = constant ] : i8 }": "got ']', expected a literal",
    "func f() { %0 = arange{n=4} : tile<5xi64> }": "arange gives tile<4xi64>",
    "func f() { %0 = arange{n=4, m=3} : tile<4xi64> }": "arange has no attribute m",
    "func f() { %0 = arange{n=4, n=4} : tile<4xi64> }": "attribute n is given twice",
    "func f() { %0 = arange{n=[[[[[[4]]]]]]} : tile<4xi64> }": "lists nested too deeply",
    'func f() { assert{message="\\q"} }': "bad string",
    "func f(%x: f32 {size=3}) { }": "%x has no attribute size",
    "func f(%x: f32 %y: f32) { }": "got '%y', expected ','",
    "func f() { } }": "got '}', expected the end",
    "func f() { %0 = constant 1 : }": "got '}', expected a type",
    "func 7() { }": "got '7', expected a word",
    "func f() {\n\n $ }": "line 3: unexpected '$ }'",
    "func f() { yield %x }": "%x is not defined",
    "func f() { %0 = constant true : bool if %0 " + "{ if %0 " * 70: "nested deeper than 64",
}


@pytest.mark.parametrize(("source", "message"), REFUSED.items())
def test_parse_refuses(source: str, message: str) -> None:
    with pytest.raises(ModelError, match="tile text, line") as caught:
        parse(source)
    assert message in str(caught.value)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_parse_of_damaged_text_never_crashes(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(GOLDEN) - 1))
    length = data.draw(st.integers(0, 12))
    junk = data.draw(st.text("{}[]()%^:=,?x0179 \n\"'tile<f32>", max_size=6))
    with contextlib.suppress(ModelError):
        parse(GOLDEN[:at] + junk + GOLDEN[at + length :])
