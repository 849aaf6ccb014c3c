"""The reference page of the kernel language, made from the table of its functions."""

from __future__ import annotations

import sys

from luban.frontend.kernel import BUILTINS

__all__ = ["reference_page"]

_FAMILIES = {
    "programs": "Programs and loops",
    "memory": "Memory",
    "atomics": "Atomics",
    "blocks": "Making and casting blocks",
    "shapes": "Shapes",
    "maths": "Maths",
    "libdevice": "libdevice",
    "reductions": "Reductions",
    "scans": "Scans",
    "order": "Sorting and counting",
    "products": "Matrix products",
    "random": "Random numbers",
    "hints": "Hints",
    "debugging": "Assertions and prints",
}


def reference_page() -> str:
    """The functions of the language as Markdown, one table a family.

    >>> reference_page().startswith("# The kernel language")
    True
    """
    lines = [
        "# The kernel language",
        "",
        "Generated: `python -m luban.frontend.kernel.reference > docs/reference/language.md`.",
        "",
        "Names are those of `luban.lang` and of the Triton language. A dot marks methods;",
        "`python.max` and the like are Python's own functions, as kernels may call them.",
        "",
    ]
    for family, title in _FAMILIES.items():
        rows = [row for row in BUILTINS.values() if row.family == family]
        lines += [f"## {title}", "", "| function | what it gives |", "| --- | --- |"]
        for row in rows:
            mark = "." if row.method else ""
            doc = (row.__doc__ or "").partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")
            lines.append(f"| `{mark}{row.signature}` | {doc} |")
        lines.append("")
    missing = {row.family for row in BUILTINS.values()} - set(_FAMILIES)
    assert not missing, f"families without a title: {missing}"
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(reference_page())
