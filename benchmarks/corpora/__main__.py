"""`python -m benchmarks.corpora CORPUS PATH`: run other people's kernels, print what passes.

CORPUS  tritonbench, liger, fla, flag_gems, tutorials
PATH    a folder with the corpus: of scripts, or one that holds the unpacked package
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.corpora.run import outcome_table, run_units, write_outcomes

CORPORA = ("tritonbench", "tutorials", "liger", "fla", "flag_gems")


def main() -> int:
    """Run a corpus; 1 if fewer pass than the floor asks for."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("corpus", choices=CORPORA)
    parser.add_argument("path", type=Path)
    parser.add_argument("--only", action="append", default=[], help="a part of names of units")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds a unit may take")
    parser.add_argument("--jobs", type=int, default=1, help="units at the same time")
    parser.add_argument("--output", type=Path, help="a JSON file of all outcomes")
    parser.add_argument("--details", action="store_true", help="print tracebacks")
    parser.add_argument(
        "--no-compare", action="store_true", help="tritonbench: leave out the evaluator's run"
    )
    arguments = parser.parse_args()
    module = import_module(f"benchmarks.corpora.{arguments.corpus}")
    options = {"compare": False} if arguments.no_compare else {}
    corpus = module.corpus(arguments.path, **options)
    outcomes = []
    for outcome in run_units(
        corpus, limit_s=arguments.limit, jobs=arguments.jobs, only=arguments.only
    ):
        outcomes.append(outcome)
        print(f"{outcome.status:<12} {outcome.seconds:7.2f} s  {outcome.name}  {outcome.reason}")
        if arguments.details and outcome.detail:
            print(outcome.detail)
        sys.stdout.flush()
    print("\n".join(["", corpus.name, *outcome_table(outcomes)]))
    if arguments.output:
        write_outcomes(arguments.output, corpus, outcomes)
    passed = sum(outcome.status == "pass" for outcome in outcomes)
    return 0 if passed >= corpus.floor * len(outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
