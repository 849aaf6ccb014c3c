"""docs/reference/cli.md and settings.md, from the parsers and the table of settings.

python -m luban.cli.reference commands > docs/reference/cli.md
python -m luban.cli.reference settings > docs/reference/settings.md
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from luban.cli.main import parser_and_modules
from luban.core.settings import SETTINGS

__all__ = ["commands_page", "settings_page"]

_EXIT_CODES = """| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | it ran, and the answer is bad: a check failed, a node is not supported, an engine failed |
| 2 | bad input: a wrong option, file, name or shape; the text says what was expected |
| 130 | interrupted |"""


def commands_page() -> str:
    """Every command with its arguments."""
    parser, _ = parser_and_modules()
    lines = [
        "# Commands",
        "",
        "Generated: `python -m luban.cli.reference commands > docs/reference/cli.md`; do not edit.",
        "",
        "Data goes to stdout; notes, warnings, progress and errors to stderr. `--json` prints one",
        "JSON document.",
        "",
        _EXIT_CODES,
    ]
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    choices: dict[str, argparse.ArgumentParser] = commands.choices
    for name, sub in choices.items():
        lines += ["", f"## luban {name}", "", f"{_sentence(sub.description or '')}", ""]
        lines += _arguments(sub)
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield "| argument | meaning |"
    yield "| --- | --- |"
    for action in parser._actions:
        if action.dest != "help":
            yield f"| `{_usage(action)}` | {action.help or ''} |"


def _usage(action: Any) -> str:
    if action.choices:
        words = " or ".join(action.choices)
    else:
        words = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
    return " ".join(filter(None, [", ".join(action.option_strings), words]))


def settings_page() -> str:
    """Every environment variable that Luban reads."""
    lines = [
        "# Settings",
        "",
        "Generated: `python -m luban.cli.reference settings > docs/reference/settings.md`;",
        "do not edit.",
        "",
        "Environment variables; `luban doctor` shows those of this process.",
        "",
        "| variable | meaning | default |",
        "| --- | --- | --- |",
    ]
    for setting in SETTINGS:
        default = "" if setting.default is None else f"`{setting.default}`"
        lines.append(f"| `{setting.variable}` | {setting.doc} | {default} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    pages = {"commands": commands_page, "settings": settings_page}
    sys.stdout.write(pages[sys.argv[1]]())
