"""Addresses inside loops are frozen, so that LLVM does not search for ways to split them."""

from luban.codegen import emit
from luban.native.target import named_target
from luban.tile import Function, FunctionBuilder


def copy_rows(*, noalias: bool = False, stride: int | None = 64) -> Function:
    """Copies 16 columns of a matrix, four rows at a time where the stride is a parameter."""
    b = FunctionBuilder("copy_rows")
    x = b.pointer("x", "f32", access="read", noalias="x" if noalias else None)
    y = b.pointer("y", "f32", access="write", noalias="y" if noalias else None)
    n = b.scalar("n")
    step = b.scalar("step")
    with b.for_(0, n, 1) as loop:
        start = loop.index * 16
        if stride is None:
            block = b.load(x, start, (4, 16), [step, 1])
            b.store(y, start, block, [step, 1])
        else:
            b.store(y, start, b.load(x, start, (16,)))
        loop.yield_()
    return b.finish()


def frozen(function: Function, target: str = "avx512") -> list[str]:
    text = emit(function, named_target(target))
    return [line.split("= ")[1].rsplit(" ", 1)[0] for line in text.splitlines() if "freeze" in line]


def test_an_address_in_a_loop_is_frozen() -> None:
    assert frozen(copy_rows()) == ["freeze ptr", "freeze ptr"]


def test_short_displacements_need_the_search() -> None:
    assert frozen(copy_rows(), "neon") == []


def test_an_address_outside_a_loop_is_not() -> None:
    b = FunctionBuilder("copy")
    x, y = b.pointer("x", "f32"), b.pointer("y", "f32")
    at = b.program_id() * 16
    b.store(y, at, b.load(x, at, (16,)))
    assert frozen(b.finish()) == []


def test_memory_of_one_pointer_alone_stays_known() -> None:
    """A frozen pointer would hide that `noalias` memory is not another one's."""
    assert frozen(copy_rows(noalias=True)) == ["freeze i64"]


def test_rows_with_own_starts_share_the_index() -> None:
    """One register for the index and one for each row, not a moving pointer for each row."""
    found = frozen(copy_rows(stride=None))
    assert found.count("freeze i64") == 1
    assert found.count("freeze ptr") == 2 * 4  # three starts, and row 0 where it moves
