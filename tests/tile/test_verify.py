from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luban.core.errors import CheckError
from luban.tile import Function, FunctionBuilder, Module, parse, to_text, verify
from luban.tile.function import Operation, Param, Region, Value
from luban.tile.memory_ops import Load
from luban.tile.op import TileOp
from luban.tile.ops import Broadcast, Constant, Unary
from luban.tile.types import BOOL, I64, TileType, pointer_type, tile_type
from tests.tile.programs import functions


@given(functions())
@settings(max_examples=60, deadline=None)
def test_built_programs_are_legal(function: Function) -> None:
    verify(function)


# Text that parses, with the reason why verify must say no.
REFUSED = {
    "a use outside the region of its definition": (
        """func f(%c: bool) {
          if %c {
            %0 = constant 1 : i64
          } {
          }
          %1 = add %0, %0 : i64
        }""",
        "is used where it is not defined",
    ),
    "a result used inside its own region": (
        """func f(%n: i64) {
          %0 = constant 1 : i64
          for %0, %n, %0 {
            ^(%1: i64)
          }
          %2 = for %0, %n, %0, %n : i64 {
            ^(%3: i64, %4: i64)
            yield %1
          }
        }""",
        "is yielded but not defined here",
    ),
    "a loop whose region takes too little": (
        """func f(%n: i64) {
          for %n, %n, %n {
          }
        }""",
        "region parameters are (), expected (i64)",
    ),
    "a loop that yields another type": (
        """func f(%n: i64) {
          %0 = for %n, %n, %n, %n : i64 {
            ^(%1: i64, %2: i64)
            %3 = lt %1, %2 : bool
            yield %3
          }
        }""",
        "a region yields (bool), expected (i64)",
    ),
    "a branch without its second region": (
        """func f(%c: bool) {
          if %c {
          }
        }""",
        "has 1 regions, expected 2",
    ),
    "a while whose condition is no bool": (
        """func f(%n: i64) {
          %0 = while %n : i64 {
            ^(%1: i64)
            yield %1
          } {
            ^(%2: i64)
            yield %2
          }
        }""",
        "a region yields (i64), expected (bool)",
    ),
    "a region on an op that has none": (
        """func f(%n: i64) {
          %0 = add %n, %n : i64 {
          }
        }""",
        "has 1 regions, expected 0",
    ),
    "a loop that never ends": (
        """func f(%n: i64) {
          %0 = constant 0 : i64
          for %n, %n, %0 {
            ^(%1: i64)
          }
        }""",
        "step is 0, expected at least 1",
    ),
    "scratch in a region": (
        """func f(%c: bool) {
          if %c {
            %0 = scratch{dtype=f32, count=4} : ptr<f32>
          } {
          }
        }""",
        "scratch inside a region",
    ),
    "an align claim beyond the declaration": (
        """func f(%x: ptr<f32> {alignment=16}, %n: i64) {
          %0 = load{shape=[8], strides=[1], align=32} %x, %n : tile<8xf32>
        }""",
        "align is 32, but the pointer is only known to be a multiple of 16",
    ),
    "an align claim on scratch": (
        """func f(%n: i64) {
          %0 = scratch{dtype=f32, count=64, align=16} : ptr<f32>
          %1 = load{shape=[8], strides=[1], align=32} %0, %n : tile<8xf32>
        }""",
        "only known to be a multiple of 16",
    ),
    "a write through a read parameter": (
        """func f(%x: ptr<i64> {access=read}, %n: i64) {
          store{shape=[], strides=[]} %x, %n, %n
        }""",
        "writes %x, declared read",
    ),
    "an atomic through a read parameter": (
        """func f(%x: ptr<i64> {access=read}, %n: i64) {
          %0 = atomic_rmw{kind=add} %x, %n, %n : i64
        }""",
        "writes %x, declared read",
    ),
    "a thread id that decides what is stored": (
        """func f(%x: ptr<i64>, %n: i64) {
          %0 = thread_id : i64
          %1 = add %0, %n : i64
          store{shape=[], strides=[]} %x, %n, %1
        }""",
        "depends on thread_id",
    ),
    "a thread id that decides where": (
        """func f(%x: ptr<i64>, %n: i64) {
          %0 = thread_id : i64
          store{shape=[], strides=[]} %x, %0, %n
        }""",
        "depends on thread_id",
    ),
    "a thread id that steers a loop": (
        """func f(%x: ptr<i64> {per_thread=true}, %n: i64) {
          %0 = thread_id : i64
          for %n, %0, %n {
            ^(%1: i64)
          }
        }""",
        "depends on thread_id",
    ),
    "a thread id that leaves a region": (
        """func f(%c: bool, %n: i64) {
          %0 = thread_id : i64
          %1 = if %c : i64 {
            yield %0
          } {
            yield %n
          }
        }""",
        "depends on thread_id and is yielded",
    ),
    "promises of a pointer on a number": (
        "func f(%n: i64 {alignment=8}) {\n}",
        "i64 with alignment, noalias, extent or per_thread",
    ),
    "divisibility of an address": (
        "func f(%x: ptr<f32> {multiple_of=8}) {\n}",
        "multiple_of on a pointer",
    ),
    "an alignment that is no power of two": (
        "func f(%x: ptr<f32> {alignment=24}) {\n}",
        "alignment 24, expected a power of two or 0",
    ),
    "a divisor of zero": ("func f(%n: i64 {multiple_of=0}) {\n}", "multiple_of 0"),
    "an unknown access": ("func f(%x: ptr<f32> {access=look}) {\n}", "access 'look'"),
    "an extent of an unknown name": (
        'func f(%x: ptr<f32> {extent="n*m"}, %n: i64) {\n}',
        "'m' is neither a number nor an integer parameter",
    ),
    "a kernel that takes a tile": ("func f(%t: tile<4xf32>) {\n}", "the entry takes %t"),
    "a kernel that returns": ("func f(%n: i64) {\n  yield %n\n}", "the entry returns values"),
    "a call of nothing": (
        'func f(%n: i64) {\n  call{callee="g"} %n\n}',
        "no function 'g' in the module",
    ),
    "a call with other arguments": (
        """module f
        func f(%n: i64) {
          call{callee="g"} %n, %n
        }
        func g(%n: i64) {
        }""",
        "arguments are (i64, i64), expected (i64)",
    ),
    "a call that expects other results": (
        """module f
        func f(%n: i64) {
          %0 = call{callee="g"} %n : i64
        }
        func g(%n: i64) {
        }""",
        "results are (i64), expected ()",
    ),
    "a call that writes what the caller only reads": (
        """module f
        func f(%x: ptr<f32> {access=read}) {
          call{callee="g"} %x
        }
        func g(%y: ptr<f32> {access=write}) {
        }""",
        "writes %x, declared read",
    ),
    "a call that wants more alignment": (
        """module f
        func f(%x: ptr<f32>) {
          call{callee="g"} %x
        }
        func g(%y: ptr<f32> {alignment=64}) {
        }""",
        "%y of g wants alignment 64, given 0",
    ),
    "recursion": (
        """module f
        func f() {
          call{callee="g"}
        }
        func g() {
          call{callee="f"}
        }""",
        "f -> g -> f: a function calls itself",
    ),
    "two functions of one name": (
        "module f\nfunc f() {\n}\nfunc f() {\n}",
        "functions f, f, expected different names",
    ),
    "an entry that is not there": ("module g\nfunc f() {\n}", "has no function 'g'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_verify_refuses(name: str) -> None:
    source, message = REFUSED[name]
    with pytest.raises(CheckError) as caught:
        verify(parse(source))
    assert message in str(caught.value)


X = Value(I64, "x")


def refuse(function: Function, message: str) -> None:
    with pytest.raises(CheckError) as caught:
        verify(function)
    assert message in str(caught.value)


def body_of(*operations: Operation, params: tuple[Param, ...] = (Param(X),)) -> Function:
    return Function("f", params, Region(tuple(param.value for param in params), operations))


def test_refuses_results_that_infer_does_not_give() -> None:
    wrong = Operation(Unary("neg"), (X,), (Value(BOOL),))
    refuse(body_of(wrong), "results are (bool), expected (i64)")


def test_refuses_a_value_with_two_definitions() -> None:
    once = Operation(Unary("neg"), (X,), (Value(I64),))
    twice = Operation(Unary("abs"), (X,), once.results)
    refuse(body_of(once, twice), "is defined twice")


def test_refuses_a_parameter_as_a_result() -> None:
    refuse(body_of(Operation(Unary("neg"), (X,), (X,))), "is defined twice")


def test_refuses_an_op_outside_the_closed_set() -> None:
    class Strange(TileOp):
        name = "strange"

    refuse(body_of(Operation(Strange())), "Strange is no tile op")


def test_refuses_malformed_attributes() -> None:
    broken = Broadcast("ab")  # type: ignore[arg-type]
    refuse(body_of(Operation(broken, (X,), (X,))), "broadcast")
    pointer = Value(pointer_type("f32"), "p")
    load = Load(4, None)  # type: ignore[arg-type]
    params = (Param(pointer), Param(X))
    refuse(
        body_of(Operation(load, (pointer, X), (Value(tile_type("f32", 4)),)), params=params),
        "malformed attributes",
    )


def test_refuses_body_parameters_that_are_not_the_functions() -> None:
    refuse(Function("f", (Param(X),), Region()), "the body's parameters are not the function's")


def test_refuses_names_that_do_not_print() -> None:
    refuse(Function("a b", (), Region()), "function name 'a b', expected an identifier")
    odd = Value(I64, "0")
    refuse(body_of(params=(Param(odd),)), "expected an identifier as name")
    two = (Param(Value(I64, "a")), Param(Value(I64, "a")))
    refuse(body_of(params=two), "parameters a, a, expected unique names")


def test_refuses_regions_nested_without_end() -> None:
    b = FunctionBuilder("deep")
    condition = b.scalar("c", "bool")

    def nest(depth: int) -> None:
        if depth:
            with b.if_(condition) as branch, branch.then():
                nest(depth - 1)

    nest(70)
    refuse(b.finish(), "nested deeper than 64 regions")


def test_thread_ids_may_index_per_thread_memory() -> None:
    b = FunctionBuilder("f")
    area = b.pointer("area", "f32", per_thread=True)
    b.store(area, b.thread_id() * 256 + 3, 1.0)
    verify(b.finish())


def _rebuild(function: Function, change: Callable[[Operation], Operation | None]) -> Function:
    """The function with each top-level operation changed or dropped."""
    body = [change(operation) for operation in function.body.body]
    kept = tuple(operation for operation in body if operation is not None)
    region = Region(function.body.params, kept, function.body.yields)
    return Function(function.name, function.params, region)


@given(functions(), st.data())
@settings(max_examples=100, deadline=None)
def test_verify_of_damaged_programs_never_crashes(function: Function, data: st.DataObject) -> None:
    operations = function.body.body
    if not operations:
        return
    victim = data.draw(st.sampled_from(operations))
    donor = data.draw(st.sampled_from(operations))
    stranger = Value(data.draw(st.sampled_from([I64, BOOL, pointer_type("f32")])))

    def damage(operation: Operation) -> Operation | None:
        if operation is not victim:
            return operation
        return data.draw(
            st.sampled_from(
                [
                    None,
                    Operation(donor.op, victim.operands, victim.results, victim.regions),
                    Operation(victim.op, victim.operands[1:], victim.results, victim.regions),
                    Operation(victim.op, victim.operands, victim.results[1:], victim.regions),
                    Operation(victim.op, victim.operands, victim.results, donor.regions),
                    Operation(victim.op, (*victim.operands, stranger), victim.results),
                    Operation(victim.op, victim.operands, donor.results, victim.regions),
                    Operation(Constant(1, I64.dtype), (), victim.results, victim.regions),
                ]
            )
        )

    damaged = _rebuild(function, damage)
    with contextlib.suppress(CheckError):
        verify(damaged)


def test_error_text_shows_the_operation_as_printed() -> None:
    source = """func f(%x: ptr<i64> {access=read}, %n: i64) {
      %0 = add %n, %n : i64
      store{shape=[], strides=[]} %x, %n, %0
    }"""
    with pytest.raises(CheckError) as caught:
        verify(parse(source))
    assert str(caught.value) == (
        "f: store{shape=[], strides=[]} %x, %n, %0\n"
        "  writes %x, declared read\n"
        "hint: declare read_write"
    )


def test_a_module_of_legal_functions_is_legal() -> None:
    inner = FunctionBuilder("inner")
    tile = inner.tile_param("t", TileType(I64.elem, (4,)))
    callee = inner.finish(tile + 1)
    b = FunctionBuilder("outer")
    p = b.pointer("p", "i64")
    (result,) = b.call(callee, b.load(p, 0, (4,)))
    b.store(p, 0, result)
    module = b.finish_module()
    verify(module)
    again = parse(to_text(module))
    assert isinstance(again, Module)
    verify(again)
