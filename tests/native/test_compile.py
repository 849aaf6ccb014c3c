"""Compiling: every target, the same bytes on every path, LLVM's complaints, spills."""

import ctypes
import itertools
import os
import signal
import warnings

import pytest

from luban.core.errors import InternalError, LubanWarning
from luban.native import compile as compiling
from luban.native.compile import assembly, compile_many, compile_object, count_spills
from luban.native.link import link
from luban.native.target import TARGET_NAMES, Target, host_target, named_target

ADD = "define i64 @add(i64 %x) {\n  %y = add i64 %x, NUMBER\n  ret i64 %y\n}\n"


def add_module(number: int) -> str:
    return ADD.replace("NUMBER", str(number))


def sum_of_vectors(target: Target, count: int) -> str:
    """Load `count` vectors, then use each of them twice in opposite orders: all live at once."""
    lanes = target.lanes(32)
    vector = f"<{lanes} x float>"
    lines = [f"define void @f(ptr %p) {target.function_attributes} {{"]
    for i in range(count):
        lines.append(f"  %q{i} = getelementptr {vector}, ptr %p, i64 {i}")
        lines.append(f"  %v{i} = load volatile {vector}, ptr %q{i}")
    stores = [f"  store volatile {vector} %v{i}, ptr %q{i}" for i in reversed(range(count))]
    return "\n".join([*lines, *stores, "  ret void", "}"])


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_every_target_compiles(name: str) -> None:
    assert len(compile_object(sum_of_vectors(named_target(name), 4), named_target(name))) > 100


@pytest.mark.parametrize(
    ("name", "register"), [("avx512", "%zmm"), ("avx2", "%ymm"), ("neon", "q0")]
)
def test_vectors_keep_their_width(name: str, register: str) -> None:
    target = named_target(name)
    assert register in assembly(sum_of_vectors(target, 2), target)


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_no_spill_while_registers_last(name: str) -> None:
    target = named_target(name)
    fits = sum_of_vectors(target, target.num_vector_registers - 8)
    assert count_spills(assembly(fits, target)) == 0


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_spills_are_counted_when_registers_run_out(name: str) -> None:
    target = named_target(name)
    too_many = sum_of_vectors(target, target.num_vector_registers + 4)
    assert count_spills(assembly(too_many, target)) >= 4  # neon stores them in pairs


def test_callee_saved_registers_are_no_spills() -> None:
    assert count_spills("\tstp\td9, d8, [sp, #-32]!   // 16-byte Folded Spill") == 0
    assert count_spills("\tvfmadd231ps\t64(%rsp), %zmm1, %zmm2 # 64-byte Folded Reload") == 1
    assert count_spills("\tstr\tq1, [sp, #16]   // 16-byte Folded Spill") == 1


def test_many_equals_one_by_one() -> None:
    texts = [add_module(number) for number in range(6)]
    one_by_one = [compile_object(text, host_target()) for text in texts]
    assert compile_many(texts, host_target(), num_threads=3) == one_by_one
    assert compile_many(texts, host_target(), num_threads=1) == one_by_one
    assert compile_many([], host_target()) == []


def test_code_for_avx2_runs_here_if_the_machine_can() -> None:
    target = named_target("avx2") if named_target("avx2").runs_here else host_target()
    library = link([compile_object(add_module(3), target)], ["add"])
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.address("add"))
    assert function(39) == 42


def test_text_that_does_not_parse_is_our_bug_and_shows_the_line() -> None:
    with pytest.raises(InternalError) as error:
        compile_object(add_module(1).replace("add i64", "ad i64"), host_target())
    assert "LLVM could not parse the generated code" in str(error.value)
    assert "line 2: %y = ad i64 %x, 1" in str(error.value)


def test_text_that_does_not_verify_is_our_bug() -> None:
    use_before_definition = (
        "define i64 @f() {\n  %a = add i64 %b, 1\n  %b = add i64 1, 1\n  ret i64 %a\n}"
    )
    with pytest.raises(InternalError, match=r"could not verify .* does not dominate all uses"):
        compile_object(use_before_definition, host_target())


def test_one_bad_module_fails_the_whole_batch() -> None:
    texts = [add_module(1), "nonsense", add_module(2)]
    with pytest.raises(InternalError, match="could not parse"):
        compile_many(texts, host_target(), num_threads=2)


def test_ctrl_c_stops_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [sum_of_vectors(host_target(), 100)] * 500
    begun = itertools.count(1)

    def compile_and_interrupt(text: str, target: Target) -> bytes:
        if next(begun) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return compile_object(text, target)

    monkeypatch.setattr(compiling, "compile_object", compile_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        compile_many(texts, host_target(), num_threads=2)
    assert next(begun) < 500  # the rest was dropped
    assert compile_object(add_module(1), host_target())


def test_without_private_attributes_it_compiles_behind_the_lock_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(self: object) -> None:
        raise AttributeError("_name")

    expected = compile_object(add_module(7), host_target())
    monkeypatch.setattr(compiling._UnlockedLlvm, "__init__", missing)
    compiling._llvm.cache_clear()
    try:
        with pytest.warns(LubanWarning, match=r"compile on one thread only.*lacks _name"):
            assert compile_object(add_module(7), host_target()) == expected
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert compile_object(add_module(7), host_target()) == expected
        with pytest.raises(InternalError, match="could not parse"):
            compile_object("nonsense", host_target())
        assert "add" in assembly(add_module(7), host_target())
    finally:
        compiling._llvm.cache_clear()
