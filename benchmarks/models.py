"""The built models: what benchmarks/build.py makes, with seeded inputs and bounds.

    python -m benchmarks.models [name ...]     build them, write their inputs as .npz

Nothing here imports torch: a model that the cache lacks is built in a process of its own.
"""

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.cases import (
    FLOAT32,
    INT8_DEEP,
    INT8_SHALLOW,
    RECURRENT_FLOAT32,
    Array,
    Feeds,
    ModelCase,
    Sizes,
    Tolerance,
    cache_folder,
)
from benchmarks.samples import Sample, picture, sentence

# The tiny models, as benchmarks/build.py made them: 1.4 MB, so that the tests need no torch.
BUNDLED = Path(__file__).parent / "data"


class BuildError(Exception):
    """benchmarks/build.py could not make a model."""


def built_file(name: str) -> Path:
    """The path of the built model `name`: bundled, or in the cache, or built now (needs torch)."""
    bundled = BUNDLED / f"{name}.onnx"
    if bundled.exists():
        return bundled
    path = cache_folder() / "built" / f"{name}.onnx"
    if not path.exists():
        command = [sys.executable, "-m", "benchmarks.build", name]
        root = Path(__file__).parents[1]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
        if not path.exists():
            raise BuildError(
                f"{name}: `python -m benchmarks.build {name}` failed (exit {done.returncode})\n"
                f"{done.stderr.strip()[-500:]}\n"
                f"hint: it needs the bench extra: pip install -e '.[bench]'"
            )
    return path


def _vector(generator: np.random.Generator, sizes: Sizes) -> Feeds:
    return {"x": generator.normal(size=(sizes["batch"], 64)).astype(np.float32)}


def _frames(generator: np.random.Generator, sizes: Sizes) -> Feeds:
    shape = (sizes["batch"], sizes["length"], 128)
    return {"x": generator.normal(size=shape).astype(np.float32)}


def _image(generator: np.random.Generator, sizes: Sizes) -> Feeds:
    """A picture after the usual normalisation, about [-2, 2]."""
    shape = (sizes["batch"], 3, sizes["height"], sizes["width"])
    return {"image": picture(generator, shape) * np.float32(4) - np.float32(2)}


def _tokens(vocabulary: int) -> Sample:
    def sample(generator: np.random.Generator, sizes: Sizes) -> Feeds:
        shape = (sizes["batch"], sizes["length"])
        return {"input_ids": generator.integers(0, vocabulary, shape)}

    return sample


def _tokens_and_past(vocabulary: int, layers: int, heads: int, depth: int) -> Sample:
    def sample(generator: np.random.Generator, sizes: Sizes) -> Feeds:
        feeds = _tokens(vocabulary)(generator, sizes)
        shape = (sizes["batch"], heads, sizes["past"], depth)

        def remembered() -> Array:
            return generator.normal(size=shape).astype(np.float32)

        for layer in range(layers):
            feeds[f"past.{layer}.key"] = remembered()
            feeds[f"past.{layer}.value"] = remembered()
        return feeds

    return sample


def _built(
    name: str,
    sample: Sample,
    sizes: tuple[Sizes, ...],
    tags: str,
    tolerance: Tolerance = FLOAT32,
    file: str | None = None,
) -> ModelCase:
    locate = partial(built_file, file or name)
    return ModelCase(name, locate, sample, sizes, tolerance, frozenset(tags.split()))


def _pictures(*shapes: tuple[int, int, int]) -> tuple[Sizes, ...]:
    return tuple({"batch": b, "height": h, "width": w} for b, h, w in shapes)


def _texts(*shapes: tuple[int, int]) -> tuple[Sizes, ...]:
    return tuple({"batch": b, "length": n} for b, n in shapes)


def _steps(*shapes: tuple[int, int, int]) -> tuple[Sizes, ...]:
    return tuple({"batch": b, "length": n, "past": p} for b, n, p in shapes)


