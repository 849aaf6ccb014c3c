"""Random graph programs for hypothesis: small, valid, over most aspects of the IR."""

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from luban.core.dims import symbol
from luban.core.dtypes import DTYPES
from luban.core.types import TensorType
from luban.graph import build
from luban.graph.meaning.context import Array
from luban.graph.ops.control import If
from luban.graph.ops.elementwise import BINARY, UNARY
from luban.graph.ops.reduce import Cumulative, ReduceWindow, Sort
from luban.graph.ops.structure import Pad, Scatter
from luban.ir.node import Graph, Node, node, results_of

__all__ = ["inputs_for", "programs"]

_N = symbol("n", 1, 8)
_FLOATS = ("f32", "f64", "f16", "bf16")
_SMOOTH = [UNARY[name]() for name in ("negative", "abs", "sign", "tanh", "floor", "logistic")]
_PLAIN = [BINARY[name]() for name in ("add", "subtract", "maximum", "minimum", "multiply")]


@st.composite
def programs(draw: st.DrawFn) -> Graph:
    """A graph over f32[n,3] and i32[3] parameters, and one of another float dtype."""
    element = draw(st.sampled_from(_FLOATS))
    values = [
        build.parameter("x", TensorType(DTYPES["f32"], (_N, 3))),
        build.parameter("y", TensorType(DTYPES[element], (3,))),
        build.parameter("index:0", TensorType(DTYPES["i32"], (3,))),
    ]
    parameters = tuple(values)
    for _ in range(draw(st.integers(1, 8))):
        step = draw(st.sampled_from(_STEPS))
        made = step(draw, draw(st.sampled_from(values)), draw(st.sampled_from(values)))
        values.extend(v for v in made if isinstance(v.type, TensorType))
    results = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True))
    names = tuple(f"out/{i}" for i in range(len(results))) if draw(st.booleans()) else ()
    return Graph("program", parameters, tuple(results), names)


def _unary(draw: st.DrawFn, x: Node, _: Node) -> list[Node]:
    return [node(draw(st.sampled_from(_SMOOTH)), _float(x))]


def _binary(draw: st.DrawFn, x: Node, y: Node) -> list[Node]:
    other = build.cast(y, x.tensor.dtype) if x.tensor.dtype.is_numeric else x
    pair = (x, other) if _fits(x, other) else (x, x)
    pair = tuple(v if v.tensor.dtype.is_numeric else build.cast(v, "f32") for v in pair)  # type: ignore[assignment]
    return [node(draw(st.sampled_from(_PLAIN)), *build.broadcast_together(*pair))]


def _fits(x: Node, y: Node) -> bool:
    sizes = zip(reversed(x.tensor.shape), reversed(y.tensor.shape), strict=False)
    return all(a == b or 1 in (a, b) for a, b in sizes)


def _float(x: Node) -> Node:
    return x if x.tensor.dtype.is_float else build.cast(x, "f32")


def _scale(draw: st.DrawFn, x: Node, _: Node) -> list[Node]:
    value = draw(st.sampled_from([0.0, -0.0, 1.0, -2.5, float("inf"), float("nan")]))
    return [build.multiply(_float(x), value)]


def _cast(draw: st.DrawFn, x: Node, _: Node) -> list[Node]:
    element = draw(st.sampled_from([*_FLOATS, "i8", "u8", "i4", "i64", "bool", "f8e4m3fn"]))
    return [build.cast(x, element, saturate=draw(st.booleans()))]


def _compare(_: st.DrawFn, x: Node, __: Node) -> list[Node]:
    return [build.select(build.less(_float(x), 0.5), 1.0, _float(x))]


def _view(draw: st.DrawFn, x: Node, _: Node) -> list[Node]:
    rank = x.tensor.rank
    return [
        build.transpose(x, draw(st.permutations(range(rank)))),
        build.expand_dims(x, [0]) if rank < 3 else x,
    ]


def _reduction(draw: st.DrawFn, x: Node, _: Node) -> list[Node]:
    rank = x.tensor.rank
    if not rank or not x.tensor.dtype.is_numeric:
        return []
    axis = draw(st.integers(0, rank - 1))
    kind = draw(st.sampled_from(["sum", "maximum", "minimum"]))
    return [build.reduce(kind, x, [axis]), node(Cumulative(kind, axis, True), x)]


def _sorting(draw: st.DrawFn, x: Node, _: Node) -> list[Node]:
    if not x.tensor.rank or not x.tensor.dtype.is_numeric:
        return []
    return list(results_of(node(Sort(0, draw(st.booleans())), x, x)))


