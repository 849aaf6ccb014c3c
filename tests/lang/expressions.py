"""One expression of the language as a kernel, run by compiled code and by the evaluator."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

import luban.lang as tl

__all__ = ["define", "define_module", "evaluate", "expression"]

Array = np.ndarray[Any, np.dtype[Any]]
_numbers = itertools.count()


def define(text: str, **names: Any) -> tl.JITFunction:
    """A kernel from its source text; it sees `tl` and the names given."""
    file = f"<kernel {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    found: dict[str, Any] = {"tl": tl, **names}
    exec(compile(text, file, "exec"), found)
    function = next(v for v in reversed(found.values()) if callable(v) and hasattr(v, "__code__"))
    return tl.jit(function)


def define_module(text: str, name: str) -> tl.JITFunction:
    """A kernel of a module whose text is Triton's, with our names in place of its imports."""
    file = f"<kernel {next(_numbers)}>"
    body = text.partition("@triton.jit")
    plain = f"{body[1]}{body[2]}"
    linecache.cache[file] = (len(plain), None, plain.splitlines(keepends=True), file)
    found: dict[str, Any] = {
        "tl": tl,
        "libdevice": tl.libdevice,
        "triton": SimpleNamespace(jit=tl.jit),
    }
    exec(compile(plain, file, "exec"), found)
    kernel = found[name]
    assert isinstance(kernel, tl.JITFunction)
    return kernel


def _offsets(shape: tuple[int, ...]) -> str:
    """The language's text for row-major offsets of a block."""
    parts = []
    for axis, extent in enumerate(shape):
        index = ", ".join(":" if place == axis else "None" for place in range(len(shape)))
        stride = int(np.prod(shape[axis + 1 :]))
        parts.append(f"tl.arange(0, {extent})[{index}] * {stride}")
    return " + ".join(parts) or "0"


def expression(
    text: str, inputs: Mapping[str, Array], result: Array, **names: Any
) -> tl.JITFunction:
    """A kernel that loads blocks, computes an expression of them and stores it."""
    parameters = [f"{name}_ptr" for name in (*inputs, "out")]
    lines = [f"def kernel({', '.join(parameters)}):"]
    for name, array in inputs.items():
        lines.append(f"    {name} = tl.load({name}_ptr + ({_offsets(array.shape)}))")
    lines.append(f"    out = {text}")
    lines.append(f"    tl.store(out_ptr + ({_offsets(result.shape)}), out)")
    return define("\n".join(lines) + "\n", **names)


def evaluate(
    text: str, inputs: Mapping[str, Array], result: Array, **names: Any
) -> tuple[Array, Array]:
    """What an expression of loaded blocks is: (compiled, evaluated), like `result` in form."""
    kernel = expression(text, inputs, result, **names)
    found = []
    for check in (False, True):
        out = np.zeros(result.shape, result.dtype)
        kernel[(1,)](*inputs.values(), out, check=check)
        found.append(out)
    return found[0], found[1]
