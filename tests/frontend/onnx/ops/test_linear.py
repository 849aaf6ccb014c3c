"""Matrix products, Einstein sums, determinants."""

from __future__ import annotations

import numpy as np
import pytest

from luban.core.errors import LubanError
from luban.frontend.onnx.einsum import parse_equation
from tests.frontend.onnx.ops.comparison import Array, compare, run

rng = np.random.default_rng(12)


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


EQUATIONS = [
    ("iij->i", [(2, 2, 4)]),
    ("iij->ij", [(2, 2, 4)]),
    ("iij,j->ij", [(2, 2, 4), (4,)]),
    ("ii", [(3, 3)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("...ij,jk", [(2, 3, 4), (4, 5)]),
    ("ij,ij->", [(3, 4), (3, 4)]),
    ("i,j->ij", [(3,), (4,)]),
    ("ab,bc,cd->da", [(2, 3), (3, 4), (4, 5)]),
    ("...ij->...ji", [(2, 1, 3, 4)]),
    ("b...,b...->b...", [(2, 3, 4), (2, 3, 1)]),
    ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("aB,Bc", [(2, 3), (3, 4)]),
    ("i j , j k -> k i", [(2, 3), (3, 4)]),
    ("ij,jk,kl,lm", [(2, 3), (3, 4), (4, 5), (5, 2)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    operands = [normal(*shape) for shape in shapes]
    (result,) = run("Einsum", operands, equation=equation)
    wanted = np.einsum(equation.replace(" ", ""), *(x.astype(np.float64) for x in operands))
    assert result.shape == wanted.shape
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def test_repeated_labels_take_the_diagonal() -> None:
    x = np.arange(16, dtype=np.float32).reshape(2, 2, 4)
    np.testing.assert_array_equal(run("Einsum", [x], equation="iij->i")[0], [6, 54])
    weighted = run("Einsum", [x, np.arange(4, dtype=np.float32)], equation="iij,j->ij")[0]
    np.testing.assert_array_equal(weighted, [[0, 1, 4, 9], [0, 13, 28, 45]])


def test_ellipses_of_different_ranks_broadcast() -> None:
    x = normal(2, 3)
    (result,) = run("Einsum", [np.float32(2), x], equation="...,...->...")
    np.testing.assert_allclose(result, 2 * x)


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        ("ij,jk", [(2, 3)], "has 2 terms, given 1 operands"),
        ("ijk", [(2, 3)], "the term 'ijk' does not fit 2 axes"),
        ("i", [(2, 3)], "the term 'i' does not fit 2 axes"),
        ("i1", [(2, 3)], "the term 'i1' cannot be read"),
        ("ij,jk", [(2, 3), (4, 5)], "label j: sizes 3 and 4 do not broadcast"),
        ("ij->ik", [(2, 3)], r"\['k'\] stands in no operand"),
    ],
)
def test_equations_that_do_not_fit(
    equation: str, shapes: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(LubanError, match=message):
        run("Einsum", [normal(*shape) for shape in shapes], equation=equation)


def test_the_implicit_result_is_sorted() -> None:
    assert parse_equation("ba,bC", [2, 2])[1] == ("C", "a")


def test_matmul() -> None:
    compare("MatMul", [normal(2, 1, 3, 4), normal(5, 4, 2)])
    compare("MatMul", [normal(4), normal(4, 2)])
    compare("MatMul", [normal(3, 4), normal(4)])
    x, y = rng.integers(-99, 99, (3, 4)), rng.integers(-99, 99, (4, 2))
    compare("MatMul", [x, y])


@pytest.mark.parametrize("transposes", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_gemm(transposes: tuple[int, int]) -> None:
    a, b = normal(4, 3), normal(3, 5)
    a, b = (a.T.copy() if transposes[0] else a), (b.T.copy() if transposes[1] else b)
    options = {"transA": transposes[0], "transB": transposes[1], "alpha": 0.5, "beta": 2.0}
    compare("Gemm", [a, b, normal(5)], **options)
    compare("Gemm", [a, b], **options)


def test_gemm_before_opset_7() -> None:
    a, b, c = normal(4, 3), normal(3, 5), normal(5)
    (result,) = run("Gemm", [a, b, c], opset=6, broadcast=1)
    np.testing.assert_allclose(result, a @ b + c, rtol=1e-5, atol=1e-6)


def test_determinant() -> None:
    compare("Det", [normal(2, 3, 3)])
    assert run("Det", [np.zeros((2, 2), np.float32)])[0] == 0
