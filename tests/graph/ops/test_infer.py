"""Types that the primitives infer, and each of their refusals with its words."""

from typing import Any

import pytest

from luban.core.dims import symbol
from luban.core.dtypes import DTYPES
from luban.core.errors import DTypeError, LubanError, OptionError, ShapeError
from luban.core.types import SequenceType, Type, tensor
from luban.graph import build
from luban.graph.ops.coded import CodedDot, PanelCodedDot
from luban.graph.ops.contract import Convolution, DotGeneral
from luban.graph.ops.control import If, Loop, Scan
from luban.graph.ops.data import Constant, HostCall, Iota, Nonzero, RandomBits
from luban.graph.ops.elementwise import BINARY, COMPARE, UNARY, Bitcast, Cast, Select
from luban.graph.ops.fusion import Fusion, Once
from luban.graph.ops.packed import PackPanels, PanelConvolution, PanelDot
from luban.graph.ops.reduce import ArgReduce, Cumulative, Reduce, ReduceWindow, Sort, TopK
from luban.graph.ops.structure import (
    BroadcastInDim,
    Concatenate,
    DynamicReshape,
    DynamicSlice,
    DynamicUpdateSlice,
    Gather,
    Pad,
    Reshape,
    Reverse,
    Scatter,
    Slice,
    Transpose,
)
from luban.graph.ops.winograd import WinogradConvolution
from luban.ir.node import Graph, Op

N, M, K = symbol("n"), symbol("m"), symbol("k")
F32, I32 = DTYPES["f32"], DTYPES["i32"]
X = tensor("f32", "n", 3)
S = SequenceType(X)


def f(*shape: Any) -> Type:
    return tensor("f32", *shape)


def i64(*shape: Any) -> Type:
    return tensor("i64", *shape)


def conv(rank: int = 2, **options: Any) -> Convolution:
    ones, zeros = (1,) * rank, (0,) * rank
    fields: dict[str, Any] = {
        "strides": ones,
        "low": zeros,
        "high": zeros,
        "lhs_dilation": ones,
        "rhs_dilation": ones,
        "groups": 1,
        "dtype": F32,
    }
    return Convolution(**(fields | options))


def dot(*numbers: tuple[int, ...], element: str = "f32") -> DotGeneral:
    lhs_batch, rhs_batch, lhs_contract, rhs_contract = numbers
    return DotGeneral(lhs_batch, rhs_batch, lhs_contract, rhs_contract, DTYPES[element])


V = build.parameter("v", f("n"))
P = build.parameter("p", f("n", 3))
STEP = build.parameter("step", i64())
GO = build.parameter("go", tensor("bool"))
BRANCH = Graph("branch", (V,), (V,))
BODY = Graph("body", (STEP, GO, V), (GO, V, V))

