"""`luban run-kernels`: run a script that says `import triton` on the CPU, unmodified."""

from __future__ import annotations

import argparse

SUMMARY = "run a script with Triton kernels on the CPU"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("script", metavar="SCRIPT", help="a Python file")
    parser.add_argument(
        "arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER, help="go to the script"
    )
    parser.add_argument(
        "--device-map",
        metavar="FROM=TO",
        help="such as cuda=cpu: PyTorch calls that name the first device use the second",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="run kernels in the evaluator: find accesses out of bounds, races, "
        "uninitialised reads and index overflow",
    )
    parser.add_argument(
        "--shadow", action="store_true", help="stand in for Triton even where it is installed"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Run the script under the stand-in; what it raises is its own affair, a LubanError is ours."""
    import runpy
    import sys
    from contextlib import nullcontext
    from pathlib import Path

    from luban.core import settings
    from luban.core.errors import OptionError
    from luban.lang import compat

    script = Path(arguments.script)
    if not script.is_file():
        raise OptionError(f"there is no script {arguments.script}", hint="give a Python file")
    argv, path = sys.argv, list(sys.path)
    sys.argv = [arguments.script, *arguments.arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        with (
            settings.overridden(settings.KERNEL_CHECK, "1") if arguments.check else nullcontext(),
            compat.standing_in(device_map=arguments.device_map, shadow=arguments.shadow),
        ):
            runpy.run_path(arguments.script, run_name="__main__")
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return int(error.code or 0)
        print(error.code, file=sys.stderr)
        return 1
    finally:
        sys.argv, sys.path[:] = argv, path
    return 0
