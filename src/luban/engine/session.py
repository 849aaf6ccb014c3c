"""A session with ONNX Runtime's signature, so that a program changes one import.

    import onnxruntime as ort      ->      import luban as ort

What is asked for is done or refused, never ignored: a GPU provider is an error unless the CPU is
in the list too, and then a warning says that it was not used.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import IntEnum
from importlib import import_module
from typing import Any

import numpy as np

from luban.core.errors import InputError, LubanWarning, OptionError
from luban.core.types import OptionalType, SequenceType, TensorType, Type
from luban.engine import model as models
from luban.engine.model import TensorInfo

__all__ = [
    "ExecutionMode",
    "GraphOptimizationLevel",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "SessionOptions",
    "get_available_providers",
    "get_device",
]

# Passes that ORT_DISABLE_ALL leaves out; the others make the kernels.
_OPTIONAL = ("simplify", "layout", "fold", "once")
_CPU = "CPUExecutionProvider"
_ELEMENTS = {
    "f16": "float16", "f32": "float", "f64": "double", "bf16": "bfloat16", "str": "string",
    "i2": "int2", "i4": "int4", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u2": "uint2", "u4": "uint4", "u8": "uint8", "u16": "uint16", "u32": "uint32",
    "u64": "uint64", "f8e4m3fn": "float8e4m3fn", "f8e4m3fnuz": "float8e4m3fnuz",
    "f8e5m2": "float8e5m2", "f8e5m2fnuz": "float8e5m2fnuz", "f4e2m1": "float4e2m1",
    "f6e2m3": "float6e2m3", "f6e3m2": "float6e3m2",
    "f8e8m0": "float8e8m0", "c64": "complex64", "c128": "complex128",
}  # fmt: skip


class GraphOptimizationLevel(IntEnum):
    """How much is optimised. Results agree at every level, so any but the first does the same."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Accepted for compatibility: kernels run in order, each on all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


@dataclass(slots=True)
class SessionOptions:
    """The options that Luban knows; setting another one is an AttributeError.

    intra_op_num_threads       threads of a call; 0: LUBAN_NUM_THREADS or the CPUs of this process
    graph_optimization_level   ORT_DISABLE_ALL leaves every pass out that can be
    inter_op_num_threads, execution_mode, log_severity_level, log_verbosity_level, logid,
    enable_profiling (has to stay False), enable_mem_pattern, enable_cpu_mem_arena,
    enable_mem_reuse, use_deterministic_compute: accepted, with no effect on results
    """

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    graph_optimization_level: int = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode: int = ExecutionMode.ORT_SEQUENTIAL
    log_severity_level: int = 2
    log_verbosity_level: int = 0
    logid: str = ""
    enable_profiling: bool = False
    enable_mem_pattern: bool = True
    enable_cpu_mem_arena: bool = True
    enable_mem_reuse: bool = True
    use_deterministic_compute: bool = True
    _entries: dict[str, str] = field(default_factory=dict)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep a configuration entry; none changes what Luban does."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """An entry that was added. Raises OptionError if it was not."""
        if key not in self._entries:
            raise OptionError(f"there is no session configuration entry {key!r}")
        return self._entries[key]


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output: name, shape (None or text where the caller chooses), `tensor(float)`."""

    name: str
    shape: list[int | str | None]
    type: str


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What the file says about itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