TYPES: list[tuple[Op, tuple[Type, ...], str]] = [
    (BINARY["add"](), (X, X), "f32[n,3]"),
    (COMPARE["less"](), (X, X), "bool[n,3]"),
    (Select(), (tensor("bool", "n", 3), X, X), "f32[n,3]"),
    (Cast(I32), (X,), "i32[n,3]"),
    (Bitcast(I32), (X,), "i32[n,3]"),
    (BroadcastInDim((2, N, 3), (1, 2)), (f("n", 1),), "f32[2,n,3]"),
    (Reshape((3, N)), (X,), "f32[3,n]"),
    (DynamicReshape((K, 2)), (X, i64(2)), "f32[k,2]"),
    (Transpose((1, 0)), (X,), "f32[3,n]"),
    (Slice((0, 1), (N, 1), (1, 2)), (X,), "f32[n,1]"),
    (DynamicSlice((1, 2)), (X, i64(2)), "f32[1,2]"),
    (DynamicUpdateSlice(), (X, f(1, 1), i64(2)), "f32[n,3]"),
    (Pad((1, 0), (2, -1), (0, 1)), (X, f()), "f32[n+3,4]"),
    (Concatenate(0), (X, f("m", 3), f(2, 3)), "f32[m+n+2,3]"),
    (Reverse((0,)), (X,), "f32[n,3]"),
    (Gather((1,), (0,), (), (), (0,), (1, 3)), (X, i64("m", 1)), "f32[m,3]"),
    (Scatter("add", (1,), (0,), (), (), (0,)), (X, i64("m", 1), f("m", 3)), "f32[n,3]"),
    (Reduce("sum", (1,)), (X,), "f32[n]"),
    (ArgReduce("maximum", 0), (X,), "i64[3]"),
    (Cumulative("sum", 0), (X,), "f32[n,3]"),
    (
        ReduceWindow("sum", (1, 2), (1, 1), (0, 1), (0, 1), (1, 1)),
        (X,),
        "f32[n,4]",
    ),
    (
        ReduceWindow("sum", (3,), (2,), (1,), (1,), (2,)),
        (f("n"),),
        "f32[max(((n+1)//2)-1,0)]",
    ),
    (Sort(0), (X,), "f32[n,3]"),
    (Sort(0), (X, i64("n", 3)), "(f32[n,3], i64[n,3])"),
    (TopK(K, 1), (X, i64()), "(f32[n,k], i64[n,k])"),
    (dot((0,), (0,), (2,), (1,)), (f("b", 2, "k"), f("b", "k", 4)), "f32[b,2,4]"),
    (dot((), (), (0,), (0,), element="i32"), (tensor("u8", 4), tensor("i8", 4)), "i32[]"),
    (conv(), (f(1, 3, "h", 8), f(6, 3, 3, 3)), "f32[1,6,max(0,h-2),6]"),
    (conv(layout="channels_last"), (f(1, 9, 8, 3), f(3, 3, 3, 6)), "f32[1,7,6,6]"),
    (conv(lhs_dilation=(2, 2)), (f(1, 3, 4, 4), f(6, 3, 2, 2)), "f32[1,6,6,6]"),
    (PackPanels(16), (f(2, 8, "n"),), "f32[2,-((-n)//16),8,16]"),
    (PanelDot(0, 40, F32), (f("n", 64), f(3, 64, 16)), "f32[n,40]"),
    (PackPanels(16, 4), (tensor("i8", 2, 8, "n"),), "i8[2,-((-n)//16),2,16,4]"),
    (
        PanelDot(0, 40, I32, 4),
        (tensor("u8", "n", 64), tensor("i8", 3, 16, 16, 4)),
        "i32[n,40]",
    ),
    (
        PanelConvolution((3, 3), (1, 1), (1, 1), 40, I32, 4),
        (tensor("u8", 1, 9, 9, 8), tensor("i8", 3, 18, 16, 4)),
        "i32[1,7,7,40]",
    ),
    (
        WinogradConvolution(4, (1, 1), (1, 0), 40, F32),
        (f(1, 8, "w", 9), f(36, 3, 9, 16)),
        "f32[1,8,max(0,w-1),40]",
    ),
    (
        CodedDot(4, 32, F32),
        (f(2, "n", 50), tensor("u8", 40, 2, 16), f(40, 2)),
        "f32[2,n,40]",
    ),
    (
        CodedDot(8, 32, F32, True),
        (
            tensor("i8", "n", 64),
            tensor("u8", 40, 2, 32),
            tensor("f16", 40, 2),
            tensor("u8", 40, 2),
            f("n", 2),
        ),
        "f32[n,40]",
    ),
    (
        PanelCodedDot(4, 32, 40, F32, True),
        (
            tensor("i8", "n", 3, 64),
            f("n", 2),
            tensor("i32", "n", 3, 2),
            tensor("u8", 3, 8, 16, 4),
            f(3, 2, 16),
            tensor("u8", 3, 2, 16),
        ),
        "f32[n,40]",
    ),
    (If(BRANCH, BRANCH, (f("n"),)), (tensor("bool"), f("m")), "(f32[n])"),
    (Loop(BODY, 1, (f("n"), f("t", "n"))), (i64(), tensor("bool"), f("n")), "(f32[n], f32[t,n])"),
    (Iota(I32, (N, 2), 0), (), "i32[n,2]"),
    (RandomBits((N,)), (tensor("u64", 1),), "u32[n]"),
    (Nonzero(K), (tensor("bool", 2, 3),), "i64[2,k]"),
    (HostCall("f", (), (X,)), (S, S), "f32[n,3]"),
    (HostCall("f", (), (X, S)), (), "(f32[n,3], seq<f32[n,3]>)"),
    (Fusion("elementwise", BRANCH), (f("n"),), "f32[n]"),
    (Once(Graph("b", (), (build.constant([1.0]),))), (), "f64[1]"),
]


