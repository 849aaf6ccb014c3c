"""What users hold: a compiled model with named inputs and outputs.

>>> import numpy as np
>>> from luban.core.types import tensor
>>> from luban.graph import build
>>> from luban.ir.node import Graph
>>> x = build.parameter("x", tensor("f32", "batch", 2))
>>> model = compile(Graph("double", (x,), (build.add(x, x),), ("y",)))
>>> model(np.ones((1, 2), np.float32))
{'y': array([[2., 2.]], dtype=float32)}
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from luban.core.errors import InputError, LubanError, OptionError
from luban.core.numerics import numerics_mode
from luban.core.types import TensorType, Type
from luban.engine.arrays import as_array
from luban.engine.artifact import artifact_key, last_sizes, read_artifact, remember_sizes
from luban.engine.executor import Executor
from luban.graph.bind import bind_inputs
from luban.native.cache import Cache, default_cache
from luban.native.call import begin_runtime
from luban.native.host import is_known
from luban.native.target import default_target, host_target, named_target

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    import onnx
    from torch.export import ExportedProgram

    from luban.engine.compilation import Compilation
    from luban.engine.compile import Compiled
    from luban.engine.once import StartDraft
    from luban.frontend.onnx import Imported
    from luban.ir.node import Graph

    Source = str | os.PathLike[str] | bytes | onnx.ModelProto | ExportedProgram | Graph

__all__ = ["Model", "TensorInfo", "compile", "load"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One input or output: its name and its type, such as `f32[batch,3,224,224]`."""

    name: str
    type: Type

    @property
    def dtype(self) -> str:
        """The element type's name, such as `f32`."""
        return str(self.type.dtype) if isinstance(self.type, TensorType) else str(self.type)

    @property
    def shape(self) -> tuple[int | str, ...]:
        """Sizes; symbolic ones as text."""
        if not isinstance(self.type, TensorType):
            return ()
        return tuple(s if isinstance(s, int) else str(s) for s in self.type.shape)

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


