"""Small graphs that many rooms test with, each with the sizes to try and its tolerance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from luban.core.types import tensor
from luban.graph import build as g
from luban.graph.ops.contract import Convolution
from luban.graph.ops.reduce import ReduceWindow
from luban.graph.ops.structure import Pad, Scatter
from luban.ir.node import Graph, Node, node

__all__ = ["PROGRAMS", "Program", "inputs_for"]


@dataclass(frozen=True)
class Program:
    """A graph builder with the sizes to try and the error allowed, relative to 1 + |expected|."""

    name: str
    build: Callable[[], tuple[list[Node], list[Node]]]
    sizes: tuple[Mapping[str, int], ...] = ({},)
    tolerance: float = 2e-6
    num_kernels: int | None = field(default=1)

    def graph(self) -> Graph:
        """The graph, built anew."""
        parameters, results = self.build()
        return Graph(self.name, tuple(parameters), tuple(results))

    def __str__(self) -> str:
        return self.name


def inputs_for(
    graph: Graph, sizes: Mapping[str, int], seed: int = 0
) -> list[npt.NDArray[np.generic]]:
    """Seeded inputs: normal floats, small non-negative integers, random bools."""
    random = np.random.default_rng(seed)
    arrays: list[npt.NDArray[np.generic]] = []
    for parameter in graph.parameters:
        shape, dtype = parameter.tensor.resolve(sizes), parameter.tensor.dtype
        drawn = random.standard_normal(shape) if dtype.is_float else random.integers(0, 4, shape)
        arrays.append(np.asarray(drawn).astype(dtype.numpy))
    return arrays


def p(label: str, *shape: int | str, dtype: str = "f32") -> Node:
    """A parameter."""
    return g.parameter(label, tensor(dtype, *shape))


def normalised(x: Node, axis: int) -> Node:
    """(x - mean) / sqrt(variance + 1e-5) along an axis."""
    centred = g.subtract(x, g.mean(x, [axis], keep_axes=True))
    variance = g.mean(g.multiply(centred, centred), [axis], keep_axes=True)
    return g.multiply(centred, g.rsqrt(g.add(variance, 1e-5)))


X = p("x", "n", 37)
Y = p("y", "n", 37)
W = p("w", 37)
IMAGE = p("image", "n", 6, "h", "w")
IMAGE_SIZES = ({"n": 2, "h": 7, "w": 9}, {"n": 1, "h": 16, "w": 3}, {"n": 0, "h": 4, "w": 4})
SCATTER_SIZES = ({"n": 4, "m": 9}, {"n": 2, "m": 1}, {"n": 5, "m": 0})
ROWS = ({"n": 5}, {"n": 1}, {"n": 0}, {"n": 600})


def _residual() -> tuple[list[Node], list[Node]]:
    total = g.add(X, Y)
    return [X, Y, W], [total, g.add(total, g.multiply(normalised(total, 1), W))]


def _matmul(activation: Callable[[Node], Node]) -> Callable[[], tuple[list[Node], list[Node]]]:
    def build() -> tuple[list[Node], list[Node]]:
        a, b, bias = p("a", "b", 12, "c"), p("b", "c", 20), p("bias", 20)
        return [a, b, bias], [activation(g.add(g.matmul(a, b), bias))]

    return build


def _silu(x: Node) -> Node:
    return g.multiply(x, g.logistic(x))


def _convolution(**options: tuple[int, ...]) -> Callable[[], tuple[list[Node], list[Node]]]:
    def build() -> tuple[list[Node], list[Node]]:
        filters, bias = p("filters", 8, 6, 3, 3), p("bias", 8)
        strides = options.get("strides", (1, 1))
        out = g.convolution(
            IMAGE, filters, strides, (1, 1), (1, 1), rhs_dilation=options.get("dilation")
        )
        return [IMAGE, filters, bias], [g.maximum(g.add(out, g.reshape(bias, (8, 1, 1))), 0.0)]

    return build


def _depthwise() -> tuple[list[Node], list[Node]]:
    filters = p("filters", 6, 1, 3, 3)
    return [IMAGE, filters], [g.convolution(IMAGE, filters, (1, 1), (1, 1), (1, 1), groups=6)]


def _grouped() -> tuple[list[Node], list[Node]]:
    filters = p("filters", 4, 3, 3, 3)
    return [IMAGE, filters], [g.convolution(IMAGE, filters, (2, 1), (1, 0), (0, 2), groups=2)]


def _transposed() -> tuple[list[Node], list[Node]]:
    filters = p("filters", 8, 6, 3, 3)
    op = Convolution((1, 1), (1, 1), (2, 2), (2, 2), (1, 1), 1, IMAGE.tensor.dtype)
    return [IMAGE, filters], [node(op, IMAGE, filters)]


def _pool(kind: str) -> Callable[[], tuple[list[Node], list[Node]]]:
    op = ReduceWindow(kind, (1, 1, 3, 3), (1, 1, 2, 2), (0, 0, 1, 1), (0, 0, 1, 1), (1, 1, 1, 1))
    return lambda: ([IMAGE], [node(op, IMAGE)])


def _heads() -> tuple[list[Node], list[Node]]:
    x = p("x", "s", 24)
    split = g.reshape(g.add(x, 1.0), (x.tensor.shape[0], 3, 8))
    return [x], [g.transpose(split, (1, 0, 2))]


def _bad_reshape() -> tuple[list[Node], list[Node]]:
    x = p("x", 3, "s", 8)
    flat = g.reshape(g.transpose(x, (1, 0, 2)), (x.tensor.shape[1], 24))
    return [x], [g.add(flat, 1.0)]


def _interior() -> tuple[list[Node], list[Node]]:
    op = Pad((0, 0, 1, 2), (0, 0, 0, 1), (0, 0, 1, 2))
    return [IMAGE], [node(op, IMAGE, g.constant(0.5, "f32"))]


def _take(axis: int) -> Callable[[], tuple[list[Node], list[Node]]]:
    table, indices = p("table", 5, 16), p("indices", 4, 3, dtype="i64")
    return lambda: ([indices, table], [g.multiply(g.take(table, indices, axis), 2.0)])


def _concatenated() -> tuple[list[Node], list[Node]]:
    pieces = [g.slice_axis(X, 1, 3, 10), g.slice_axis(Y, 1, 0, 27)]
    return [X, Y], [g.add(g.concatenate(pieces, 1), X)]


def _scatter(
    combine: str, form: str, dtype: str = "f32"
) -> Callable[[], tuple[list[Node], list[Node]]]:
    """Rows of updates into rows of data; single elements; elements of each column; whole blocks."""
    shapes: dict[str, tuple[tuple[int | str, ...], ...]] = {
        "rows": (("n", 20), ("m", 1), ("m", 20)),
        "elements": (("n", 20), ("m", 2), ("m",)),
        "columns": (("n", 20), ("m", 20, 1), ("m", 20)),
        "blocks": (("n", 20), ("m", 2), ("m", 2, 3)),
    }
    ops = {
        "rows": Scatter(combine, (1,), (0,), (), (), (0,)),
        "elements": Scatter(combine, (), (0, 1), (), (), (0, 1)),
        "columns": Scatter(combine, (), (0,), (1,), (1,), (0,)),
        "blocks": Scatter(combine, (1, 2), (), (), (), (0, 1)),
    }
    data, places, updates = shapes[form]

    def build() -> tuple[list[Node], list[Node]]:
        x, i = p("x", *data, dtype=dtype), p("i", *places, dtype="i64")
        u = p("u", *updates, dtype=dtype)
        return [x, i, u], [node(ops[form], x, g.subtract(i, 1), u)]

    return build


def _symbolic_broadcast() -> tuple[list[Node], list[Node]]:
    a, b = p("a", "n"), p("b", "m")
    return [a, b], [g.add(a, b)]


PROGRAMS: tuple[Program, ...] = (
    Program("scalar", lambda: ([s := p("s")], [g.add(s, 1.0)])),
    Program("softmax_last", lambda: ([X], [g.softmax(X, 1)]), ROWS),
    Program("softmax_first", lambda: ([X], [g.softmax(X, 0)]), ROWS[:2]),
    Program("layer_norm", lambda: ([X, W], [g.multiply(normalised(X, 1), W)]), ROWS),
    Program("residual_norm", _residual, ROWS),
    Program("matmul_bias_sigmoid", _matmul(g.logistic), ({"b": 2, "c": 33}, {"b": 1, "c": 0})),
    Program("matmul_silu", _matmul(_silu), ({"b": 2, "c": 33},)),
    Program("convolution", _convolution(), IMAGE_SIZES),
    Program("convolution_stride", _convolution(strides=(2, 2)), IMAGE_SIZES),
    Program("convolution_dilated", _convolution(dilation=(2, 1)), IMAGE_SIZES[:1]),
    Program("depthwise", _depthwise, IMAGE_SIZES),
    Program("grouped", _grouped, IMAGE_SIZES[:2]),
    Program("transposed_convolution", _transposed, IMAGE_SIZES[:2]),
    Program("max_pool", _pool("maximum"), IMAGE_SIZES),
    Program("sum_pool", _pool("sum"), IMAGE_SIZES),
    Program("spatial_mean", lambda: ([IMAGE], [g.mean(IMAGE, [2, 3])]), IMAGE_SIZES),
    Program("channel_mean", lambda: ([IMAGE], [g.mean(IMAGE, [1], keep_axes=True)]), IMAGE_SIZES),
    Program(
        "exp_transpose", lambda: ([IMAGE], [g.transpose(g.exp(IMAGE), (0, 2, 3, 1))]), IMAGE_SIZES
    ),
    Program(
        "pad",
        lambda: ([IMAGE], [g.pad(g.add(IMAGE, 1.0), (0, 0, 1, 2), (0, 0, 2, 1), 3.0)]),
        IMAGE_SIZES,
    ),
    Program("pad_interior", _interior, IMAGE_SIZES[:2]),
    Program("concatenate", _concatenated, ROWS),
    Program("take_rows", _take(0)),
    Program("take_columns", _take(1)),
    Program("split_heads", _heads, ({"s": 5}, {"s": 0}), num_kernels=2),
    Program("merge_heads", _bad_reshape, ({"s": 5},), num_kernels=2),
    Program(
        "row_vector", lambda: ([r := p("r", "n"), X], [g.add(g.expand_dims(r, [1]), X)]), ROWS[:2]
    ),
    Program(
        "select_cast",
        lambda: ([X, Y], [g.select(g.less(X, Y), X, g.cast(g.cast(Y, "i32"), "f32"))]),
        ROWS,
    ),
    Program("reverse", lambda: ([X], [g.reverse(X, [1])]), ROWS),
    Program(
        "symbolic_broadcast",
        _symbolic_broadcast,
        ({"n": 1, "m": 7}, {"n": 7, "m": 1}, {"n": 3, "m": 3}),
    ),
    Program(
        "bf16_softmax",
        lambda: ([e := p("e", "n", 20, dtype="bf16")], [g.softmax(e, 1)]),
        ROWS[:2],
        1e-2,
    ),
    *(
        Program(
            f"scatter_{combine}_{form}", _scatter(combine, form), SCATTER_SIZES, num_kernels=None
        )
        for form in ("rows", "elements", "columns", "blocks")
        for combine in ("replace", "add")
    ),
    Program("scatter_max_f16", _scatter("maximum", "rows", "f16"), SCATTER_SIZES, num_kernels=None),
    Program(
        "scatter_times_int", _scatter("multiply", "columns", "i32"), SCATTER_SIZES, num_kernels=None
    ),
    Program(
        "scatter_bool", _scatter("replace", "elements", "bool"), SCATTER_SIZES, num_kernels=None
    ),
    Program("arg_max", lambda: ([X], [g.arg_reduce("maximum", X, 1)]), ROWS),
    Program("arg_min_last", lambda: ([X], [g.arg_reduce("minimum", X, 1, last=True)]), ROWS[:2]),
    Program("arg_max_first_axis", lambda: ([X], [g.arg_reduce("maximum", X, 0)]), ROWS[:2]),
    Program(
        "integers",
        lambda: ([i := p("i", "n", 5, dtype="i64")], [g.floor_mod(g.subtract(i, 3), g.add(i, 1))]),
        ROWS[:3],
    ),
    Program(
        "logic",
        lambda: ([b := p("b", "n", dtype="bool")], [g.bitwise_and(g.bitwise_not(b), b)]),
        ROWS[:3],
    ),
)
