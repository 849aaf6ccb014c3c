"""The reference page of the tile IR, made from the code's own docstrings and tables."""

from __future__ import annotations

import dataclasses
import inspect
import sys

from luban.tile import text
from luban.tile.op import TileOp
from luban.tile.ops import BINARY, UNARY, Binary, Unary
from luban.tile.table import GROUPS

__all__ = ["reference_page"]


def _op_section(op: type[TileOp]) -> list[str]:
    fields = dataclasses.fields(op)  # type: ignore[arg-type]  # every op is a dataclass
    attributes = ", ".join(
        f"{field.name}: {field.type}"
        + ("" if field.default is dataclasses.MISSING else f" = {field.default!r}")
        for field in fields
    )
    lines = [f"### {op.name}", "", f"`{op.__name__}({attributes})`", ""]
    shared = [base for base in op.__mro__[1:] if base is not TileOp and issubclass(base, TileOp)]
    docs = [inspect.getdoc(kind) or "" for kind in (op, *shared)]
    lines += ["```text", "\n\n".join(docs), "```", ""]
    table: dict[type[TileOp], dict[str, tuple[str, str]]] = {Unary: UNARY, Binary: BINARY}
    if op in table:
        lines += ["| kind | elements | meaning |", "| --- | --- | --- |"]
        lines += [
            f"| `{kind}` | {domain} | {meaning.replace('|', chr(92) + '|')} |"
            for kind, (domain, meaning) in table[op].items()
        ]
        lines.append("")
    return lines


def reference_page() -> str:
    """The op reference as Markdown, from the docstrings and tables of the code.

    >>> reference_page().startswith("# Tile IR reference")
    True
    """
    lines = [
        "# Tile IR reference",
        "",
        "Generated: `python -m luban.tile.reference > docs/reference/tile.md`; do not edit.",
        "",
        "`bool`, integers `i8` to `i64` and `u8` to `u64` and floats `f16 bf16 f32 f64` compute;",
        "narrower types (`i4`, `f8e4m3fn`, ...) are loaded, stored, moved, selected and cast only.",
        "Domains below: *float*; *integer*; *number* = both; *bits* = integer or bool.",
        "",
        "## Text form",
        "",
        "```text",
        inspect.cleandoc(text.__doc__ or ""),
        "```",
        "",
    ]
    for title, group in GROUPS.items():
        lines += [f"## {title}", ""]
        for op in group:
            lines += _op_section(op)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(reference_page())
