"""From an ONNX model to a graph: the walk over nodes, names, functions and sub-graphs.

`import_model` lists everything it cannot translate before it gives up: unknown operators by a
survey of the whole model, unsupported forms of known ones by going on past them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from luban.core.dims import symbol
from luban.core.errors import (
    DTypeError,
    InputError,
    InternalError,
    LubanError,
    ModelError,
    OptionError,
    ShapeError,
    UnsupportedError,
)
from luban.core.loc import Loc
from luban.core.types import TensorType, Type
from luban.frontend.onnx import ops, registry
from luban.frontend.onnx.context import NodeContext, RunTimeValueNeeded
from luban.frontend.onnx.functions import Functions
from luban.frontend.onnx.load import Source, element_type, load_model
from luban.frontend.onnx.loose import LooseRanks, RankMatters
from luban.frontend.onnx.order import in_order
from luban.frontend.onnx.run_time import run_time_step
from luban.frontend.onnx.scope import Failed, Scope, Value, declared_types
from luban.frontend.onnx.settling import with_settlers
from luban.frontend.onnx.size_checks import (
    BranchCheck,
    SizeCheck,
    with_branch_checks,
    with_size_checks,
)
from luban.frontend.onnx.standard import check_inputs, refusal
from luban.frontend.onnx.survey import survey
from luban.frontend.onnx.value_types import SymbolNames, type_of, with_sizes
from luban.graph import build
from luban.ir.node import Graph, Node, located

__all__ = ["Imported", "Importer", "import_model"]

ops.register_all()

# What a handler raises that was given something it did not expect.
_STUMBLES = (
    ArithmeticError,
    AttributeError,
    InternalError,
    LookupError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class Imported:
    """A model as a graph.

    `values` maps each ONNX value name of the main graph to its node, but for those of a number that
    is read as a vector. `assumptions` says what runs
    must keep to, because the model leaves it open: they fail otherwise.
    """

    graph: Graph
    values: Mapping[str, Node]
    opset: Mapping[str, int]
    metadata: Mapping[str, str]
    source: str
    assumptions: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()  # the external data that it was made from


def import_model(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    source: str | None = None,
    *,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    sizes: Mapping[str, int] | None = None,
    outputs: Sequence[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Imported:
    """The model as a graph.

    model    a path, the bytes of a file, or a ModelProto
    source   the name that errors show; by default the file's
    shapes   input name -> sizes, ints or symbol names, in place of the declared ones
    sizes    dim_param -> a fixed size
    outputs  names of values to give back, instead of the model's own outputs
    folder   where external data lies, by default the model's folder

    Raises ModelError for a broken model, UnsupportedError that lists all that has no translation,
    InputError for `shapes`, `sizes` or `outputs` that do not fit.

    >>> head = '<ir_version: 10, opset_import: ["" : 21]> main (float[batch, 3] x) => (float y)'
    >>> model = onnx.parser.parse_model(head + "{ t = Neg(x) y = Relu(t) }")
    >>> imported = import_model(model)
    >>> imported.graph.results[0].type, sorted(imported.values)
    (f32[batch,3], ['t', 'x', 'y'])
    """
    loaded = load_model(model, name=source, folder=folder)
    missing = survey(loaded.model)
    if missing:
        raise UnsupportedError(
            f"{loaded.name}: {len(missing)} node{'s' * (len(missing) > 1)} cannot be translated:",
            items=[str(item) for item in missing],
            hint="rewrite these nodes, or report the operators",
        )
    fixed: frozenset[str] = frozenset()
    while True:
        try:
            return Importer(loaded, fixed_ranks=fixed).main(shapes or {}, sizes or {}, outputs)
        except RankMatters as found:
            fixed |= {found.path}


class Importer:
    """One import in progress."""

    def __init__(
        self,
        source: Source,
        *,
        at_run_time: bool = False,
        fixed_ranks: frozenset[str] = frozenset(),
    ) -> None:
        self.source = source
        self.at_run_time = at_run_time
        self.names = SymbolNames()
        self.loose = LooseRanks(fixed_ranks)
        self.functions = Functions(source.model.functions)
        self.failures: list[str] = []
        self.assumptions: list[str] = []
        self.size_checks: list[SizeCheck] = []  # of the graph that is being read
        self.branch_checks: list[BranchCheck] = []  # the same
        self.made: list[Node] = []  # what the graph that is being read has so far, used or not
        opset = {entry.domain: entry.version for entry in source.model.opset_import}
        self.opset = _normalised(opset) if opset else {"": 1}

    # The main graph.

    def main(
        self,
        shapes: Mapping[str, Sequence[int | str]],
        sizes: Mapping[str, int],
        outputs: Sequence[str] | None,
    ) -> Imported:
        """The whole model."""
        graph = self.source.model.graph
        scope = Scope("", self.opset)
        self.add_initializers(graph, scope)
        parameters = self._parameters(graph, scope, shapes, sizes)
        scope.declared = declared_types(graph)
        self.walk(graph.node, scope)
        wanted = [v.name for v in graph.output] if outputs is None else list(outputs)
        found = self._results(wanted, scope, chosen=outputs is not None)
        values = {
            name: value
            for name, value in scope.values.items()
            if isinstance(value, Node) and value not in self.loose.origin
        }
        self.loose.refuse(found)
        results = with_branch_checks(found, self.branch_checks)
        results = with_settlers(results, parameters, self.made)
        results = with_size_checks(results, parameters, self.size_checks)
        named = Graph(graph.name or "main", tuple(parameters), results, tuple(wanted))
        metadata = {entry.key: entry.value for entry in self.source.model.metadata_props}
        assumptions = tuple(self.assumptions)
        source = self.source
        return Imported(named, values, self.opset, metadata, source.name, assumptions, source.files)

    def _parameters(
        self,
        graph: onnx.GraphProto,
        scope: Scope,
        shapes: Mapping[str, Sequence[int | str]],
        sizes: Mapping[str, int],
    ) -> list[Node]:
        inputs = [v for v in graph.input if v.name not in scope.lazy]
        known = {v.name for v in inputs}
        for name in shapes:
            if name not in known:
                raise InputError(
                    f"{self.source.name} has no input {name!r}", hint="inputs: " + ", ".join(known)
                )
        self._fix_sizes(inputs, sizes)
        parameters: list[Node] = []
        for value in inputs:
            if value.name in scope.values:
                raise ModelError(f"{self.source.name}: two inputs are called {value.name!r}")
            node = build.parameter(value.name, self._input_type(value, shapes.get(value.name)))
            scope.values[value.name] = node
            parameters.append(node)
        return parameters

    def _fix_sizes(self, inputs: Iterable[onnx.ValueInfoProto], sizes: Mapping[str, int]) -> None:
        parameters = {
            d.dim_param for v in inputs for d in v.type.tensor_type.shape.dim if d.dim_param
        }
        for name, size in sizes.items():
            if name not in parameters:
                raise InputError(
                    f"{self.source.name} has no symbolic size {name!r}",
                    hint="symbolic sizes: " + (", ".join(sorted(parameters)) or "none"),
                )
            if size < 0:
                raise InputError(f"size {name!r} is {size}, expected 0 or more")
            self.names.fix(name, size)
        for name in sorted(parameters - set(sizes)):
            if name.isidentifier():
                self.names.named(name)  # so that expressions over it are understood

    def _input_type(self, value: onnx.ValueInfoProto, sizes: Sequence[int | str] | None) -> Type:
        proto = value.type
        if sizes is None:
            return type_of(proto, value.name, self.names)
        if isinstance(sizes, str) or not isinstance(sizes, Sequence):
            raise InputError(
                f"input {value.name!r}: the shape {sizes!r} is a {type(sizes).__name__}, "
                "expected a list of sizes"
            )
        if not proto.tensor_type.HasField("shape"):
            element = element_type(proto.tensor_type.elem_type)
            declared: Type = TensorType(element, tuple(symbol(f"a{i}") for i in range(len(sizes))))
        else:
            declared = type_of(proto, value.name, self.names)
        return with_sizes(value.name, declared, sizes, self.names)

    def _results(self, wanted: Sequence[str], scope: Scope, *, chosen: bool) -> list[Node]:
        results: list[Node] = []
        for name in wanted:
            value = scope.find(name)
            if value is None:
                where = f"{self.source.name} has no value {name!r}"
                raise (
                    InputError(where, hint="names are those of node outputs")
                    if chosen
                    else ModelError(f"{where}, which it states as an output")
                )
            if isinstance(value, Node):
                results.append(value)
        if self.failures:
            raise UnsupportedError(
                f"{self.source.name}: {len(self.failures)} "
                f"node{'s' * (len(self.failures) > 1)} cannot be translated:",
                items=self.failures,
            )
        return results

    def add_initializers(self, graph: onnx.GraphProto, scope: Scope) -> None:
        """Let the constants of a graph be found by name; each is read when first used."""
        for tensor in graph.initializer:
            scope.lazy[tensor.name] = self._constant(tensor)
        for sparse in graph.sparse_initializer:
            scope.lazy[sparse.values.name] = self._sparse_constant(sparse)

    def _constant(self, tensor: onnx.TensorProto) -> Callable[[], Node]:
        return lambda: build.constant(self.source.array(tensor), label=tensor.name)

    def _sparse_constant(self, sparse: onnx.SparseTensorProto) -> Callable[[], Node]:
        return lambda: build.constant(self.source.dense(sparse), label=sparse.values.name)

    # Nodes.

    def walk(self, nodes: Sequence[onnx.NodeProto], scope: Scope) -> None:
        """Translate nodes in an order in which operands come first, whatever order the file has.

        Raises ModelError if they form a cycle, or use a value that nothing makes.
        """
        for index, proto in in_order(nodes, self.source.name):
            name = proto.name or f"{proto.op_type}_{index}"
            loc = Loc(self.source.name, f"{scope.path}/{name}" if scope.path else name)
            with located(loc):
                self._add(proto, scope, loc)

    def _add(self, proto: onnx.NodeProto, scope: Scope, loc: Loc) -> None:
        inputs: list[Node | None] = []
        for name in proto.input:
            value = scope.find(name) if name else None
            if name and value is None and not scope.is_absent(name):
                raise ModelError(
                    f"{proto.op_type} uses {name!r}, which nothing makes",
                    hint="not an input, an initializer or the output of any node",
                    loc=loc,
                )
            if isinstance(value, Failed):
                self._fail(proto, scope, value)
                return
            inputs.append(value)
        loose = self.loose.follow(proto, inputs)
        try:
            results = self.apply(proto, inputs, scope, loc)
        except RunTimeValueNeeded as needed:
            if scope.is_function or self.at_run_time:
                raise
            error = UnsupportedError(
                f"{proto.op_type}: the number of axes of its result depends on a value of type "
                f"{needed.value.type} that only the run knows",
                hint="state the result in value_info",
            )
            self.failures.append(_one_line(error, inputs, loc))
            self._fail(proto, scope, Failed(error.message))
            return
        except UnsupportedError as error:
            self.failures.append(_one_line(error, inputs, loc))
            self._fail(proto, scope, Failed(error.message))
            return
        except (ShapeError, DTypeError, OptionError) as error:
            raise _explained(error, proto, inputs, loc) from error
        except LubanError as error:
            raise error.located(loc) from None
        if len(results) < len(proto.output) and any(proto.output[len(results) :]):
            raise ModelError(
                f"{proto.op_type} has {len(proto.output)} outputs, expected {len(results)}", loc=loc
            )
        for name, result in zip(proto.output, results, strict=False):
            if name:
                self._define(name, result, scope, loc)
            if isinstance(result, Node):
                self.made.append(result)
                if loose is not None:
                    self.loose.origin[result] = loose

    def _define(self, name: str, value: Value, scope: Scope, loc: Loc) -> None:
        if name in scope.values or name in scope.lazy:
            raise ModelError(f"two nodes make {name!r}", loc=loc)
        scope.values[name] = value

    def _fail(self, proto: onnx.NodeProto, scope: Scope, reason: Failed) -> None:
        for name in proto.output:
            if name:
                scope.values[name] = reason

    def apply(
        self, proto: onnx.NodeProto, inputs: Sequence[Node | None], scope: Scope, loc: Loc
    ) -> tuple[Value, ...]:
        """The results of one node: by its function, its handler, or the body in its schema."""
        attributes = _resolved(proto, scope)
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        local = self.functions.local(domain, proto)
        opset = scope.opset.get(domain, 1)
        context = NodeContext(proto, opset, loc, scope, self, attributes)
        try:
            if local is not None:
                return self.functions.expand(self, local, context, inputs)
            handler = registry.find(domain, proto.op_type, opset)
            if handler is not None:
                given = _trimmed(inputs)
                check_inputs(handler, context, given)
                return _as_tuple(handler(context, *given))
            body = self.functions.standard(domain, opset, context, inputs)
            if body is not None:
                return self.functions.expand(self, body, context, inputs)
        except RunTimeValueNeeded as needed:
            if self.at_run_time:
                raise
            return run_time_step(context, inputs, needed.results)
        except _STUMBLES as error:
            why = refusal(context, proto, inputs)
            if why is not None:
                raise context.wrong(f"given ({_types(inputs)}): {why}") from error
            if isinstance(error, InternalError):
                raise
            raise InternalError(
                f"{proto.op_type} of ({_types(inputs)}): {error!r}", loc=loc
            ) from error
        raise context.unsupported("no translation")

    def call(
        self,
        context: NodeContext,
        op: str,
        inputs: Sequence[Node | None],
        attributes: Mapping[str, Any],
        *,
        domain: str,
        opset: int | None,
        num_outputs: int,
    ) -> tuple[Node, ...]:
        """The results of an operator that a handler is composed of."""
        names = [f"_{i}" if x is not None else "" for i, x in enumerate(inputs)]
        made = [f"{op}_{i}" for i in range(num_outputs)]
        proto = onnx.helper.make_node(op, names, made, domain=domain, **attributes)
        versions = dict(context.scope.opset)
        if opset is not None or domain not in versions:
            versions[domain] = opset or 1
        scope = Scope(context.loc.path, versions, is_function=True)
        results = self.apply(proto, inputs, scope, context.loc)
        if any(isinstance(result, Failed) for result in results):
            raise context.unsupported(f"it is composed of {op}, which has no translation")
        return tuple(result for result in results if isinstance(result, Node))


def _normalised(opset: Mapping[str, int]) -> dict[str, int]:
    return {"" if domain == "ai.onnx" else domain: version for domain, version in opset.items()}


def _resolved(proto: onnx.NodeProto, scope: Scope) -> dict[str, onnx.AttributeProto]:
    """The attributes by name, with those that refer to the enclosing function's looked up there."""
    found: dict[str, onnx.AttributeProto] = {}
    for attribute in proto.attribute:
        if not attribute.ref_attr_name:
            found[attribute.name] = attribute
        elif attribute.ref_attr_name in scope.attributes:
            found[attribute.name] = scope.attributes[attribute.ref_attr_name]
    return found


