"""docs/reference/onnx.md: which operators, versions and element types are translated.

python -m tests.frontend.onnx.support_page > docs/reference/onnx.md
"""

from __future__ import annotations

import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping

import onnx

from luban.frontend.onnx import registry
from tests.frontend.onnx.backend_cases import TABLE, cases, unsupported
from tests.frontend.onnx.type_sweep import Operator, row, templates


def page() -> str:
    """The whole page."""
    return "\n".join([*_head(), *_standard(), *_contributed(), *_not_passing()]) + "\n"


def _head() -> Iterator[str]:
    total = len(cases())
    passing = total - len(unsupported("evaluate"))
    yield "# ONNX operators"
    yield ""
    yield (
        "Generated: `python -m tests.frontend.onnx.support_page > docs/reference/onnx.md`; "
        "do not edit."
    )
    yield ""
    yield (
        f"Of the {total} node tests of onnx {onnx.__version__}, {passing} pass on the evaluator; "
        "the others stand at the end with the reason."
    )
    yield ""


def _versions() -> Mapping[Operator, list[onnx.defs.OpSchema]]:
    found: dict[Operator, list[onnx.defs.OpSchema]] = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        found[schema.domain, schema.name].append(schema)
    return {key: sorted(s, key=lambda s: s.since_version) for key, s in sorted(found.items())}


def _standard() -> Iterator[str]:
    yield "## Operators of the standard"
    yield ""
    yield (
        "*by*: how the newest version is translated: ours (a translation of our own), body (the "
        "function body that the standard states), host (with a step in Python, which `explain` "
        "lists, in the form that its node test has). *runs*: the element types of its inputs "
        "with which it was translated and ran, on the inputs of a node test; *fails*: those with "
        "which none did; *not tried*: those that no node test has an input for."
    )
    yield ""
    yield "| operator | versions | by | runs | fails | not tried |"
    yield "|---|---|---|---|---|---|"
    for operator, schemas in _versions().items():
        newest = schemas[-1]
        versions = ", ".join(str(s.since_version) for s in schemas if _translated(s))
        columns, on_host = ["", "", "all"], False
        if operator in templates():
            found = row(operator)
            on_host = found.on_host
            columns = [" ".join(names) for names in (found.runs, found.fails, found.untried)]
        by = ("ours" if _has_handler(newest) else "body") if _translated(newest) else "-"
        by = f"{by}, host" if on_host else by
        domain = f"{newest.domain}." if newest.domain else ""
        cells = [f"{domain}{newest.name}", versions or "none", by, *columns]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _has_handler(schema: onnx.defs.OpSchema) -> bool:
    return registry.find(schema.domain, schema.name, schema.since_version) is not None


def _translated(schema: onnx.defs.OpSchema) -> bool:
    return _has_handler(schema) or any(
        getattr(schema, kind) for kind in ("has_function", "has_context_dependent_function")
    )


def _contributed() -> Iterator[str]:
    yield "## Operators of com.microsoft"
    yield ""
    yield ", ".join(registry.names("com.microsoft"))
    yield ""


def _not_passing() -> Iterator[str]:
    yield "## Node tests that do not pass"
    yield ""
    yield "| tests | on | reason |"
    yield "|---|---|---|"
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    for path in ("both", "evaluate", "compiled"):
        for entry in table.get(path, []):
            where = "every path" if path == "both" else path
            yield f"| {', '.join(entry['tests'])} | {where} | {entry['reason'].strip()} |"


if __name__ == "__main__":
    sys.stdout.write(page())
