"""Proof of an answer: every layer against float64, and who is to blame if one is wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from luban.core import progress
from luban.core.errors import OptionError
from luban.core.numerics import Numerics, numerics_mode
from luban.core.types import type_of_array
from luban.engine.check.bodies import check_control, is_control
from luban.engine.check.bound import Verdict, judge
from luban.engine.check.kernels import (
    StepRun,
    layer_of,
    ops_of,
    piece_of,
    step_finding,
    step_verdicts,
)
from luban.engine.check.passes import check_passes
from luban.engine.check.report import CheckReport, Finding, Layer
from luban.engine.check.repro import unpack, write_repro
from luban.engine.check.runtimes import check_runtime
from luban.engine.check.sums import sums_of_graph
from luban.engine.compile import Compiled, compile_graph
from luban.engine.exported import exported_graph, is_exported
from luban.engine.kernels import registers_of
from luban.engine.pipeline import registers_without
from luban.engine.samples import choose_sizes, sample_inputs
from luban.engine.steps import Value
from luban.frontend.onnx import Imported, import_model
from luban.frontend.onnx.load import load_model
from luban.graph.bind import bind_all
from luban.graph.evaluate import evaluate, ordered_inputs
from luban.ir.node import Graph

__all__ = ["CheckReport", "Finding", "Layer", "Verdict", "check", "check_graph", "replay"]

Source = str | os.PathLike[str] | bytes | onnx.ModelProto | Graph


def check(
    model: Source,
    inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    runtime: str = "luban",
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    threads: int | None = None,
    without: Collection[str] = (),
    numerics: str = "strict",
    repro: str | os.PathLike[str] | None = None,
    every_turn: bool = False,
) -> CheckReport:
    """Hold a model against its float64 meaning, layer by layer; name the first thing that is wrong.

    model    as `luban.compile` takes it
    inputs   by name or in order; default: made up from the types, with `seed` and `sizes`
    runtime  "luban", or another that is installed: "onnxruntime", "openvino"
    numerics "strict", or "fast": then the casts that fast numerics add are part of the meaning
    repro    where to write a script that shows the fault alone; written only if there is one
    every_turn   judge all turns of long loops; default: a sample, as a note of the report says

    The bound is that of docs/concepts/numerics.md. Raises InputError, ModelError, UnsupportedError,
    OptionError for what cannot be checked.
    """
    imported = None
    if isinstance(model, Graph):
        graph = model
    elif is_exported(model):
        graph = exported_graph(model)
    else:
        imported = import_model(model)
        graph = imported.graph
    given = _inputs(graph, inputs, sizes, seed)
    if runtime != "luban":
        return _other(model, imported, graph, given, runtime)
    return check_graph(
        graph,
        given,
        threads=threads,
        without=without,
        numerics=numerics_mode(numerics),
        repro=repro,
        every_turn=every_turn,
    )


def check_graph(
    graph: Graph,
    inputs: Sequence[Any],
    *,
    threads: int | None = None,
    without: Collection[str] = (),
    numerics: Numerics = "strict",
    repro: str | os.PathLike[str] | None = None,
    every_turn: bool = False,
) -> CheckReport:
    """`check` of our own compiler on a graph and inputs in order."""
    values = ordered_inputs(graph, inputs)
    shown = {
        name: str(type_of_array(np.asarray(x))) if isinstance(x, np.ndarray) else type(x).__name__
        for name, x in zip(graph.parameter_names, values, strict=True)
    }
    result = CheckReport(graph.name, "luban", shown)
    compiled = compile_graph(graph, num_threads=threads, without=without, numerics=numerics)
    finding, culprit = _check_passes(graph, values, compiled, without)
    piece: tuple[Graph, Sequence[Any]] = (culprit, values)
    if finding is None:
        finding, piece = _check_kernels(compiled, values, result, every_turn)
    if finding is None:
        finding = _check_end(compiled, values, result)
        piece = (graph, values)
    result.finding = finding
    if finding is not None and repro is not None:
        mode = "" if numerics == "strict" else f"--numerics {numerics} "
        command = f"luban check {mode}--repro " + os.fspath(repro)
        write_repro(repro, *piece, f"{finding.level}: {finding.culprit}", command, numerics)
        result.repro = os.fspath(repro)
    return result


def replay(graph_text: str, data: str, numerics: str = "strict") -> int:
    """What a repro script does: check its piece again; 1 if it is still wrong, 0 if not."""
    result = check_graph(*unpack(graph_text, data), numerics=numerics_mode(numerics))
    sys.stdout.write(f"{result}\n")
    return 0 if result.ok else 1


def _inputs(
    graph: Graph,
    inputs: Mapping[str, Any] | Sequence[Any] | None,
    sizes: Mapping[str, int] | None,
    seed: int,
) -> list[Any]:
    if inputs is None:
        slots = [
            (name, Value(i, p.type, "input"))
            for i, (name, p) in enumerate(zip(graph.parameter_names, graph.parameters, strict=True))
        ]
        inputs = sample_inputs(slots, choose_sizes(slots, sizes), seed)
    return ordered_inputs(graph, inputs)


def _check_passes(
    graph: Graph, values: Sequence[Any], compiled: Compiled, without: Collection[str]
) -> tuple[Finding | None, Graph]:
    registers = registers_of(compiled.target, numerics=compiled.numerics)
    registers = registers_without(registers, without)
    return check_passes(graph, values, registers, tuple(without), compiled.numerics)


def _check_kernels(
    compiled: Compiled, values: Sequence[Any], result: CheckReport, every_turn: bool
) -> tuple[Finding | None, tuple[Graph, Sequence[Any]]]:
    """The first step outside its bound, and the smallest graph that shows it."""
    found = _check_once(compiled, result)
    if found is not None:
        return found
    last: dict[Value, Any] = {}
    program = compiled.executor.program
    run = StepRun(compiled, program, values)
    for number, (step, operands, results, sizes) in enumerate(run):
        progress.report("checking kernels", number, len(program.steps))
        last.update(zip(step.results, results, strict=True))
        if is_control(step):
            inside = check_control(
                compiled,
                step,
                operands,
                results,
                sizes,
                result.layers,
                result.notes,
                every_turn=every_turn,
            )
            if inside is not None:
                return inside
            continue
        verdicts = step_verdicts(step, operands, results, sizes)
        bad = next((v for v in verdicts if not v.ok), None)
        shown = bad or max(verdicts, key=lambda v: v.error)
        result.layers.append(layer_of(step, shown))
        if bad is not None:
            finding = step_finding(compiled, step, operands, sizes, bad)
            return finding, (piece_of(step), operands)
    return _check_memory(compiled, values, last)


def _check_once(
    compiled: Compiled, result: CheckReport
) -> tuple[Finding, tuple[Graph, Sequence[Any]]] | None:
    """Values that were computed once, at load, against their bodies."""
    programs = compiled.programs.values()
    for body, value in {b: v for program in programs for b, v in program.once.items()}.items():
        (exact,) = evaluate(body, [], precision="float64")
        (plain,) = evaluate(body, [], precision="model")
        verdict = judge(value.constant, exact, plain, rounded=True)
        made = body.results[0]
        result.layers.append(Layer(made.loc.path if made.loc else body.name, ops_of(made), verdict))
        if not verdict.ok:
            culprit = f"a value computed at load ({ops_of(made)})"
            return Finding("code generation", culprit, (), str(verdict)), (body, [])
    return None


def _check_memory(
    compiled: Compiled, values: Sequence[Any], alone: Mapping[Value, Any]
) -> tuple[Finding | None, tuple[Graph, Sequence[Any]]]:
    """The program as a whole must give the very bits that its steps give alone."""
    progress.report("checking the memory plan")
    whole = (compiled.source, values)
    results = compiled.executor.run(values)
    for name, value, got in zip(
        compiled.executor.program.output_names,
        compiled.executor.program.outputs,
        results,
        strict=True,
    ):
        expected = alone.get(value.root)
        if not isinstance(got, np.ndarray) or not isinstance(expected, np.ndarray):
            continue
        if not np.array_equal(got.ravel().view(np.uint8), expected.ravel().view(np.uint8)):
            detail = (
                f"output {name!r} has other bits than the same kernels give one by one: "
                "two buffers share memory, or a kernel reads what it should not"
            )
            return Finding("memory plan", "the program as a whole", (), detail), whole
    return None, whole


def _check_end(compiled: Compiled, values: Sequence[Any], result: CheckReport) -> Finding | None:
    """Model outputs against the meaning of the source."""
    progress.report("checking the outputs")
    got = compiled.executor.run(values)
    exact = evaluate(compiled.source, values, precision="float64")
    # What fast numerics round stands in the optimised graph: its rounding is allowed.
    model = compiled.source if compiled.numerics == "strict" else compiled.optimised
    plain = evaluate(model, values, precision="model")
    names = compiled.executor.program.output_names
    sizes: dict[str, int] = {}
    rows = zip(compiled.source.parameter_names, compiled.source.parameters, values, strict=True)
    bind_all([(label, q.type, x) for label, q, x in rows], sizes)
    for name, r, e, p in zip(names, got, exact, plain, strict=True):
        sums = sums_of_graph(compiled.source, sizes, e)
        verdict = judge(r, e, p, rounded=True, sums=sums)
        result.outputs.append(Layer(name, "output", verdict))
        if verdict.bound == np.inf:
            result.notes.append(
                f"output {name!r} is not compared as a whole: rounding decides its size, which is "
                f"{list(np.shape(r))} here, {list(np.shape(p))} by the plain evaluation and "
                f"{list(np.shape(e))} in float64"
            )
    bad = next((layer for layer in result.outputs if not layer.verdict.ok), None)
    if bad is None:
        return None
    if _is_quantised(compiled.source):
        result.notes.append(
            f"output {bad.name!r} is {bad.verdict.error:.1e} from float64: every layer is right "
            "on its own operands; roundings to integers at ties carry on through the model"
        )
        return None
    return Finding("end to end", f"output {bad.name}", (bad.name,), str(bad.verdict))


def _is_quantised(graph: Graph) -> bool:
    """True if floats are rounded to integers inside: errors then jump instead of growing slowly."""
    return any(
        n.op.name in ("cast", "round")
        and n.operands
        and n.operands[0].tensor.dtype.is_float
        and (n.op.name == "round" or n.tensor.dtype.is_integer)
        for n in graph.nodes()
    )


def _other(
    model: Source, imported: Imported | None, graph: Graph, values: Sequence[Any], runtime: str
) -> CheckReport:
    if imported is None or isinstance(model, Graph):
        raise OptionError(
            f"runtime {runtime!r} cannot run a graph",
            hint="give an ONNX model, or use runtime luban",
        )
    named = dict(zip(graph.parameter_names, values, strict=True))
    shown = {name: str(type_of_array(x)) for name, x in named.items()}
    result = CheckReport(imported.source, runtime, shown)
    proto = load_model(model).whole()
    result.layers, result.outputs, result.finding, result.notes = check_runtime(
        runtime, imported, proto, named
    )
    return result
