"""The whole table of speed targets: every script below, one after the other, then what was met.

    scripts/bench --table                        about an hour for everything
    scripts/bench --table --only decode,memory   these rows
    scripts/bench --table --list                 the rows, and the command of each

Each script prints its own ratios and shares of the limit at 1 and 2 threads. A row is met if its
script says of no target that it is MISSED.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import machine
from benchmarks.report import table

ROOT = Path(__file__).parents[1]
MISSED = "MISSED"


@dataclass(frozen=True, slots=True)
class TargetRow:
    """What is asked for, and the script that measures it; `arguments` are those it is given."""

    name: str
    asked: str
    module: str
    arguments: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        """Of this interpreter."""
        return [sys.executable, "-m", self.module, *self.arguments]


ROWS = (
    TargetRow(
        "models",
        "all models: 1.35 times the faster peer in the mean, none behind, and the groups' targets",
        "benchmarks.compare",
        ("--no-start",),
    ),
    TargetRow("decode", "90 % of the read bandwidth, batch 1", "benchmarks.decode"),
    TargetRow(
        "half_products",
        "fast numerics: 1.1 times OpenVINO at bfloat16, errors listed",
        "benchmarks.half_products",
    ),
    TargetRow(
        "int4",
        "4-bit weights: 85 % of the read bandwidth at one row, 2 times ONNX Runtime at 16 and 128",
        "benchmarks.int4",
        ("--levels", "4"),
    ),
    TargetRow("cold_compile", "cold and warm load", "benchmarks.cold_compile"),
    TargetRow("first_call", "first call: 1.5 times a steady one", "benchmarks.first_call"),
    TargetRow("memory", "peak memory next to ONNX Runtime's", "benchmarks.memory"),
    TargetRow("competitor", "beside a busy process: 1.5 times its share", "benchmarks.competitor"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a script printed, line by line, and how it ended."""

    row: TargetRow
    code: int
    lines: tuple[str, ...]

    @property
    def missed(self) -> list[str]:
        """The lines that say so, their columns apart by one space."""
        return [" ".join(line.split()) for line in self.lines if MISSED in line]

    @property
    def verdict(self) -> str:
        """A word."""
        if self.missed:
            return MISSED
        return "met" if self.code == 0 else f"failed with exit code {self.code}"


def run(row: TargetRow) -> Outcome:
    """Run a script, showing what it prints as it comes."""
    print(f"\n# {row.name}: {row.asked}\n", flush=True)
    lines: list[str] = []
    with subprocess.Popen(row.command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    return Outcome(row, process.returncode, tuple(lines))


def summary(outcomes: Sequence[Outcome]) -> str:
    """A line for each row, then each target that was missed."""
    lines = [[o.row.name, o.row.asked, o.verdict] for o in outcomes]
    missed = [f"- {o.row.name}: {line}" for o in outcomes for line in o.missed]
    return "\n".join([table(["row", "asked for", ""], lines), "", *missed]).rstrip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows; 1 if one was missed or failed."""
    parser = argparse.ArgumentParser(prog="scripts/bench --table", description=__doc__)
    names = [row.name for row in ROWS]
    parser.add_argument("--only", default="", metavar="A,B", help=f"of {', '.join(names)}")
    parser.add_argument("--list", action="store_true", help="print the rows and stop")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the summary there too")
    options = parser.parse_args(arguments)
    wanted = [name for name in options.only.split(",") if name] or names
    if unknown := sorted(set(wanted) - set(names)):
        parser.error(f"no row named {', '.join(unknown)}; there are {', '.join(names)}")
    rows = [row for row in ROWS if row.name in wanted]
    if options.list:
        print(table(["row", "asked for", "script"], [[r.name, r.asked, r.module] for r in rows]))
        return 0
    facts = "\n".join(f"- {name}: {value}" for name, value in machine.facts().items())
    outcomes = [run(row) for row in rows]
    text = f"\n# Targets\n\n{facts}\n\n{summary(outcomes)}"
    print(text)
    if options.markdown:
        options.markdown.write_text(text.lstrip() + "\n")
    return int(any(outcome.verdict != "met" for outcome in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
