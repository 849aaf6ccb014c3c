"""The runtimes that are compared, each behind one call: load a file, then feeds -> outputs.

Imported only in a worker process, which imports just the one engine it was asked for: what another
engine would load into memory or start as threads is not measured.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.cases import Array, Feeds

Call = Callable[[Feeds], list[Array]]
Load = Callable[[Path, int], Call]


def load_luban(path: Path, threads: int) -> Call:
    """Luban with its defaults (strict numerics)."""
    return _load_luban(path, threads, "strict")


def load_luban_fast(path: Path, threads: int) -> Call:
    """Luban with products of bf16 pairs: a different answer, like OpenVINO's at bfloat16."""
    return _load_luban(path, threads, "fast")


def _load_luban(path: Path, threads: int, numerics: str) -> Call:
    luban: Any = importlib.import_module("luban")
    model = luban.load(path, threads=threads, numerics=numerics)

    def call(feeds: Feeds) -> list[Array]:
        outputs = model(feeds)
        if isinstance(outputs, dict):
            return list(outputs.values())
        return list(outputs) if isinstance(outputs, tuple | list) else [outputs]

    return call


def _load_onnxruntime(path: Path, threads: int, *, optimise: bool) -> Call:
    ort: Any = importlib.import_module("onnxruntime")
    levels = ort.GraphOptimizationLevel
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def call(feeds: Feeds) -> list[Array]:
        outputs: list[Array] = session.run(None, feeds)
        return outputs

    return call


def load_onnxruntime(path: Path, threads: int) -> Call:
    """ONNX Runtime, CPU provider, all optimisations: its own default."""
    return _load_onnxruntime(path, threads, optimise=True)


def load_reference(path: Path, threads: int) -> Call:
    """ONNX Runtime with every optimisation off: the answer that others are compared with."""
    return _load_onnxruntime(path, threads, optimise=False)


def _load_openvino(path: Path, threads: int, precision: str) -> Call:
    openvino: Any = importlib.import_module("openvino")
    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": precision,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
    }
    compiled = core.compile_model(str(path), "CPU", settings)
    request = compiled.create_infer_request()
    count = len(compiled.outputs)

    def call(feeds: Feeds) -> list[Array]:
        # A shared output lies in the request's own memory and is overwritten by the next call.
        outputs = request.infer(feeds, share_inputs=True, share_outputs=True)
        return [outputs[index] for index in range(count)]

    return call


def load_openvino(path: Path, threads: int) -> Call:
    """OpenVINO at float32: its own default may round to bfloat16."""
    return _load_openvino(path, threads, "f32")


def load_openvino_bf16(path: Path, threads: int) -> Call:
    """OpenVINO at bfloat16, where the processor has it: a different answer, for orientation."""
    return _load_openvino(path, threads, "bf16")


ENGINES: dict[str, Load] = {
    "luban": load_luban,
    "luban_fast": load_luban_fast,
    "onnxruntime": load_onnxruntime,
    "openvino": load_openvino,
    "openvino_bf16": load_openvino_bf16,
    "reference": load_reference,
}
