"""How long a first load compiles, and how long the next one takes: MobileNetV2 and BERT-base.

    python -m benchmarks.cold_compile        exit 1 if a target is missed

Cold: a fresh process and an empty cache. Warm: a fresh process and the cache that it left.
"""

from dataclasses import dataclass

from benchmarks.compare import COLLECTION
from benchmarks.harness import OURS, cold_and_warm
from benchmarks.report import milliseconds, table


@dataclass(frozen=True, slots=True)
class Target:
    """The longest a load may take, in seconds."""

    case: str
    cold_s: float
    warm_s: float


# Warm: 60 ms, and for large weights the time to map and page them in.
TARGETS = (
    Target("tiny_mlp", 0.3, 0.06),
    Target("mobilenet_v2", 1.5, 0.06),
    Target("bert_base", 3.0, 0.16),
)
PEERS = ("onnxruntime", "openvino")


def main() -> int:
    """Print cold and warm load times beside their targets and the peers' load times."""
    lines, met = [], True
    for target in TARGETS:
        case = COLLECTION[target.case]
        cold, warm = cold_and_warm(case, OURS, 2, repeats=3)
        peers = [cold_and_warm(case, peer, 2, repeats=3)[0] for peer in PEERS]
        met = met and cold.load_s <= target.cold_s and warm.load_s <= target.warm_s
        lines.append(
            [
                target.case,
                milliseconds(cold.load_s),
                milliseconds(target.cold_s),
                milliseconds(warm.load_s),
                milliseconds(target.warm_s),
                *(milliseconds(peer.load_s) for peer in peers),
            ]
        )
        if cold.failure:
            print(cold.failure)
    header = ["model", "cold ms", "target", "warm ms", "target", *(f"{peer} ms" for peer in PEERS)]
    print(table(header, lines))
    print("every target met" if met else "a target is MISSED")
    return int(not met)


if __name__ == "__main__":
    raise SystemExit(main())