_EDGE_224 = _pictures((1, 224, 224), (3, 224, 224))
_PREFILL = _steps((1, 128, 0), (2, 7, 0), (1, 5, 9))
_DECODE = _steps((1, 1, 256), (2, 1, 31), (1, 1, 0))
_TINY_STEPS = _steps((1, 8, 0), (1, 1, 13), (2, 3, 5))
_SENTENCES = _texts((1, 128), (2, 17), (1, 1))

# Smallest first: `python -m benchmarks.models` builds them in this order.
BUILT: tuple[ModelCase, ...] = (
    _built("tiny_mlp", _vector, ({"batch": 1}, {"batch": 7}, {"batch": 0}), "small"),
    _built("resnet_tiny", _image, _pictures((1, 60, 60), (3, 60, 60)), "image conv small extra"),
    _built(
        "bert_tiny", sentence(97, 0), _texts((1, 32), (2, 5), (1, 1)), "text attention small extra"
    ),
    _built("vit_tiny", _image, _pictures((1, 30, 30), (2, 30, 30)), "image attention small extra"),
    _built(
        "gpt2_tiny",
        _tokens_and_past(97, 2, 4, 10),
        _TINY_STEPS,
        "text attention decoder small extra",
    ),
    _built(
        "llama_tiny",
        _tokens_and_past(97, 2, 2, 10),
        _TINY_STEPS,
        "text attention decoder small extra",
    ),
    _built("mla_moe_tiny", _tokens(97), _texts((1, 8), (2, 5)), "text attention moe small extra"),
    _built("unet_tiny", _image, _pictures((1, 48, 48), (2, 32, 80)), "image conv small extra"),
    _built(
        "resnet_tiny_int8",
        _image,
        _pictures((1, 60, 60), (3, 60, 60)),
        "image conv int8 small extra",
        INT8_SHALLOW,
    ),
    _built(
        "bert_tiny_int8",
        sentence(97, 0),
        _texts((1, 32), (2, 5), (1, 1)),
        "text attention int8 small extra",
        INT8_SHALLOW,
    ),
    _built("bilstm", _frames, _texts((1, 100), (3, 17), (1, 1)), "audio rnn", RECURRENT_FLOAT32),
    _built("mobilenet_v2", _image, _EDGE_224, "image conv"),
    _built("mobilenet_v3_large", _image, _EDGE_224, "image conv"),
    _built("resnet50", _image, _EDGE_224, "image conv"),
    _built("bert_base", sentence(30_522), _SENTENCES, "text attention slow"),
    _built("yolov8n_like", _image, _pictures((1, 640, 640), (2, 640, 640)), "image conv"),
    _built("unet", _image, _pictures((1, 256, 256), (2, 64, 96)), "image conv slow"),
    _built("minilm", sentence(30_522), _SENTENCES, "text attention"),
    _built("vit_b16", _image, _EDGE_224, "image attention slow"),
    _built("resnet50_int8", _image, _EDGE_224, "image conv int8", INT8_DEEP),
    _built("bert_base_int8", sentence(30_522), _SENTENCES, "text attention int8", INT8_DEEP),
    _built(
        "gpt2_prefill",
        _tokens_and_past(50_257, 12, 12, 64),
        _PREFILL,
        "text attention decoder slow",
        file="gpt2",
    ),
    _built(
        "gpt2_decode",
        _tokens_and_past(50_257, 12, 12, 64),
        _DECODE,
        "text attention decoder slow",
        file="gpt2",
    ),
    _built(
        "llama_130m_prefill",
        _tokens_and_past(32_000, 12, 4, 64),
        _PREFILL,
        "text attention decoder slow",
        file="llama_130m",
    ),
    _built(
        "llama_130m_decode",
        _tokens_and_past(32_000, 12, 4, 64),
        _DECODE,
        "text attention decoder slow",
        file="llama_130m",
    ),
    _built(
        "mla_moe_prefill",
        _tokens(32_000),
        _texts((1, 128), (2, 7)),
        "text attention moe slow",
        file="mla_moe",
    ),
)


if __name__ == "__main__":
    for case in BUILT:
        if len(sys.argv) < 2 or case.name in sys.argv[1:]:
            print(f"{case.name:<24}{case.path()}  {case.save_inputs()}", flush=True)