class Model:
    """A compiled model. Calls are safe from several threads at once.

    name              what errors call it
    inputs, outputs   names, symbolic shapes and dtypes, in the model's order
    from_cache        whether it came from the cache, without a compiler
    """

    def __init__(
        self,
        executor: Executor,
        recompile: Callable[[], Compilation],
        *,
        name: str = "",
        from_cache: bool = False,
    ) -> None:
        program = executor.program
        self.name = name or program.name
        self.inputs = tuple(
            TensorInfo(name, value.type)
            for name, value in zip(program.input_names, program.inputs, strict=True)
        )
        self.outputs = tuple(
            TensorInfo(name, value.type)
            for name, value in zip(program.output_names, program.outputs, strict=True)
        )
        self.from_cache = from_cache
        self.executor = executor
        self._input_names = program.input_names
        self._output_names = program.output_names
        self._recompile = recompile
        self._compilation: Compilation | None = None
        self._lock = threading.Lock()
        self._workers: ThreadPoolExecutor | None = None
        self._workers_of = 0  # the process that they live in

    @property
    def compiled(self) -> Compiled:
        """Graphs, pass reports and kernels; compiled again unless it was with `cache=False`."""
        return self._compilation_now().compiled

    @property
    def imported(self) -> Imported | None:
        """What the front end gave, for a model file; see `compiled`."""
        return self._compilation_now().imported

    def _compilation_now(self) -> Compilation:
        with self._lock:
            if self._compilation is None:
                self._compilation = self._recompile()
            return self._compilation

    @property
    def num_threads(self) -> int:
        """Threads that one call uses at most."""
        return self.executor.num_threads

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> dict[str, Any]:
        """Run the model; the outputs by name, as fresh arrays.

        Inputs come in order, by keyword, or as one mapping from names (the way to give an input
        that is called `out`). Each is a numpy array of the declared dtype, anything with
        `__dlpack__` on the CPU (no copy where it is contiguous), or nested numbers.

        out   arrays to write outputs to: a mapping from names, a sequence in order, or the array of
              the only output. No fresh memory is used for what is contiguous and overlaps no input.

        Raises InputError for a name, dtype, rank or size that does not fit.
        """
        if out is None and not named:
            # A repeated call takes microseconds, so its checks are left to the bound program.
            if len(arrays) == 1 and type(arrays[0]) is dict:
                feeds = arrays[0]
                given = [feeds.get(name) for name in self._input_names]
                quick = len(feeds) == len(given)
            else:
                given, quick = list(arrays), True
            if quick:
                results = self.executor.replay(given)
                if results is not None:
                    return dict(zip(self._output_names, results, strict=True))
        values = self._ordered(arrays, named)
        outputs = self._checked_out(out)
        given_out = [output for output in outputs if output is not None]
        if not given_out or (len(given_out) == len(outputs) and _apart(values, given_out)):
            results = self.executor.replay(values, given_out or None)
            if results is not None:
                return dict(zip(self._output_names, results, strict=True))
        try:
            results = self.executor.run(values, out=outputs)
        except MemoryError as error:
            shapes = ", ".join(
                f"{n} {list(np.shape(v))}" for n, v in zip(self._input_names, values, strict=True)
            )
            raise LubanError(
                f"{self.name}: not enough memory for inputs {shapes}: {error}",
                hint="use a smaller batch or smaller inputs",
            ) from error
        return dict(zip(self._output_names, results, strict=True))

    def run_async(self, *arrays: Any, out: Any = None, **named: Any) -> Future[dict[str, Any]]:
        """Start a call on another thread and return a future of its outputs.

        Do not change the inputs before it is done.
        """
        with self._lock:
            if self._workers is None or self._workers_of != os.getpid():  # none live on in a fork
                self._workers_of = os.getpid()
                futures = import_module("concurrent.futures")  # loads logging: not for a start
                self._workers = futures.ThreadPoolExecutor(thread_name_prefix="luban-run")
        return self._workers.submit(self, *arrays, out=out, **named)

    def _ordered(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        names = self._input_names
        if len(arrays) == 1 and isinstance(arrays[0], Mapping) and not named:
            named, arrays = arrays[0], ()
        if arrays and named:
            given = dict(zip(names, arrays, strict=False))
            if given.keys() & named.keys() or len(arrays) > len(names):
                raise InputError(
                    f"{self.name}: given {len(arrays)} inputs in order and {sorted(named)} by "
                    f"name, expected {len(names)}: {', '.join(names)}"
                )
            named, arrays = {**given, **named}, ()
        types = [info.type for info in self.inputs]
        if named or not arrays:
            read = {name: as_array(value, name) for name, value in named.items()}
            return bind_inputs(self.name, names, types, read)
        labels = (*names, *[""] * len(arrays))
        in_order = [as_array(v, label) for v, label in zip(arrays, labels, strict=False)]
        return bind_inputs(self.name, names, types, in_order)

    def _checked_out(self, out: Any) -> list[Array | None]:
        """One array or None for each output."""
        if out is None:
            return [None] * len(self.outputs)
        names = self._output_names
        if isinstance(out, Mapping):
            if unknown := [name for name in out if name not in names]:
                raise InputError(
                    f"{self.name}: out names {', '.join(map(str, unknown))}, "
                    f"expected some of {', '.join(names)}"
                )
            given = [out.get(name) for name in names]
        else:
            given = list(out) if isinstance(out, list | tuple) else [out]
            if len(given) != len(names):
                raise InputError(
                    f"{self.name}: given {len(given)} arrays to write to, "
                    f"expected {len(names)}: {', '.join(names)}"
                )
        return [
            None if array is None else _writeable(array, info)
            for array, info in zip(given, self.outputs, strict=True)
        ]

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self.name} is machine code in this process and cannot be copied or pickled; "
            "load the model where it is needed, which the cache makes quick"
        )

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        return f"<luban model {self.name}: ({inputs}) -> ({outputs})>"

    def _repr_html_(self) -> str:
        """A table of inputs and outputs, for notebooks."""
        rows = "".join(
            f"<tr><td>{kind}</td><td>{_escaped(info.name)}</td>"
            f"<td><code>{_escaped(str(info.type))}</code></td></tr>"
            for kind, infos in (("input", self.inputs), ("output", self.outputs))
            for info in infos
        )
        return (
            f"<table><caption>Luban model {_escaped(self.name)}, "
            f"{self.num_threads} thread{'s' * (self.num_threads > 1)}</caption>{rows}</table>"
        )


def _apart(inputs: Sequence[Any], outputs: Sequence[Array]) -> bool:
    """Whether no output may share memory with another array."""
    return not any(
        isinstance(other, np.ndarray) and np.may_share_memory(output, other)
        for number, output in enumerate(outputs)
        for other in (*inputs, *outputs[:number])
    )


