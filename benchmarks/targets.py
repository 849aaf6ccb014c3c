"""The targets against the faster peer, group by group, and whether they are met.

Part of the report of `benchmarks/compare.py`. Peers run at float32, or at int8 where the model is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness import geometric_mean
from benchmarks.report import Row, table

__all__ = ["TARGETS", "Target", "target_table"]


@dataclass(frozen=True, slots=True)
class Target:
    """A group of models and the ratio to the faster peer that it is to have.

    models   names; empty: all models that compute in float32
    each     every single model is to have it, instead of the geometric mean
    """

    name: str
    at_least: float
    models: tuple[str, ...] = ()
    each: bool = False

    def covers(self, row: Row) -> bool:
        """Whether the row counts for this target."""
        if self.models:
            return row.case in self.models
        return "int8" not in row.tags and "extra" not in row.tags


TARGETS = (
    Target("float32 models", 1.35),
    Target("any float32 model", 1.0, each=True),
    Target("ResNet-50", 1.3, ("resnet50",)),
    Target("U-Net", 2.0, ("unet",)),
    Target("YOLOv8n", 1.35, ("yolov8n_like",)),
    Target(
        "MobileNets, OCR",
        1.2,
        (
            "mobilenet_v2", "mobilenet_v3_large", "ppocr4_det", "ppocr5_det", "ppocr5_rec",
            "ppocr6_rec", "ppocr_cls", "ppocr5_cls",
        ),
        each=True,
    ),
    Target(
        "transformers", 1.1, ("bert_base", "vit_b16", "gpt2_prefill", "minilm"), each=True
    ),
    Target(
        "recurrent and looping",
        2.0,
        ("bilstm", "nakdimon", "silero_vad_sequence", "ddddocr_lstm", "voicefilter_int8"),
        each=True,
    ),
    Target("call-bound", 2.0, ("magika", "wake_embedding", "tiny_mlp"), each=True),
    Target("graph network", 1.5, ("caustic_gnn",)),
    Target("int8 ResNet-50, int8 BERT", 1.1, ("resnet50_int8", "bert_base_int8"), each=True),
    Target("int8 Kokoro", 1.5, ("kokoro",)),
)  # fmt: skip


def target_table(rows: Sequence[Row], peers: Sequence[str]) -> str:
    """A line for each target that `rows` say anything about, empty for none."""
    lines = []
    for threads in sorted({row.threads for row in rows}):
        for target in TARGETS:
            found = {
                row.case: ratio
                for row in rows
                if row.threads == threads
                and target.covers(row)
                and (ratio := row.best_ratio(peers)) is not None
            }
            if found:
                lines.append(_line(target, threads, found))
    header = ["target", "threads", "wanted", "measured", "models", "", "lowest"]
    return table(header, lines) if lines else ""


def _line(target: Target, threads: int, found: dict[str, float]) -> list[str]:
    lowest = min(found, key=found.__getitem__)
    measured = found[lowest] if target.each else geometric_mean(list(found.values()))
    return [
        target.name,
        str(threads),
        f"{target.at_least:.2f}",
        f"{measured:.2f}",
        str(len(found)),
        "met" if measured >= target.at_least else "MISSED",
        f"{lowest} {found[lowest]:.2f}",
    ]