def _trimmed(inputs: Sequence[Node | None]) -> Sequence[Node | None]:
    """The inputs without left-out ones at the end."""
    count = len(inputs)
    while count and inputs[count - 1] is None:
        count -= 1
    return inputs[:count]


def _as_tuple(results: Node | Sequence[Node]) -> tuple[Node, ...]:
    return (results,) if isinstance(results, Node) else tuple(results)


def _types(inputs: Sequence[Node | None]) -> str:
    return ", ".join("none" if x is None else str(x.type) for x in inputs)


def _one_line(error: LubanError, inputs: Sequence[Node | None], loc: Loc) -> str:
    nearest = f"; nearest: {error.hint}" if error.hint else ""
    return f"{loc.path}: {error.message}, given ({_types(inputs)}){nearest}"


def _explained(
    error: LubanError, proto: onnx.NodeProto, inputs: Sequence[Node | None], loc: Loc
) -> LubanError:
    """The same kind of error, saying which ONNX node was being translated and what it was given.

    One of a node inside a branch or a loop's body says so already, and where that node is.
    """
    if error.loc is not None and error.loc.path.startswith(f"{loc.path}/") and _has_body(proto):
        return error
    error.message = f"{proto.op_type} of ({_types(inputs)}): {error.message}"
    error.loc = loc
    return error


def _has_body(proto: onnx.NodeProto) -> bool:
    return any(attribute.type == onnx.AttributeProto.GRAPH for attribute in proto.attribute)