def _escaped(text: str) -> str:
    """The text in HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _writeable(array: Any, info: TensorInfo) -> Array:
    array = as_array(array, info.name)
    if not isinstance(array, np.ndarray) or not isinstance(info.type, TensorType):
        raise InputError(f"out {info.name!r} is a {type(array).__name__}, expected an array")
    if array.dtype != info.type.dtype.numpy or not array.flags.writeable:
        locked = "" if array.flags.writeable else "read-only "
        raise InputError(
            f"out {info.name!r} is {locked}{array.dtype}{list(array.shape)}, "
            f"expected a writeable array of {info.type}",
            hint=f"make it with numpy.empty(shape, {info.type.dtype.numpy.name!r})",
        )
    return array


def _is_thread_count(given: object) -> bool:
    return isinstance(given, int) and given >= 1


def _load_compiler() -> Any:
    """The compiler, with its process on the way; a model from the cache runs without any of it."""
    import_module("luban.native.compiler").start()
    return import_module("luban.engine.compilation")


def _prepare(executor: Executor, key: str, stored: Cache) -> None:
    """Do at load what the first call would begin with, if it is like that of the last process."""
    executor.prepare(last_sizes(key, stored))
    executor.remember = lambda sizes: remember_sizes(key, stored, sizes)


def load(path: str | os.PathLike[str], **options: Any) -> Model:
    """Load and compile a model file. Options are those of `compile`.

    Raises ModelError if the file is not a model, UnsupportedError with every operator that is not.
    """
    return compile(path, **options)


def compile(  # noqa: A001  # luban.compile is the name people look for
    model: Source,
    *,
    threads: int | None = None,
    without: Collection[str] = (),
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    target: str | None = None,
    numerics: str = "strict",
    cache: bool = True,
) -> Model:
    """Compile a model: a path to an ONNX or `.pt2` file, the bytes of an ONNX file, a ModelProto, a
    program of torch.export, or a graph.

    threads  threads of one call; default LUBAN_NUM_THREADS or the CPUs this process may use
    without  names of passes to leave out, as `luban explain` lists them
    shapes   input name -> sizes (numbers or symbol names), in place of the declared ones
    target   code generation target that this machine can run; default LUBAN_TARGET or the machine
    numerics "strict", the default, computes nothing in less precision than the model says; "fast"
             may round the factors of products to bf16 (docs/concepts/numerics.md)
    cache    whether a file that was compiled before may come from the cache, without a compiler;
             False also keeps what `compiled` gives at hand, at the price of its memory

    Raises ModelError if the file is not a model, UnsupportedError with every operator that is not,
    OptionError for an option out of its range.
    """
    if threads is not None and not _is_thread_count(threads):
        raise OptionError(f"threads={threads!r}, expected at least 1 (a whole number)")
    if not is_known():
        import_module("luban.native.compiler").start()  # LLVM is asked, in its own process
    chosen = default_target() if target is None else named_target(target)
    if not chosen.runs_here:
        raise OptionError(
            f"target {chosen.name!r} is for other machines: this one, {host_target().cpu}, "
            "cannot run its code",
            hint="leave the target out; luban doctor shows this machine's features",
        )
    if isinstance(without, str):
        raise OptionError(
            f"without={without!r} is one text, expected a list of names of passes",
            hint=f"write without=[{without!r}]",
        )
    mode = numerics_mode(numerics)
    given = dict(shapes or {})
    stored = default_cache()
    name = Path(model).name if isinstance(model, str | os.PathLike) else ""
    key: str | None = None
    if cache and isinstance(model, str | os.PathLike | bytes):
        key = artifact_key(model, tuple(without), given, chosen, mode, stored)

    def recompile(start_draft: StartDraft = lambda _: None) -> Compilation:
        compile_source = _load_compiler().compile_source
        compilation: Compilation = compile_source(
            model, threads, without, given, chosen, mode, start_draft
        )
        return compilation

    if key is not None:
        found = read_artifact(key, threads, stored)
        if found is not None:
            _prepare(found, key, stored)
            return Model(found, recompile, name=name, from_cache=True)
    if key is None:
        compilation = recompile()
        made = Model(compilation.compiled.executor, recompile, name=name)
        made._compilation = compilation
        return made
    apart = import_module("luban.engine.apart")
    executor = apart.compile_apart(model, without, given, chosen, mode, threads, key, stored)
    if executor is not None:
        _prepare(executor, key, stored)
        return Model(executor, recompile, name=name)
    begin_runtime()
    writer = import_module("luban.engine.artifact_writer").ArtifactWriter(key, stored)
    try:
        compilation = recompile(writer.start_draft)
        # The compilation is not kept: its graphs hold every weight a second time, before packing.
        writer.write(compilation)
    except BaseException:
        writer.discard()
        raise
    return Model(compilation.compiled.executor, recompile, name=name)
