"""A case from a public report: a small model as text, inputs, and the right answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser

import luban
from luban.engine.pipeline import PASSES
from luban.frontend.onnx import import_model
from luban.graph.evaluate import evaluate
from luban.native.target import named_target

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One model and what it must answer.

    id         the report's id in CASES, and in the brackets of docs/concepts/numerics.md
    text       the graph in ONNX's text form; `opset` completes it to a model
    inputs     by name
    expected   outputs in order; dtype and shape must be equal too
    tolerance  largest relative difference from the largest expected value; 0 asks for equal values
    """

    id: str
    what: str
    text: str
    inputs: Mapping[str, Array]
    expected: tuple[Array, ...]
    opset: int = 21
    tolerance: float = 0.0

    def __str__(self) -> str:
        return f"{self.id}-{self.what.replace(' ', '_')}"


def model_of(text: str, opset: int = 21) -> onnx.ModelProto:
    """A model from the text of its graph and, after it, of its functions."""
    header = f'<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1, "local" : 1]>'
    return onnx.parser.parse_model(f"{header}\n{text}")


def _meaning(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    """The graph's own evaluator, in the model's dtypes."""
    return list(evaluate(import_model(model).graph, dict(inputs)))


def _unoptimised(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    """Compiled without any pass."""
    compiled = luban.compile(model, without=[each.name for each in PASSES])
    return _in_order(model, compiled(dict(inputs)))


def _compiled(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    """Compiled as users do."""
    return _in_order(model, luban.compile(model)(dict(inputs)))


def _avx2(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    """Compiled for AVX2, which older machines have."""
    return _in_order(model, luban.compile(model, target="avx2")(dict(inputs)))


def _in_order(model: onnx.ModelProto, outputs: Mapping[str, Array]) -> list[Array]:
    """The outputs, which must have the names that the model gives them."""
    assert list(outputs) == [output.name for output in model.graph.output]
    return list(outputs.values())


Run = Callable[[onnx.ModelProto, Mapping[str, Array]], list[Array]]

PATHS: dict[str, Run] = {
    "meaning": _meaning,
    "unoptimised": _unoptimised,
    "compiled": _compiled,
    **({"avx2": _avx2} if named_target("avx2").runs_here else {}),
}


def check(case: Case, run: Run) -> None:
    """Run a case on a path. Raises AssertionError where dtype, shape or a value differs."""
    outputs = run(model_of(case.text, case.opset), case.inputs)
    assert len(outputs) == len(case.expected)
    for got, want in zip(outputs, case.expected, strict=True):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        if case.tolerance:
            scale = max((float(np.abs(want).max()) if want.size else 0.0), 1e-30)
            np.testing.assert_allclose(got, want, rtol=0, atol=case.tolerance * scale)
        else:
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(minus_zero(got), minus_zero(want))


def minus_zero(array: Array) -> Array:
    """Where a float array holds -0.0, which compares equal to 0.0."""
    return np.signbit(array) & (array == 0) if array.dtype.kind == "f" else np.zeros_like(array)
