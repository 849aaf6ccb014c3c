"""Run a kernel in the tile evaluator: what the machine code of it has to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from luban.core import dims
from luban.core.types import TensorType
from luban.lower.kernel import Kernel, Operand, Result, Workspace
from luban.tile.evaluate import run

__all__ = ["run_kernel"]

Array = np.ndarray[Any, Any]


def run_kernel(
    kernel: Kernel,
    operands: Sequence[Array],
    result_types: Sequence[TensorType],
    sizes: Mapping[str, int],
) -> list[Array]:
    """The results on these operands, with every access checked. Raises what the evaluator finds."""
    results = [np.zeros(given.resolve(sizes), given.dtype.numpy) for given in result_types]
    arguments: list[Any] = []
    for argument in kernel.arguments:
        match argument:
            case Operand(index=index):
                arguments.append(np.array(operands[index], order="C").reshape(-1))
            case Result(index=index):
                arguments.append(results[index].reshape(-1))
            case Workspace(dtype=dtype, count=count):
                arguments.append(np.zeros(dims.evaluate(count, sizes), dtype.numpy))
            case size:
                arguments.append(dims.evaluate(size, sizes))
    run(kernel.module, arguments, dims.evaluate(kernel.num_programs, sizes), check=True)
    return results
