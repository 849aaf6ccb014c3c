"""The back end of torch.compile: inference and training, by AOTAutograd.

AOTAutograd gives forward and backward as ATen graphs without mutation; each is compiled by itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd

from luban.core import dims
from luban.core.dims import Dim, DimLike
from luban.core.errors import LubanWarning, OptionError, UnsupportedError
from luban.engine.compile import compile_graph
from luban.frontend.torch.decompositions import decompositions
from luban.frontend.torch.importer import Computed, Given, Imported, import_graph
from luban.frontend.torch.symbols import is_size, size_of
from luban.torch.tensors import array_of, tensor_of

__all__ = ["backend", "compiled_graph"]

Callee = Callable[[list[Any]], Sequence[Any]]
_FALLBACKS = ("error", "eager")


def backend(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph that torch.compile has captured: `torch.compile(model, backend="luban")`.

    options   threads: of one call; fallback: "error", the default, raises UnsupportedError for what
              has no translation, "eager" runs the graphs that have some in PyTorch, with a warning

    Raises OptionError for other options.
    """
    chosen = _checked(options or {})

    def compiler(graph: torch.fx.GraphModule, _inputs: Sequence[Any]) -> Callee:
        return compiled_graph(graph, chosen)

    build = aot_autograd(
        fw_compiler=compiler, bw_compiler=compiler, decompositions=decompositions()
    )
    made: Callable[..., Any] = build(module, example_inputs)
    return made


def _checked(options: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in options:
        if name not in ("threads", "fallback"):
            raise OptionError(
                f"option {name!r} of the back end is unknown, expected threads or fallback"
            )
    if options.get("fallback", "error") not in _FALLBACKS:
        raise OptionError(
            f"option fallback is {options['fallback']!r}, expected "
            + " or ".join(map(repr, _FALLBACKS))
        )
    threads = options.get("threads")
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise OptionError(f"option threads is {threads!r}, expected a number of at least 1")
    return options


def compiled_graph(graph: torch.fx.GraphModule, options: Mapping[str, Any]) -> Callee:
    """A function of a list of inputs, which it empties, as AOTAutograd calls compiled graphs."""
    try:
        imported = import_graph(graph)
    except UnsupportedError as error:
        if options.get("fallback", "error") == "error":
            raise
        warnings.warn(f"a graph runs in PyTorch: {error}", LubanWarning, stacklevel=2)
        return _boxed(lambda given: graph.forward(*given))
    return _boxed(_Runner(imported, graph, options.get("threads")))


def _boxed(call: Callee) -> Callee:
    def boxed(given: list[Any]) -> Sequence[Any]:
        found = call(given)
        given.clear()
        return found

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


class _Runner:
    """One compiled graph, called with PyTorch's inputs."""

    def __init__(
        self, imported: Imported, graph: torch.fx.GraphModule, num_threads: int | None
    ) -> None:
        self.executor = compile_graph(imported.graph, num_threads=num_threads).executor
        parameters = imported.graph.parameters
        self._inputs = [
            (number, parameter.tensor.dtype.numpy)
            for number, parameter in zip(imported.inputs, parameters, strict=True)
        ]
        self._outputs = imported.outputs
        placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        fakes = [n.meta.get("val") for n in placeholders]
        self._sizes = {
            str(size): (number, axis)
            for number, fake in enumerate(fakes)
            for axis, size in _sizes_of(fake)
            if isinstance(size, Dim)
        }

    def __call__(self, given: list[Any]) -> Sequence[Any]:
        arrays = [
            _seed() if number < 0 else array_of(given[number], dtype)
            for number, dtype in self._inputs
        ]
        results = self.executor.replay(arrays)
        if results is None:
            results = self.executor.run(arrays, self._sizes_in(given))
        return [self._output(output, results, given) for output in self._outputs]

    def _output(self, output: Any, results: Sequence[Any], given: Sequence[Any]) -> Any:
        if isinstance(output, Computed):
            return tensor_of(results[output.number])
        if isinstance(output, Given):
            return given[output.number]
        value = output.value
        return dims.evaluate(value, self._sizes_in(given)) if isinstance(value, Dim) else value

    def _sizes_in(self, given: Sequence[Any]) -> dict[str, int]:
        """The size of each symbol, from the first input that has it."""
        return {
            name: int(given[number]) if axis is None else int(given[number].shape[axis])
            for name, (number, axis) in self._sizes.items()
        }


def _sizes_of(fake: Any) -> Iterator[tuple[int | None, DimLike]]:
    """The sizes that an input states: itself, or its axes."""
    if is_size(fake):
        yield None, size_of(fake)
    elif isinstance(fake, torch.Tensor):
        yield from enumerate(map(size_of, fake.shape))


def _seed() -> Any:
    """A key of random bits, from PyTorch's own generator: the same after the same manual_seed."""
    drawn = torch.randint(-(2**63), 2**63 - 1, (1,), dtype=torch.int64)
    return drawn.numpy().view("uint64")
