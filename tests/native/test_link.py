"""Linking: addresses, imports, lifetime, refusals."""

import ctypes
import gc

import pytest

from luban.core.errors import InternalError
from luban.native.compile import compile_object
from luban.native.link import link
from luban.native.target import host_target

UNARY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


def compiled(text: str) -> bytes:
    return compile_object(text, host_target())


def test_several_objects_call_one_another_and_an_import() -> None:
    inner = compiled("define i64 @inner(i64 %x) {\n  %y = mul i64 %x, 2\n  ret i64 %y\n}")
    outer = compiled(
        "declare i64 @inner(i64)\ndeclare i64 @plus_one(i64)\n"
        "define i64 @outer(i64 %x) {\n  %y = call i64 @inner(i64 %x)\n"
        "  %z = call i64 @plus_one(i64 %y)\n  ret i64 %z\n}"
    )
    plus_one = UNARY(lambda x: x + 1)
    address = ctypes.cast(plus_one, ctypes.c_void_p).value
    assert address is not None
    library = link([inner, outer], ["outer", "inner"], {"plus_one": address})
    assert UNARY(library.address("outer"))(20) == 41
    assert sorted(library.symbols) == ["inner", "outer"]


def test_the_same_name_in_two_libraries_does_not_clash() -> None:
    functions = [
        UNARY(link([compiled(f"define i64 @f(i64 %x) {{\n  ret i64 {n}\n}}")], ["f"]).address("f"))
        for n in (1, 2)
    ]
    gc.collect()  # nothing but the addresses is held: the code must stay
    assert [function(0) for function in functions] == [1, 2]


def test_constants_are_reached() -> None:
    text = (
        "@table = constant [3 x i64] [i64 7, i64 8, i64 9]\n"
        "define i64 @f(i64 %i) {\n  %p = getelementptr i64, ptr @table, i64 %i\n"
        "  %v = load i64, ptr %p\n  ret i64 %v\n}"
    )
    assert UNARY(link([compiled(text)], ["f"]).address("f"))(2) == 9


def test_symbol_not_asked_for_is_refused() -> None:
    library = link([compiled("define void @f() {\n  ret void\n}")], ["f"])
    with pytest.raises(InternalError, match="symbol 'g' is not in this library, which has f"):
        library.address("g")


def test_closed_library_gives_no_address() -> None:
    library = link([compiled("define void @f() {\n  ret void\n}")], ["f"])
    library.close()
    with pytest.raises(InternalError, match="which has none"):
        library.address("f")


def test_missing_symbol_is_refused() -> None:
    with pytest.raises(InternalError, match=r"could not be linked: .*nope"):
        link([compiled("define void @f() {\n  ret void\n}")], ["nope"])


def test_garbage_is_refused() -> None:
    with pytest.raises(InternalError, match="not recognized as a valid object file"):
        link([b"garbage"], ["f"])
