"""From an ATen graph to a graph: the walk over PyTorch's nodes.

`import_graph` goes on past what it cannot translate, and lists all of it at the end.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from luban.core.errors import LubanError, UnsupportedError
from luban.core.loc import Loc
from luban.core.types import TensorType, tensor
from luban.frontend.torch import ops, registry
from luban.frontend.torch.call import Call
from luban.frontend.torch.names import name_of
from luban.frontend.torch.symbols import dtype_of, is_size, size_of, tensor_type
from luban.graph import build
from luban.ir.node import Graph, Node, located

__all__ = ["Computed", "Given", "Imported", "Plain", "import_graph"]

ops.register_all()


@dataclass(frozen=True, slots=True)
class Imported:
    """An ATen graph as a graph.

    inputs    for each parameter of the graph the number of PyTorch's input; -1 is the seed u64[1]
    outputs   where each of PyTorch's outputs comes from
    """

    graph: Graph
    inputs: tuple[int, ...]
    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Computed:
    """An output that is a result of the graph."""

    number: int


@dataclass(frozen=True, slots=True)
class Given:
    """An output that is an input, handed through."""

    number: int


@dataclass(frozen=True, slots=True)
class Plain:
    """An output that is no tensor: None, a number, or a size."""

    value: Any


Output = Computed | Given | Plain


class _Failed:
    """Stands for a value that could not be translated; what uses it is left out, too."""


def import_graph(
    module: torch.fx.GraphModule,
    name: str = "torch",
    *,
    held: Mapping[int, torch.Tensor] | None = None,
    names: Mapping[int, str] | None = None,
) -> Imported:
    """The graph of an ATen graph module whose nodes know their types (`meta["val"]`).

    held    inputs that are constants, by number; tensors that the module holds are constants, too
    names   of other inputs, by number; default: x0, x1, ...

    Raises UnsupportedError that lists each operator
    or form without a translation, with its place in the user's source.
    """
    walk = _Walk(module, name, held or {}, names or {})
    for given in module.graph.nodes:
        walk.visit(given)
    return walk.finish()


class _Walk:
    def __init__(
        self,
        module: torch.fx.GraphModule,
        name: str,
        held: Mapping[int, torch.Tensor],
        names: Mapping[int, str],
    ) -> None:
        self.module, self.name = module, name
        self.held, self.names = held, names
        self.values: dict[torch.fx.Node, Any] = {}
        self.inputs: list[tuple[Node, int]] = []
        self.num_inputs = 0
        self.outputs: list[Any] = []
        self.missing: dict[str, None] = {}
        self.seed: Node | None = None
        self.num_streams = 0

    def visit(self, given: torch.fx.Node) -> None:
        """Translate one node."""
        match given.op:
            case "placeholder":
                self.values[given] = self._input(given)
            case "get_attr":
                self.values[given] = self._held(given)
            case "call_function":
                self.values[given] = self._called(given)
            case "output":
                (listed,) = given.args
                self.outputs = list(listed) if isinstance(listed, list | tuple) else [listed]
            case _:
                self.missing[f"{given.op} {given.target}"] = None

    def finish(self) -> Imported:
        """The whole; raises UnsupportedError if something was missing."""
        if self.missing:
            count = len(self.missing)
            raise UnsupportedError(
                f"{self.name}: {count} operation{'s' * (count > 1)} cannot be translated:",
                items=list(self.missing),
                hint='options={"fallback": "eager"} runs the graphs that have some in PyTorch',
            )
        results: dict[Node, int] = {}
        numbers = dict(self.inputs)
        outputs: list[Output] = []
        for output in self.outputs:
            value = self.values[output] if isinstance(output, torch.fx.Node) else output
            if not isinstance(value, Node):
                outputs.append(Plain(value))
            elif value in numbers:
                outputs.append(Given(numbers[value]))
            else:
                outputs.append(Computed(results.setdefault(value, len(results))))
        parameters = [node for node, _ in self.inputs]
        order = [number for _, number in self.inputs]
        if self.seed is not None:
            parameters.append(self.seed)
            order.append(-1)
        graph = Graph(self.name, tuple(parameters), tuple(results))
        return Imported(graph, tuple(order), tuple(outputs))

    def _input(self, given: torch.fx.Node) -> Any:
        number = self.num_inputs
        self.num_inputs += 1
        if number in self.held:
            return _constant(self.held[number])
        fake: Any = given.meta.get("val")
        if isinstance(fake, torch.Tensor):
            try:
                made = build.parameter(self.names.get(number, f"x{number}"), tensor_type(fake))
            except LubanError as error:
                self.missing[f"input {given.name}: {error.message}"] = None
                return _Failed()
            self.inputs.append((made, number))
            return made
        if is_size(fake):
            return size_of(fake)
        return fake

    def _held(self, given: torch.fx.Node) -> Any:
        value: Any = self.module
        for part in str(given.target).split("."):
            value = getattr(value, part)
        return _constant(value) if isinstance(value, torch.Tensor) else value

    def _called(self, given: torch.fx.Node) -> Any:
        if is_size(given.meta.get("val")):  # arithmetic of sizes: PyTorch has done it
            try:
                return size_of(given.meta["val"])
            except LubanError as error:
                return self._fail(given, error)
        arguments = [self._argument(a) for a in given.args]
        named = {key: self._argument(a) for key, a in given.kwargs.items()}
        if any(_has_failed(a) for a in (*arguments, *named.values())):
            return _Failed()
        if given.target is operator.getitem:
            return arguments[0][arguments[1]]
        name = name_of(given.target)
        handler = registry.find(name)
        if handler is None:
            return self._fail(given, UnsupportedError("has no translation"), name)
        try:
            types = tuple(tensor_type(fake) for fake in _tensors(given.meta.get("val")))
            with located(_place(given)):
                call = Call(name, types, self._next_key, partial(_row_major, given))
                found = handler(call, *arguments, **named)
            return _checked(found, types)
        except LubanError as error:
            return self._fail(given, error, name)
        except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
            return self._fail(
                given, UnsupportedError(f"this form has no translation: {error}"), name
            )

    def _argument(self, given: Any) -> Any:
        if isinstance(given, torch.fx.Node):
            return self.values[given]
        if isinstance(given, list | tuple):
            return [self._argument(item) for item in given]
        if isinstance(given, torch.SymInt):
            return size_of(given)
        return given

    def _next_key(self) -> Node:
        if self.seed is None:
            self.seed = build.parameter("seed", tensor("u64", 1))
        self.num_streams += 1
        return build.add(self.seed, build.constant([self.num_streams], "u64"))

    def _fail(self, given: torch.fx.Node, error: LubanError, name: str = "") -> _Failed:
        message = error.message.removeprefix(f"{name}: ")
        self.missing[f"{name or given.name}: {message} ({_place(given)})"] = None
        return _Failed()


def _constant(tensor: torch.Tensor) -> Node:
    element = dtype_of(tensor.dtype)
    with unset_fake_temporarily():  # PyTorch compiles with stand-ins for tensors
        plain = tensor.detach().contiguous()
        if element.name == "bf16":
            return build.constant(plain.view(torch.int16).numpy().view(element.numpy))
        return build.constant(np.array(plain.numpy()))


def _tensors(val: Any) -> Iterator[torch.Tensor]:
    if isinstance(val, torch.Tensor):
        yield val
    elif isinstance(val, list | tuple):
        for item in val:
            yield from _tensors(item)


def _row_major(given: torch.fx.Node) -> bool:
    fakes = [fake for n in given.all_input_nodes for fake in _tensors(n.meta.get("val"))]
    return all(fake.is_contiguous() and fake.storage_offset() == 0 for fake in fakes)


def _has_failed(value: Any) -> bool:
    return isinstance(value, _Failed) or (
        isinstance(value, list | tuple) and any(_has_failed(item) for item in value)
    )


def _checked(found: Any, types: Sequence[TensorType]) -> Any:
    """What a handler gave, each in the type that PyTorch states."""
    if found is None:
        return None
    if isinstance(found, tuple):
        given = iter(types)
        return tuple(None if x is None else _settled(x, next(given)) for x in found)
    return _settled(found, types[0])


def _settled(x: Node, wanted: TensorType) -> Node:
    x = build.cast(x, wanted.dtype, saturate=False)
    return x if x.tensor.shape == wanted.shape else build.reshape(x, wanted.shape)


def _place(given: torch.fx.Node) -> Loc:
    """The line of the user's source that the node came from."""
    trace = [line.strip() for line in (given.stack_trace or "").splitlines()]
    files = [line for line in trace if line.startswith('File "')]
    if not files:
        return Loc("torch", given.name)
    _, path, rest = files[-1].split('"', 2)
    number = rest.split("line ", 1)[1].split(",")[0] if "line " in rest else ""
    return Loc(path, given.name, int(number) if number.isdigit() else None)