class InferenceSession:
    """A compiled model behind ONNX Runtime's interface.

    path_or_bytes   a file, or its content
    providers       names, or (name, options); the CPU has to be among them

    Raises ModelError, UnsupportedError, and OptionError for providers or options that cannot be.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **_: Any,
    ) -> None:
        options = sess_options or SessionOptions()
        if options.enable_profiling:
            raise OptionError(
                "enable_profiling is not supported", hint="time a model with luban bench"
            )
        if options.intra_op_num_threads < 0:
            raise OptionError(
                f"intra_op_num_threads={options.intra_op_num_threads}, expected 0 or more"
            )
        _check_providers(providers)
        if provider_options and any(provider_options):
            raise OptionError("provider_options were given, but the CPU has none")
        level = options.graph_optimization_level
        if level not in list(GraphOptimizationLevel):
            raise OptionError(f"graph_optimization_level={level!r} is not known")
        plain = level == GraphOptimizationLevel.ORT_DISABLE_ALL
        self._source = path_or_bytes
        self._options = options
        self._model = models.compile(
            path_or_bytes,
            threads=options.intra_op_num_threads or None,
            without=_OPTIONAL if plain else (),
        )

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: object = None,
    ) -> list[Any]:
        """The outputs of these names in order, or all of them for None.

        Raises InputError for names, dtypes or shapes that do not fit.
        """
        del run_options
        outputs = self._model(self._feeds(input_feed))
        if not output_names:  # a name may come twice
            return [outputs[info.name] for info in self._model.outputs]
        if unknown := [name for name in output_names if name not in outputs]:
            raise InputError(
                f"{self._model.name}: there is no output {', '.join(unknown)}",
                hint=f"outputs: {', '.join(outputs)}",
            )
        return [outputs[name] for name in output_names]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Any,
        user_data: object = None,
        run_options: object = None,
    ) -> None:
        """Run on another thread, then call `callback(results, user_data, error_text)`."""
        del run_options
        future: Future[dict[str, Any]] = self._model.run_async(self._feeds(input_feed))

        def done(finished: Future[dict[str, Any]]) -> None:
            error = finished.exception()
            if error is not None:
                callback([], user_data, str(error))
                return
            outputs = finished.result()
            callback([outputs[name] for name in output_names or outputs], user_data, "")

        future.add_done_callback(done)

    def _feeds(self, given: object) -> dict[str, Any]:
        """The inputs by name. Raises InputError if they are no mapping."""
        if not isinstance(given, Mapping):
            names = ", ".join(info.name for info in self._model.inputs)
            raise InputError(
                f"{self._model.name}: input_feed is a {type(given).__name__}, "
                "expected a dict of arrays by name",
                hint=f"inputs: {names}",
            )
        return dict(given)

    def get_inputs(self) -> list[NodeArg]:
        """The inputs in order."""
        return [_argument(info) for info in self._model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs in order."""
        return [_argument(info) for info in self._model.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: weights are constants here."""
        return []

    def get_providers(self) -> list[str]:
        """What runs the model."""
        return [_CPU]

    def get_session_options(self) -> SessionOptions:
        """The options it was made with."""
        return self._options

    def get_modelmeta(self) -> ModelMetadata:
        """What the file says about itself; reads it again."""
        load_model = import_module("luban.frontend.onnx.load").load_model
        proto = load_model(self._source).model
        return ModelMetadata(
            proto.producer_name,
            proto.graph.name,
            proto.domain,
            proto.doc_string,
            proto.graph.doc_string,
            proto.model_version,
            {entry.key: entry.value for entry in proto.metadata_props},
        )


def get_available_providers() -> list[str]:
    """The CPU."""
    return [_CPU]


def get_device() -> str:
    """CPU, as ONNX Runtime writes it."""
    return "CPU"


def _check_providers(
    providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None,
) -> None:
    names = [p if isinstance(p, str) else p[0] for p in providers or (_CPU,)]
    others = [name for name in names if name != _CPU]
    if _CPU not in names:
        raise OptionError(
            f"providers {', '.join(names)} were asked for; Luban runs on {_CPU}",
            hint=f"add {_CPU!r} to the list to run there instead",
        )
    if others:
        warnings.warn(
            f"{', '.join(others)}: not available, the model runs on {_CPU}, which is also listed",
            LubanWarning,
            stacklevel=4,
        )


def _argument(info: TensorInfo) -> NodeArg:
    shape: list[int | str | None] = list(info.shape)
    return NodeArg(info.name, shape, _type_text(info.type))


def _type_text(type_: Type) -> str:
    match type_:
        case TensorType(dtype=dtype):
            if dtype.numpy == np.bool_:
                return "tensor(bool)"
            return f"tensor({_ELEMENTS.get(dtype.name, dtype.name)})"
        case SequenceType(item=item):
            return f"seq({_type_text(item)})"
        case OptionalType(item=item):
            return f"optional({_type_text(item)})"
    return str(type_)
