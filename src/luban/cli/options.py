"""Options that several commands share, and how they become a model and its inputs."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from luban.cli.output import note, progress

if TYPE_CHECKING:
    from luban.engine.model import Model

__all__ = [
    "add_compile_options",
    "add_input_options",
    "add_numerics_option",
    "compiled_model",
    "given_inputs",
    "read_arrays",
]


def add_compile_options(parser: argparse.ArgumentParser) -> None:
    """MODEL and what `luban.compile` takes."""
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")
    parser.add_argument(
        "--threads", type=int, metavar="N", help="threads of a call (default: LUBAN_NUM_THREADS)"
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="PASS",
        help="leave a pass out; repeatable",
    )
    parser.add_argument("--target", metavar="NAME", help="host, avx512, avx2 or neon")
    add_numerics_option(parser)
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="INPUT=SIZES",
        help="sizes of an input in place of the declared ones, such as x=batch,3,224,224",
    )


def add_numerics_option(parser: argparse.ArgumentParser) -> None:
    """How exact the model has to be."""
    parser.add_argument(
        "--numerics",
        default="strict",
        metavar="MODE",
        help="strict (default), or fast: products may round their factors to bf16",
    )


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Inputs from files, or made up."""
    parser.add_argument(
        "--inputs", metavar="FILE", help="an .npz with an array for each input, or an .npy"
    )
    parser.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="NAME=N",
        help="a symbolic size, for inputs that are made up; repeatable",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of inputs that are made up (default 0)"
    )


def compiled_model(arguments: argparse.Namespace, *, cache: bool = True) -> Model:
    """The model that the options describe."""
    from luban.engine import model

    with progress():
        return model.compile(
            os.fspath(arguments.model),
            threads=arguments.threads,
            without=arguments.without,
            shapes=_shapes(arguments.shape),
            target=arguments.target,
            numerics=arguments.numerics,
            cache=cache,
        )


def _split(text: str, option: str, expected: str) -> tuple[str, str]:
    from luban.core.errors import OptionError

    name, equals, value = text.rpartition("=")
    if not equals or not name or not value:
        raise OptionError(f"{option} {text!r} is not understood, expected {expected}")
    return name, value


def _shapes(options: list[str]) -> dict[str, list[int | str]]:
    found: dict[str, list[int | str]] = {}
    for option in options:
        name, sizes = _split(option, "--shape", "INPUT=SIZES such as x=batch,3,224,224")
        parts = [size.strip() for size in sizes.split(",")]
        found[name] = [int(size) if size.isdigit() else size for size in parts]
    return found


def sizes_of(options: list[str]) -> dict[str, int]:
    """`--size NAME=N` options as a mapping."""
    from luban.core.errors import OptionError

    found: dict[str, int] = {}
    for option in options:
        name, value = _split(option, "--size", "NAME=N such as batch=8")
        if not value.isdigit():
            raise OptionError(f"--size {option!r}: {value!r} is no whole number >= 0")
        found[name] = int(value)
    return found


def given_inputs(model: Model, arguments: argparse.Namespace) -> dict[str, Any]:
    """The inputs from files, or made up: then a note says how."""
    from luban.core.errors import OptionError

    if arguments.inputs is not None:
        if arguments.size:
            raise OptionError("--size is for inputs that are made up, but --inputs gives them")
        return _read_inputs(model, arguments.inputs)
    from luban.engine.samples import choose_sizes, sample_inputs

    values = model.executor.program.inputs
    named = [(info.name, value) for info, value in zip(model.inputs, values, strict=True)]
    sizes = choose_sizes(named, sizes_of(arguments.size))
    feeds = sample_inputs(named, sizes, arguments.seed)
    chosen = ", ".join(f"{name}={size}" for name, size in sizes.items())
    note(f"inputs are made up with seed {arguments.seed}" + (f" and sizes {chosen}" * bool(chosen)))
    return feeds


def read_arrays(path: str) -> Any:
    """The arrays of an .npz file by name, or the one of an .npy file in a list.

    Raises InputError if the file cannot be read.
    """
    import zipfile

    import numpy as np

    from luban.core.errors import InputError

    try:
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"--inputs {path}: cannot be read: {error}",
            hint="write it with numpy.savez(path, **arrays), or numpy.save for one input",
        ) from error
    if isinstance(loaded, np.ndarray):
        return [loaded]
    with loaded:
        return {name: loaded[name] for name in loaded.files}


def _read_inputs(model: Model, path: str) -> dict[str, Any]:
    from luban.core.errors import InputError

    names = [info.name for info in model.inputs]
    loaded = read_arrays(path)
    if isinstance(loaded, list):
        if len(names) != 1:
            raise InputError(
                f"--inputs {path} holds one array, the model has {len(names)} inputs: "
                f"{', '.join(names)}",
                hint="write an .npz file with an array for each",
            )
        return {names[0]: loaded[0]}
    missing = [name for name in names if name not in loaded]
    if missing:
        raise InputError(
            f"--inputs {path} has arrays {', '.join(loaded)}; missing: {', '.join(missing)}",
            hint=f"the model's inputs are {', '.join(names)}",
        )
    return {name: loaded[name] for name in names}
