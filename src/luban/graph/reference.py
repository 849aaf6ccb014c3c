"""The reference page of the graph IR, written from the primitives' own tables and docstrings.

python -m luban.graph.reference > docs/reference/graph.md
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import fields

from luban.graph import text
from luban.graph.ops import PRIMITIVES, elementwise
from luban.graph.ops.elementwise import ElementwiseOp
from luban.ir.node import Op, Parameter

__all__ = ["reference", "undocumented"]


def reference() -> str:
    """The page as Markdown: one entry for each primitive."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    count = len(PRIMITIVES) - 1  # a parameter is no operation
    yield from (
        "# Graph IR reference",
        "",
        "Generated: `python -m luban.graph.reference > docs/reference/graph.md`; do not edit.",
        "",
        f"{count} primitives. Each has a result type (`infer` in `luban.graph.ops`), an executable",
        "meaning (`luban.graph.meaning`) in the model's dtypes and in float64, and a text form.",
        "Edge values follow [numerics](../concepts/numerics.md).",
        "",
        "## Text form",
        "",
        "```text",
        inspect.cleandoc(text.__doc__ or "").split("\n>>>")[0].rstrip(),
        "```",
        "",
        f"## {_title(elementwise)}",
        "",
        "Operands have equal shapes and one dtype of a kind listed; so has the result, but for",
        "comparisons and `is_` predicates, which give bool.",
        "",
        "| primitive | operands | kinds | result |",
        "|---|---|---|---|",
    )
    rows = [op for op in PRIMITIVES.values() if issubclass(op, ElementwiseOp)]
    for op in rows:
        meaning = _doc(op).replace("|", "\\|").replace("*", "\\*")
        yield f"| `{op.name}` | {op.arity} | {', '.join(sorted(op.kinds))} | {meaning} |"
    title = _title(elementwise)
    for name, other in PRIMITIVES.items():
        if other in rows or other is Parameter:
            continue
        if (following := _title(sys.modules[other.__module__])) != title:
            title = following
            yield from ("", f"## {title}")
        attributes = ", ".join(f"{f.name}: {f.type}" for f in fields(other) if f.compare)
        yield from ("", f"### {name}", "", f"`{name}({attributes})`", "", "```text")
        yield from (_doc(other), "```")


def _doc(op: type[Op]) -> str:
    return inspect.cleandoc(op.__doc__ or "").split("\n>>>")[0].rstrip()


def _title(module: object) -> str:
    return (inspect.getdoc(module) or "").split("\n")[0].split(":")[0].rstrip(".")


def undocumented() -> list[str]:
    """The primitives that the page leaves out."""
    page = reference()
    names = (name for name, op in PRIMITIVES.items() if op is not Parameter)
    return [n for n in names if f"\n### {n}\n" not in page and f"\n| `{n}` |" not in page]


if __name__ == "__main__":
    sys.stdout.write(reference())
