"""Luban next to its peers on the model collection: speed, memory, start. scripts/bench calls this.

    scripts/bench --quick                        a few small models, two minutes
    scripts/bench --models magika,bert_base      these
    scripts/bench --tags conv --threads 2        all with a tag

Speed is a ratio from one run (see harness.py). Every answer is compared with ONNX Runtime without
optimisations; a model whose answer is outside its bound is listed, whatever its speed.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import machine, report
from benchmarks.cases import ModelCase
from benchmarks.engines import ENGINES
from benchmarks.harness import OURS, QUICK, Plan, Start, cold_and_warm, compare, reference_outputs
from benchmarks.models import BUILT
from benchmarks.packages import PACKAGES
from benchmarks.targets import target_table

COLLECTION: dict[str, ModelCase] = {case.name: case for case in (*BUILT, *PACKAGES)}
QUICK_MODELS = ("tiny_mlp", "magika", "mobilenet_v2", "ppocr_cls", "wake_embedding", "minilm")
PEERS = ("onnxruntime", "openvino")
EXPLANATION = """\
Times are medians in ms. `x peer`: how many times faster Luban is (above 1: faster), the median over
the rounds of one run. `of limit`: the least that this machine allows Luban's kernels, over the time
of a call (`luban bench MODEL --roofline` tells of each kernel). `error`: Luban's, relative to ONNX
Runtime without optimisations."""


def select(options: argparse.Namespace) -> list[ModelCase]:
    """The cases asked for, in the collection's order.

    Raises SystemExit (2) for an unknown model, with the nearest names there are.
    """
    if options.models:
        unknown = sorted(set(options.models) - set(COLLECTION))
        if unknown:
            print(
                f"no model named {', '.join(unknown)}; there are {', '.join(COLLECTION)}",
                file=sys.stderr,
            )
            raise SystemExit(2)
        return [COLLECTION[name] for name in options.models]
    if options.quick and not options.tags:
        return [COLLECTION[name] for name in QUICK_MODELS]
    cases = list(COLLECTION.values())
    if options.tags:
        return [case for case in cases if set(options.tags) <= case.tags]
    return cases if options.all else [case for case in cases if "extra" not in case.tags]


def measure_speed(
    cases: Sequence[ModelCase],
    engines: Sequence[str],
    threads: Sequence[int],
    plan: Plan,
    cache: Path,
) -> list[report.Row]:
    """One row for each case and number of threads; progress goes to stderr."""
    rows = []
    for case in cases:
        reference = reference_outputs(case, cache)
        for count in threads:
            timings = compare(case, engines, count, plan, cache, reference)
            row = report.Row(
                case.name, case.tags, count, case.tolerance.max_relative, tuple(timings)
            )
            rows.append(row)
            progress = ", ".join(
                f"{t.engine} {'fails' if t.failure else report.milliseconds(t.median_s) + ' ms'}"
                for t in timings
            )
            print(f"{case.name} x{count}: {progress}", file=sys.stderr, flush=True)
    return rows


def measure_starts(
    cases: Sequence[ModelCase], engines: Sequence[str], threads: int, repeats: int
) -> dict[str, list[tuple[str, Start]]]:
    """For each case and engine: the median start from nothing, and from what that start kept."""
    result: dict[str, list[tuple[str, Start]]] = {}
    for case in cases:
        entries = []
        for engine in engines:
            cold, warm = cold_and_warm(case, engine, threads, repeats)
            entries += [(f"{engine} cold", cold), (f"{engine} warm", warm)]
        result[case.name] = entries
    return result


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="Luban next to its peers: speed, memory, start."
    )

    def names(text: str) -> list[str]:
        return [part for part in text.split(",") if part]

    def numbers(text: str) -> list[int]:
        return [int(part) for part in names(text)]

    parser.add_argument("--models", type=names, default=[], metavar="A,B", help="only these")
    parser.add_argument("--tags", type=names, default=[], metavar="A,B", help="with all of these")
    parser.add_argument("--all", action="store_true", help="with the extra models too")
    parser.add_argument("--quick", action="store_true", help="a few models, short turns")
    parser.add_argument("--rounds", type=int, help="turns for each engine")
    parser.add_argument("--threads", type=numbers, default=[1, 2], metavar="1,2")
    parser.add_argument(
        "--engines",
        type=names,
        default=["luban", *PEERS],
        metavar="A,B",
        help=f"of {', '.join(ENGINES)}",
    )
    parser.add_argument("--no-start", action="store_true", help="leave out cold and warm start")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the report there too")
    parser.add_argument("--list", action="store_true", help="print the models and stop")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.engines) - set(ENGINES)):
        parser.error(f"no engine named {', '.join(unknown)}; there are {', '.join(ENGINES)}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if an answer of Luban's is outside its bound or it failed a model."""
    options = parse(arguments)
    cases = select(options)
    if options.list:
        for case in cases:
            print(f"{case.name:<24}{' '.join(sorted(case.tags))}")
        return 0
    plan = QUICK if options.quick else Plan()
    if options.rounds:
        plan = replace(plan, rounds=options.rounds)
    facts = machine.facts()
    with tempfile.TemporaryDirectory(prefix="luban-cache-") as folder:
        rows = measure_speed(cases, options.engines, options.threads, plan, Path(folder))
    starts = (
        {}
        if options.no_start
        else measure_starts(cases, options.engines, max(options.threads), plan.starts)
    )
    text = render(facts, rows, starts, options.engines)
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n")
    if options.json:
        report.write_json(options.json, facts, rows, starts)
    failed = any(row.of("luban") is None for row in rows) and "luban" in options.engines
    return int(failed or bool(report.wrong_lines(rows)))


def render(
    facts: dict[str, str],
    rows: Sequence[report.Row],
    starts: dict[str, list[tuple[str, Start]]],
    engines: Sequence[str],
) -> str:
    """The whole report in Markdown."""
    most = max(row.threads for row in rows)
    peers = [engine for engine in engines if engine != OURS]
    reached = target_table(rows, peers)
    parts = [
        "# Luban next to its peers",
        "\n".join(f"- {name}: {value}" for name, value in facts.items()),
        EXPLANATION,
        report.speed_table(rows, engines),
        report.mean_lines(rows, peers),
        f"## Targets, against the faster peer\n\n{reached}" if reached else "",
        f"## Peak memory, {most} threads",
        report.memory_table([row for row in rows if row.threads == most], engines),
    ]
    if starts:
        parts += [
            "## From load to the first answer, in a fresh process",
            "Cold: nothing kept from an earlier run. Warm: the same again.",
            report.start_table(starts),
        ]
    if failures := report.failure_lines(rows):
        parts += ["## Failures", failures]
    if wrong := report.wrong_lines(rows):
        parts += ["## Answers outside their bound", wrong]
    return "\n\n".join(part for part in parts if part)


if __name__ == "__main__":
    raise SystemExit(main())