def _sizes(_: st.DrawFn, x: Node, __: Node) -> list[Node]:
    return [build.shape_vector(x.tensor.shape), build.dimension(_N * 2 + 1)]


def _branch(draw: st.DrawFn, x: Node, _: Node) -> list[Node]:
    inner = build.parameter("value", x.type)
    then = Graph("then", (inner,), (inner,))
    otherwise = Graph("otherwise", (inner,), (build.cast(_float(inner), x.tensor.dtype),))
    predicate = build.constant(draw(st.booleans()))
    return list(results_of(node(If(then, otherwise, (x.type,)), predicate, x)))


def _integers(draw: st.DrawFn, x: Node, y: Node) -> list[Node]:
    element = draw(st.sampled_from(["i8", "u8", "i32", "u16", "i64"]))
    a, b = build.cast(x, element), build.cast(y, element)
    pair = build.broadcast_together(a, b) if _fits(a, b) else (a, a)
    name = draw(st.sampled_from(["divide", "remainder", "floor_mod", "shift_left", "shift_right"]))
    return [build.binary(name, *pair), build.bitwise_xor(*pair), build.bitwise_not(a)]


def _product(draw: st.DrawFn, x: Node, _: Node) -> list[Node]:
    rank = x.tensor.rank
    if not rank or not x.tensor.dtype.is_numeric:
        return []
    axis = draw(st.integers(0, rank - 1))
    return [build.dot_general(x, x, ([axis], [axis]))] if rank < 3 else []


def _padding(draw: st.DrawFn, x: Node, _: Node) -> list[Node]:
    rank = x.tensor.rank
    if not x.tensor.dtype.is_numeric or x.tensor.dtype.bits < 16:
        return []
    low, high, interior = (
        tuple(draw(st.integers(0, most)) for _ in range(rank)) for most in (2, 2, 1)
    )
    return [node(Pad(low, high, interior), x, build.constant(1, x.tensor.dtype))]


def _pieces(draw: st.DrawFn, x: Node, _: Node) -> list[Node]:
    if not x.tensor.rank:
        return []
    axis = draw(st.integers(0, x.tensor.rank - 1))
    both = build.concatenate([x, build.reverse(x, [axis]), x], axis)
    return [both, build.slice_axis(both, axis, 1, x.tensor.shape[axis], draw(st.integers(1, 3)))]


def _places(draw: st.DrawFn, x: Node, _: Node) -> list[Node]:
    if not x.tensor.rank:
        return []
    axis = draw(st.integers(0, x.tensor.rank - 1))
    indices = draw(st.lists(st.integers(-1, 3), min_size=1, max_size=3))
    taken = build.take(x, build.constant(indices), axis)
    if axis or not x.tensor.dtype.is_numeric:
        return [taken]
    combine = draw(st.sampled_from(["replace", "maximum"]))
    window = tuple(range(1, x.tensor.rank))
    op = Scatter(combine, window, (0,), (), (), (0,))
    return [taken, node(op, x, build.constant([[i] for i in indices]), taken)]


def _windows(draw: st.DrawFn, x: Node, _: Node) -> list[Node]:
    rank = x.tensor.rank
    if not rank or not x.tensor.dtype.is_numeric:
        return []
    window, strides = (tuple(draw(st.integers(1, 2)) for _ in range(rank)) for _ in range(2))
    kind = draw(st.sampled_from(["maximum", "minimum"]))
    ones = (1,) * rank
    return [node(ReduceWindow(kind, window, strides, ones, ones, ones), x)]


_STEPS: list[Callable[[st.DrawFn, Node, Node], list[Node]]] = [
    _unary,
    _binary,
    _scale,
    _cast,
    _compare,
    _view,
    _reduction,
    _sorting,
    _sizes,
    _branch,
    _integers,
    _product,
    _padding,
    _pieces,
    _places,
    _windows,
]


def inputs_for(graph: Graph, n: int = 2) -> list[Array]:
    """Inputs with n rows, among them NaN, -0.0 and large values."""
    generator = np.random.default_rng(n)
    found: list[Array] = []
    for p in graph.parameters:
        shape = p.tensor.resolve({"n": n})
        if p.tensor.dtype.is_integer:
            found.append(generator.integers(-9, 9, shape).astype(p.tensor.dtype.numpy))
        else:
            special = generator.choice([np.nan, -0.0, 1e9, -0.25, 3.5, 0.1], shape)
            with np.errstate(over="ignore"):
                found.append(special.astype(p.tensor.dtype.numpy))
    return found
