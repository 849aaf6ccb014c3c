"""Types of values, places, errors."""

import numpy as np
import pytest

from luban.core import errors
from luban.core.dims import symbol
from luban.core.errors import InternalError, LubanError, ShapeError, UnsupportedError
from luban.core.loc import Loc
from luban.core.types import (
    OptionalType,
    SequenceType,
    TupleType,
    tensor,
    type_of_array,
)


def test_types_print_as_they_are_written() -> None:
    f = tensor("f32", "batch", 3, "2*h+1")
    assert str(f) == "f32[batch,3,2*h+1]"
    assert str(tensor("i64")) == "i64[]"
    assert str(TupleType((f, SequenceType(OptionalType(tensor("str")))))) == (
        "(f32[batch,3,2*h+1], seq<optional<str[]>>)"
    )


def test_sizes_of_a_type() -> None:
    f = tensor("bf16", "n", 3)
    assert f.rank == 2
    assert str(f.num_elements) == "3*n"
    assert str(f.size_bytes) == "6*n"
    assert not f.is_static
    assert f.resolve({"n": 4}) == (4, 3)
    assert tensor("f32", 2, 3).static_shape == (2, 3)
    assert f.with_dtype("i8").with_shape((1,)) == tensor("i8", 1)


def test_types_are_equal_by_value() -> None:
    assert tensor("f32", symbol("n", 1, 4)) == tensor("f32", "n")
    assert tensor("f32", "n") != tensor("f32", "m")
    assert tensor("f32", "n") != tensor("f16", "n")


def test_sizes_that_are_not_there_are_refused() -> None:
    with pytest.raises(InternalError, match=r"f32\[n\] is not static"):
        _ = tensor("f32", "n").static_shape
    with pytest.raises(ShapeError, match=r"f32\[n-3\] has a negative size for {'n': 1}"):
        tensor("f32", "n-3").resolve({"n": 1})


def test_type_of_array() -> None:
    assert type_of_array(np.zeros((2, 0), np.int8)) == tensor("i8", 2, 0)


def test_places_print() -> None:
    assert str(Loc("model.onnx")) == "model.onnx"
    assert str(Loc("kernel.py", "add", 7)) == "kernel.py:7: add"


def test_errors_print_message_hint_and_place() -> None:
    error = ShapeError("x is f32[3], expected f32[4]", hint="pad x")
    assert str(error.located(Loc("m.onnx", "Add_1"))) == (
        "x is f32[3], expected f32[4]\nhint: pad x\nat m.onnx: Add_1"
    )
    assert error.located(Loc("other")).loc == Loc("m.onnx", "Add_1")


def test_unsupported_lists_every_case() -> None:
    error = UnsupportedError("2 operators are not supported", items=["a: Foo", "b: Bar"])
    assert str(error) == "2 operators are not supported\n  a: Foo\n  b: Bar"
    assert error.items == ("a: Foo", "b: Bar")


def test_our_own_bugs_are_not_user_errors() -> None:
    error = InternalError("rule x changed a type", loc=Loc("m.onnx", "Add_1"))
    assert not isinstance(error, LubanError)
    assert str(error) == (
        "internal error: rule x changed a type\nat m.onnx: Add_1\n"
        "hint: please report this with the model or a repro"
    )


def test_the_exception_tree_is_the_documented_one() -> None:
    assert errors.__doc__ is not None
    for name in errors.__all__:
        if name not in ("LubanError", "LubanWarning", "InternalError"):
            assert issubclass(getattr(errors, name), LubanError)
        if name != "LubanWarning":
            assert f" {name} " in errors.__doc__
