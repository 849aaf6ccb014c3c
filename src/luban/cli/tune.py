"""`luban tune`: time what this machine does fastest for a model, and remember it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from luban.cli.options import add_input_options, compiled_model, given_inputs
from luban.cli.output import emit, progress, table

if TYPE_CHECKING:
    from pathlib import Path

    from luban.tuner.tune import Tuning

SUMMARY = "time the choices that this machine leaves open for a model, and keep the fastest"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of a call")
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="INPUT=SIZES",
        help="sizes of an input in place of the declared ones, such as x=batch,3,224,224",
    )
    add_input_options(parser)
    parser.add_argument(
        "--budget", default="30s", metavar="TIME", help="such as 30s or 5m (default 30s)"
    )
    parser.add_argument(
        "--knowledge", metavar="FILE", help="where results are kept (default: LUBAN_KNOWLEDGE)"
    )
    parser.add_argument(
        "--again", action="store_true", help="time products that have been timed before, too"
    )
    parser.set_defaults(without=[], target=None, numerics="strict")


def execute(arguments: argparse.Namespace) -> int:
    """Tune it, print what was found."""
    from pathlib import Path

    from luban.engine.hardware import known_hardware
    from luban.native.knowledge import fingerprint, read_knowledge, remember
    from luban.native.knowledge_file import knowledge_path
    from luban.native.target import default_target
    from luban.tuner.tune import tune

    budget_s = seconds(arguments.budget)
    path = Path(arguments.knowledge) if arguments.knowledge else knowledge_path()
    target = default_target()
    known = {} if arguments.again else read_knowledge(path).get(fingerprint(target), {})
    remember(path, target, {})  # a file that cannot be written is told before the work
    model = compiled_model(arguments, cache=False)
    feeds = given_inputs(model, arguments)
    with progress():
        hardware = known_hardware(target)
        found = tune(
            model.compiled.source,
            [feeds[info.name] for info in model.inputs],
            target=target,
            threads=model.num_threads,
            budget_s=budget_s,
            known=known,
            store=lambda products: remember(path, target, products),
            hardware=hardware,
        )
    document = {"model": model.name, "knowledge": str(path), **found.to_json()}
    emit(document, arguments.json, lambda: _text(model.name, path, found))
    return 0


def seconds(text: str) -> float:
    """A time such as 30s, 5m or 1.5 (seconds). Raises OptionError for other texts.

    >>> seconds("30s"), seconds("2m"), seconds("1.5")
    (30.0, 120.0, 1.5)
    """
    from luban.core.errors import OptionError

    scale = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:])
    try:
        value = float(text if scale is None else text[:-1]) * (scale or 1.0)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise OptionError(f"--budget {text!r} is no time, expected one such as 30s, 5m or 1h")
    return value


def _text(name: str, path: Path, found: Tuning) -> Iterator[str]:
    if found.products:
        yield from table(
            ["product", "default", "best", "faster", "share"],
            [
                [p.words, p.default, p.best, f"{p.speedup:.2f}x", f"{100 * p.share:.1f} %"]
                for p in found.products
            ],
        )
    else:
        yield "nothing new was timed"
    if found.known:
        yield f"{found.known} products were known from earlier runs (--again times them too)"
    if found.at_limit:
        yield f"{found.at_limit} products are within a tenth of what this machine can do"
    if found.left:
        yield f"{found.left} products are left: the next run goes on with them"
    yield f"{name}: {found.speedup:.3f}x, in {found.seconds:.1f} s; kept in {path}"