@pytest.mark.parametrize(("op", "operands", "expected"), TYPES)
def test_inferred_types(op: Op, operands: tuple[Type, ...], expected: str) -> None:
    assert str(op.infer(*operands)) == expected


ADD = BINARY["add"]()
REFUSALS: list[tuple[Op, tuple[Type, ...], type[LubanError], str]] = [
    # operands
    (ADD, (X,), ShapeError, r"given \(f32\[n,3\]\), expected 2 tensor operands"),
    (UNARY["exp"](), (S,), ShapeError, r"given \(seq<f32\[n,3\]>\), expected 1 tensor operand$"),
    (ADD, (X, f(3)), ShapeError, r"f32\[n,3\] and f32\[3\], expected one shape"),
    (ADD, (X, tensor("f16", "n", 3)), DTypeError, "and f16.*, expected one dtype"),
    (UNARY["exp"](), (i64(2),), DTypeError, r"operand is i64\[2\], expected a dtype of kind float"),
    (BINARY["shift_left"](), (X, X), DTypeError, "expected a dtype of kind int, uint"),
    (Select(), (X, X, X), DTypeError, r"predicate is f32\[n,3\], expected bool"),
    (
        Select(),
        (tensor("bool", 3), X, X),
        ShapeError,
        r"predicate is bool\[3\], expected the shape",
    ),
    (Cast(F32), (tensor("str", 2),), DTypeError, "a cast to f32 needs a host operator"),
    (Bitcast(F32), (i64(2),), DTypeError, r"i64\[2\], expected 32 bits to read as f32"),
    # structure
    (BroadcastInDim((2, 3), (1, 0)), (X,), ShapeError, "expected 2 increasing axes"),
    (BroadcastInDim((2, 3), (0, 5)), (X,), ShapeError, "axis 5 is outside the 2 axes"),
    (BroadcastInDim((N, 4), (0, 1)), (X,), ShapeError, r"to \[n, 4\]: axis 1 is 3, not 1"),
    (Reshape((4,)), (f(3),), ShapeError, r"f32\[3\] has 3 elements, \[4\] needs 4"),
    (Reshape((N + 1,)), (f("n"),), ShapeError, r"has n elements, \[n\+1\] needs n\+1"),
    (DynamicReshape((K,)), (X, i64(2)), DTypeError, r"operand is i64\[2\], expected i64\[1\]"),
    (Transpose((0, 0)), (X,), ShapeError, r"permutation \(0, 0\) does not fit f32\[n,3\]"),
    (Slice((0,), (1,), (1,)), (X,), ShapeError, "expected 2 starts, sizes and strides"),
    (Slice((0, 0), (N, 3), (1, 0)), (X,), ShapeError, "axis 1 has start 0, size 3, stride 0"),
    (Slice((0, 2), (N, 2), (1, 1)), (X,), ShapeError, "axis 1 reads element 3 of 3"),
    (DynamicSlice((1, 1)), (X, i64(3)), DTypeError, r"i64\[3\], expected a start of i64\[2\]"),
    (
        DynamicUpdateSlice(),
        (X, f(1), i64(2)),
        ShapeError,
        r"update is f32\[1\], expected f32 of rank 2",
    ),
    (DynamicUpdateSlice(), (X, X, i64(1)), DTypeError, r"expected a start of i64\[2\]"),
    (
        Pad((0, 0), (0, 0), (0, 0)),
        (X, i64()),
        DTypeError,
        r"padding value is i64\[\], expected f32\[\]",
    ),
    (Pad((0,), (0,), (0,)), (X, f()), ShapeError, "expected 2 low, high and interior amounts"),
    (Concatenate(2), (X, X), ShapeError, "axis 2 is outside the 2 axes of the operand"),
    (Concatenate(0), (X, i64("n", 3)), DTypeError, "expected one dtype"),
    (Concatenate(0), (X, f("n")), ShapeError, "expected one rank"),
    (Concatenate(0), (X, f("n", 4)), ShapeError, "axis 1 differs"),
    (Reverse((2,)), (X,), ShapeError, "axis 2 is outside"),
    (
        Gather((1,), (0,), (), (), (0,), (1, 3)),
        (X, f("m", 1)),
        DTypeError,
        "expected integer indices",
    ),
    (
        Gather((1,), (0,), (), (), (0,), (1, 3)),
        (X, i64("m", 2)),
        ShapeError,
        "expected a last axis of 1",
    ),
    (
        Gather((1,), (0,), (), (), (0,), (1,)),
        (X, i64("m", 1)),
        ShapeError,
        "slice sizes .* do not fit",
    ),
    (
        Gather((1, 2), (0,), (), (), (0,), (1, 3)),
        (X, i64("m", 1)),
        ShapeError,
        "2 offset axes for 1 kept",
    ),
    (
        Scatter("mean", (1,), (0,), (), (), (0,)),
        (X, i64("m", 1), X),
        ShapeError,
        "combine is 'mean', exp",
    ),
    (
        Scatter("add", (1,), (0,), (), (), (0,)),
        (X, f("m", 1), X),
        DTypeError,
        "expected integer indices",
    ),
    (
        Scatter("add", (1,), (0,), (), (), (0,)),
        (X, i64("m", 2), X),
        ShapeError,
        "expected a last axis of 1",
    ),
    (
        Scatter("add", (1,), (0,), (), (), (0,)),
        (X, i64("m", 1), i64("m", 3)),
        DTypeError,
        "updates are i64",
    ),
    (
        Scatter("add", (1,), (0,), (), (), (0,)),
        (X, i64("m", 1), f("m")),
        ShapeError,
        "expected rank 2",
    ),
    # reductions
    (Reduce("mean", (0,)), (X,), OptionError, "kind is 'mean', expected one of sum, product"),
    (Reduce("sum", (0, 0)), (X,), ShapeError, r"axes \(0, 0\) repeat"),
    (Reduce("sum", (2,)), (X,), ShapeError, "axis 2 is outside"),
    (Reduce("and", (0,)), (X,), DTypeError, "expected bool or integers"),
    (Reduce("sum", (0,)), (tensor("bool", 3),), DTypeError, "expected numbers"),
    (ArgReduce("sum", 0), (X,), OptionError, "expected one of maximum, minimum"),
    (ArgReduce("maximum", 0), (tensor("str", 3),), DTypeError, "expected numbers"),
    (Cumulative("and", 0), (X,), OptionError, "kind is 'and'"),
    (Cumulative("sum", 0), (tensor("bool", 3),), DTypeError, "expected numbers"),
    (
        ReduceWindow("sum", (1,), (1,), (0,), (0,), (1,)),
        (X,),
        ShapeError,
        "expected 2 entries in each",
    ),
    (Sort(2), (X,), ShapeError, "axis 2 is outside"),
    (Sort(0), (X, f(3)), ShapeError, "expected one shape"),
    (TopK(2, 5), (X,), ShapeError, "axis 5 is outside"),
    # contractions
    (
        dot((), (), (1,), (0,)),
        (X, i64(3, 4)),
        DTypeError,
        "expected one float dtype, or integers only",
    ),
    (
        dot((), (), (1,), (0,)),
        (X, f(4, 4)),
        ShapeError,
        "axis 1 of one must equal axis 0 of the other",
    ),
    (dot((), (), (2,), (0,)), (X, f(4, 4)), ShapeError, "axis 2 is outside"),
    (conv(), (X, X), ShapeError, "expected rank 4 for 2 spatial axes"),
    (conv(1), (f(1, 3, 8), f(6, 2, 3)), ShapeError, "has 3 channels, expected 2: 1 groups of 2"),
    (
        conv(1, groups=2),
        (f(1, 4, 8), f(5, 2, 3)),
        ShapeError,
        "5 outputs, not a multiple of 2 groups",
    ),
    (conv(1), (f(1, 3, 8), f(6, 3, "k")), ShapeError, "has a symbolic window, expected constants"),
    (
        PackPanels(0),
        (X,),
        ShapeError,
        "with panels of 0 columns, expected at least 2 axes and 1 column",
    ),
    (
        PanelDot(0, 40, F32),
        (f("n", 64), f(2, 64, 16)),
        ShapeError,
        "with 0 batch axes and panels for 40",
    ),
    (
        PackPanels(16, 4),
        (f(6, 3),),
        ShapeError,
        r"operand is f32\[6,3\] with groups of 4 rows, expected a multiple of 4 rows",
    ),
    (
        PanelDot(0, 40, I32, 4),
        (tensor("u8", "n", 64), tensor("i8", 3, 64, 16)),
        ShapeError,
        "with 0 batch axes and panels for 40",
    ),
    (
        PanelConvolution((3, 3), (1, 1), (1, 1), 40, F32),
        (f(1, 9, 9, 8), f(3, 70, 16)),
        ShapeError,
        r"with a window of \[3, 3\] and panels for 40 columns",
    ),
    # control flow
    (If(BRANCH, BRANCH, ()), (), ShapeError, "given no operand, expected a predicate"),
    (
        If(BRANCH, BRANCH, (f("n"),)),
        (f(), f("n")),
        ShapeError,
        r"predicate is f32\[\], expected bool\[\]",
    ),
    (
        If(BRANCH, BRANCH, (f("n"),)),
        (tensor("bool"), X),
        ShapeError,
        r"operands of branch: given \(f32\[n,3",
    ),
    (
        If(BRANCH, BRANCH, ()),
        (tensor("bool"), f("n")),
        ShapeError,
        "branch has 1 results, expected 0",
    ),
    (Loop(BODY, 1, ()), (i64(),), ShapeError, "given 1 operands, expected a limit and a condition"),
    (Loop(BODY, 1, ()), (f(), tensor("bool")), ShapeError, r"operand is f32\[\], expected i64\[\]"),
    (Loop(BODY, 1, ()), (i64(), i64()), ShapeError, r"operand is i64\[\], expected bool\[\]"),
    (
        Loop(BODY, 1, ()),
        (i64(), tensor("bool")),
        ShapeError,
        "body takes 1 carried and captured values, g",
    ),
    (
        Loop(BODY, 1, ()),
        (i64(), tensor("bool"), f("n")),
        ShapeError,
        "body has 3 results, expected 1",
    ),
    (
        Scan(Graph("step", (V,), (V,)), 0, (1,), (False,), (0,), (False,)),
        (f("n"),),
        ShapeError,
        r"scanned operand is f32\[n\], it has no axis 1",
    ),
    (
        Scan(Graph("step", (V, V), (V,)), 0, (0, 0), (False,) * 2, (0,), (False,)),
        (f(2, "n"), f(3, "n")),
        ShapeError,
        "scanned operands have lengths 2 and 3, expected one length",
    ),
    (
        Scan(Graph("step", (V,), (V,)), 1, (), (), (), ()),
        (f("n"),),
        ShapeError,
        "scan has no scanned operand, expected at least one",
    ),
    (
        Scan(Graph("step", (V, V), (P,)), 1, (0,), (False,), (), ()),
        (f("n"), f(2, "n")),
        ShapeError,
        r"carried results: given \(f32\[n,3\]\), expected \(f32\[n\]\)",
    ),
    # data
    (Constant(build.constant([1]).op.value), (X,), ShapeError, "expected 0 tensor operands"),  # type: ignore[attr-defined]
    (Iota(DTYPES["bool"], (3,), 0), (), DTypeError, "operand is bool, expected a numeric dtype"),
    (Iota(I32, (3,), 1), (), ShapeError, "axis 1 is outside"),
    (RandomBits((3,)), (i64(1),), DTypeError, r"i64\[1\], expected a key of type u64\[1\]"),
    (Nonzero(K), (X,), DTypeError, r"operand is f32\[n,3\], expected bool"),
    (
        Fusion("elementwise", BRANCH),
        (f("m"),),
        ShapeError,
        r"given \(f32\[m\]\), expected \(f32\[n\]\)",
    ),
    (Once(BRANCH), (), ShapeError, "given 0 operands and a body of 1 parameters and 1 results"),
]


@pytest.mark.parametrize(("op", "operands", "error", "message"), REFUSALS)
def test_refusals_say_what_was_given_and_expected(
    op: Op, operands: tuple[Type, ...], error: type[LubanError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        op.infer(*operands)
    assert type(caught.value) is error


def test_sizes_that_may_be_equal_are_left_to_the_run() -> None:
    assert str(Concatenate(0).infer(X, f("n", "k"))) == "f32[2*n,3]"
    assert str(dot((), (), (1,), (0,)).infer(X, f("k", 4))) == "f32[n,4]"
    assert str(Reshape((K,)).infer(X)) == "f32[k]"
