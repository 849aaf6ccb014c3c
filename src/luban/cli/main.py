"""`luban`: choose the command, turn errors into texts and exit codes.

0  done;  1  ran, and the answer is bad (a check failed, a kernel does not work)
2  bad input: a wrong option, file, name or shape;  130  interrupted

Nothing heavy is imported before a command runs, so that `luban --help` is instant.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from luban import __version__

__all__ = ["COMMANDS", "main", "parser_and_modules"]

# Each is a module of this folder with SUMMARY, add_arguments(parser) and execute(arguments) -> int.
COMMANDS = ("run", "check", "inspect", "explain", "bench", "tune", "run-kernels", "doctor", "cache")

_BAD_INPUT, _BROKEN, _INTERRUPTED = 2, 1, 130


def parser_and_modules() -> tuple[argparse.ArgumentParser, dict[str, Any]]:
    """The parser of all commands, and the module of each."""
    parser = argparse.ArgumentParser(
        prog="luban",
        description="Compile AI models, run them, and prove the answers.",
        epilog="Every command takes --json. Data goes to stdout, everything else to stderr.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"luban {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    modules: dict[str, Any] = {}
    for name in COMMANDS:
        module = modules[name] = import_module(f"luban.cli.{name.replace('-', '_')}")
        sub = commands.add_parser(
            name, help=module.SUMMARY, description=module.SUMMARY, allow_abbrev=False
        )
        module.add_arguments(sub)
        sub.add_argument("--json", action="store_true", help="print one JSON document")
    return parser, modules


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        parser, modules = parser_and_modules()
        chosen = parser.parse_args(arguments)
    except KeyboardInterrupt:
        print("luban: interrupted", file=sys.stderr)
        return _INTERRUPTED
    return _run(modules[chosen.command], chosen)


def _run(module: Any, chosen: argparse.Namespace) -> int:
    """The command's exit code, its errors told."""
    try:
        # Imported late: even the exception tree is not needed for --help.
        from luban.core.errors import InternalError, LubanError
    except KeyboardInterrupt:
        print(f"luban {chosen.command}: interrupted", file=sys.stderr)
        return _INTERRUPTED
    try:
        code = module.execute(chosen)
        sys.stdout.flush()
        return int(code)
    except LubanError as error:
        print(f"luban {chosen.command}: error: {error}", file=sys.stderr)
        return _BAD_INPUT
    except InternalError as error:
        print(f"luban {chosen.command}: {error}", file=sys.stderr)
        return _BROKEN
    except MemoryError as error:
        print(
            f"luban {chosen.command}: error: not enough memory: {error}\n"
            "hint: use smaller inputs (--size)",
            file=sys.stderr,
        )
        return _BAD_INPUT
    except KeyboardInterrupt:
        _leave_whole_files_only()
        print(f"luban {chosen.command}: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _leave_whole_files_only() -> None:
    """Remove what this process was about to write into the cache, wherever it was interrupted."""
    if "luban.native.cache" in sys.modules:  # else nothing was written
        from luban.native.cache import default_cache
        from luban.native.draft import remove_drafts

        remove_drafts(default_cache(), os.getpid())


if __name__ == "__main__":
    raise SystemExit(main())
