"""What users hold: a compiled model with named inputs and outputs.

>>> import numpy as np
>>> from luban.core.types import tensor
>>> from luban.graph import build
>>> from luban.ir.node import Graph
>>> x = build.parameter("x", tensor("f32", "batch", 2))
>>> model = compile(Graph("double", (x,), (build.add(x, x),), ("y",)))
>>> model(np.ones((1, 2), np.float32))
{'y': array([[2., 2.]], dtype=float32)}
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from luban.core.errors import InputError, OptionError
from luban.core.types import TensorType, Type
from luban.engine.compile import Compiled, compile_graph
from luban.frontend.onnx import Imported, import_model
from luban.graph.evaluate import ordered_inputs
from luban.ir.node import Graph
from luban.native.target import named_target

__all__ = ["Model", "TensorInfo", "compile", "load"]

Source = str | os.PathLike[str] | bytes | onnx.ModelProto | Graph


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One input or output: its name and its type, such as `f32[batch,3,224,224]`."""

    name: str
    type: Type

    @property
    def dtype(self) -> str:
        """The element type's name, such as `f32`."""
        return str(self.type.dtype) if isinstance(self.type, TensorType) else str(self.type)

    @property
    def shape(self) -> tuple[int | str, ...]:
        """Sizes; symbolic ones as text."""
        if not isinstance(self.type, TensorType):
            return ()
        return tuple(s if isinstance(s, int) else str(s) for s in self.type.shape)

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


class Model:
    """A compiled model. Calls are safe from several threads at once.

    inputs, outputs   names, symbolic shapes and dtypes, in the model's order
    """

    def __init__(self, compiled: Compiled, imported: Imported | None) -> None:
        self.compiled = compiled
        self.imported = imported
        graph = compiled.source
        self.inputs = tuple(
            TensorInfo(name, p.type)
            for name, p in zip(graph.parameter_names, graph.parameters, strict=True)
        )
        names = graph.result_names or tuple(f"output_{i}" for i in range(len(graph.results)))
        self.outputs = tuple(
            TensorInfo(name, r.type) for name, r in zip(names, graph.results, strict=True)
        )
        self._workers: ThreadPoolExecutor | None = None

    @property
    def num_threads(self) -> int:
        """Threads that one call uses at most."""
        return self.compiled.executor.num_threads

    def __call__(self, *arrays: Any, **named: Any) -> dict[str, Any]:
        """Run the model; the outputs by name, as fresh arrays.

        Inputs come in order, by keyword, or as one mapping from names. Each is a numpy array of the
        declared dtype, anything with `__dlpack__` (no copy where it is contiguous), or nested
        numbers. Raises InputError for a name, dtype, rank or size that does not fit.
        """
        values = self._ordered(arrays, named)
        results = self.compiled.executor.run(values)
        return {info.name: value for info, value in zip(self.outputs, results, strict=True)}

    def run_async(self, *arrays: Any, **named: Any) -> Future[dict[str, Any]]:
        """Start a call on a thread of its own and return a future of its outputs."""
        if self._workers is None:
            self._workers = ThreadPoolExecutor(thread_name_prefix="luban-run")
        return self._workers.submit(self, *arrays, **named)

    def _ordered(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        if len(arrays) == 1 and isinstance(arrays[0], Mapping) and not named:
            named, arrays = arrays[0], ()
        if arrays and named:
            names = [info.name for info in self.inputs]
            given = dict(zip(names, arrays, strict=False))
            twice = given.keys() & named.keys()
            if twice or len(arrays) > len(names):
                raise InputError(
                    f"given {len(arrays)} inputs in order and {sorted(named)} by name, "
                    f"expected {len(names)}: {', '.join(names)}"
                )
            named, arrays = {**given, **named}, ()
        if named or not arrays:
            named = {name: _as_array(value) for name, value in named.items()}
            return ordered_inputs(self.compiled.source, named)
        return ordered_inputs(self.compiled.source, [_as_array(value) for value in arrays])

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        return f"<luban model {self.compiled.source.name}: ({inputs}) -> ({outputs})>"


def _as_array(value: Any) -> Any:
    """numpy arrays as they are; other array objects through DLPack, without a copy where it can be."""
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return value
    return np.from_dlpack(value)


def load(path: str | os.PathLike[str], **options: Any) -> Model:
    """Load and compile a model file. Options are those of `compile`.

    Raises ModelError if the file is not a model, UnsupportedError with every operator that is not.
    """
    return compile(path, **options)


def compile(
    model: Source,
    *,
    threads: int | None = None,
    without: Collection[str] = (),
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    target: str | None = None,
) -> Model:
    """Compile a model: a path, the bytes of an ONNX file, a ModelProto, or a graph.

    threads  threads of one call; default LUBAN_NUM_THREADS or the CPUs this process may use
    without  names of passes to leave out, as `luban explain` lists them
    shapes   input name -> sizes (numbers or symbol names), in place of the declared ones
    target   code generation target; default: this machine
    """
    if threads is not None and threads < 1:
        raise OptionError(f"threads={threads}, expected at least 1")
    imported = None
    if isinstance(model, Graph):
        graph = model
    else:
        imported = import_model(model, shapes=shapes)
        graph = imported.graph
    chosen = named_target(target) if target is not None else None
    return Model(compile_graph(graph, num_threads=threads, without=without, target=chosen), imported)
