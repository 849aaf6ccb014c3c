"""`@jit`: a Python function as a kernel that is compiled when it is first launched."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from luban.codegen.triton_source import triton_source
from luban.core.errors import InputError
from luban.frontend.kernel import KernelSource, build
from luban.lang.arguments import specialise
from luban.lang.interface import KernelInterface
from luban.lang.launch import Compiled, compile_kernel, evaluate_kernel, wants_checks

__all__ = ["JITFunction", "Launcher", "grid_of", "jit"]

# What launches on GPUs may be told besides the kernel's parameters.
LAUNCH_OPTIONS = frozenset(
    ("num_warps", "num_stages", "num_ctas", "num_buffers_warp_spec", "num_consumer_groups",
     "reg_dec_producer", "reg_inc_consumer", "maxnreg", "enable_fp_fusion", "debug",
     "stream", "device", "launch_cooperative_grid", "launch_pdl", "allow_fp8e4nv",
     "waves_per_eu", "matrix_instr_nonkdim", "kpack", "extern_libs", "grid")
)  # fmt: skip


def grid_of(grid: Any, arguments: Mapping[str, Any]) -> tuple[int, int, int]:
    """The extents of a launch grid: a number, up to three of them, or a function that gives them.

    Raises InputError for anything else.

    >>> grid_of(lambda meta: (meta["n"] // 2,), {"n": 8})
    (4, 1, 1)
    """
    if callable(grid):
        grid = grid(arguments)
    extents = (grid,) if isinstance(grid, int) else tuple(grid)
    try:
        whole = tuple(int(extent) for extent in extents)
    except (TypeError, ValueError):
        whole = ()
    if not 1 <= len(whole) <= 3 or min(whole) < 0:
        raise InputError(
            f"the grid is {grid!r}, expected one to three extents of at least 0",
            hint="kernel[(n,)](...) launches n programs",
        )
    return (*whole, *(1,) * (3 - len(whole)))  # type: ignore[return-value]


class Launcher:
    """What `kernel[grid]` gives: call it with the kernel's arguments."""

    def __init__(self, run: Callable[..., Any], grid: Any) -> None:
        self._run = run
        self._grid = grid

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Launch."""
        return self._run(*arguments, grid=self._grid, **keywords)


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """What is known of a kernel's parameter before a launch; `default` as inspect gives it."""

    num: int
    name: str
    is_constexpr: bool
    do_not_specialize: bool
    default: Any


class JITFunction(KernelInterface):
    """A kernel. `kernel[grid](arguments)` launches one program for each place of the grid.

    Arrays may be numpy's, torch's (on the CPU) or any with __dlpack__; they are not copied. Numbers
    that are 1, None and parameters annotated `tl.constexpr` are compiled in.

    check=True in a call, or LUBAN_KERNEL_CHECK=1, runs the kernel in the evaluator, which finds
    accesses out of bounds, races between programs, reads of what was never written and index
    overflow, each with the line of the kernel.
    """

    def __init__(self, function: Callable[..., Any], general: Sequence[str | int] = ()) -> None:
        self.fn = function
        self.kernel_source = KernelSource(function)
        self.arg_names = list(self.kernel_source.parameters)
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__globals__ = function.__globals__
        self.__doc__ = function.__doc__
        text = self.kernel_source.place.text
        self.src = text[text.index("def ") :]  # without decorators
        self._constexprs = self.kernel_source.constexprs
        self._general = frozenset(
            self.arg_names[name] if isinstance(name, int) else name for name in general
        )
        self._compiled: dict[tuple[Any, ...], Compiled] = {}

    @property
    def signature(self) -> inspect.Signature:
        """Of the Python function."""
        return self.kernel_source.signature

    @property
    def params(self) -> list[KernelParameter]:
        """The parameters, in order."""
        return [
            KernelParameter(
                number, name, name in self._constexprs, name in self._general, parameter.default
            )
            for number, (name, parameter) in enumerate(self.signature.parameters.items())
        ]

    @property
    def cache_key(self) -> str:
        """A hash of the source, of every kernel that it calls, and of the numbers that it sees."""
        return self.kernel_source.digest()

    def __repr__(self) -> str:
        return f"JITFunction({self.__module__}:{self.__qualname__})"

    def __getitem__(self, grid: Any) -> Launcher:
        return Launcher(self.run, grid)

    def __call__(self, *_arguments: Any, **_keywords: Any) -> Any:
        """Refuse: raises InputError. A kernel is launched with a grid."""
        raise InputError(
            f"{self.__name__} is a kernel, called without a grid",
            hint=f"launch it with {self.__name__}[(num_programs,)](...)",
        )

    def bound(self, grid: Any, *arguments: Any, **keywords: Any) -> Callable[[], None]:
        """A launch of the kernel on these very arguments, to be called again and again.

        It costs a tenth of a launch: nothing is looked at again. The arrays must stay where they
        are, and the kernel must not be launched from other threads meanwhile. Raises what a launch
        raises, and InputError for a kernel that runs in the evaluator.
        """
        given = self.kernel_source.bind(arguments, keywords)
        call = specialise(self.arg_names, given, self._constexprs, self._general)
        compiled = compile_kernel(self.kernel_source, call)
        return compiled.bound(grid_of(grid, given), call)

    def triton_source(self, *arguments: Any, **keywords: Any) -> str:
        """The kernel as source text of the Triton language, for these kinds of arguments.

        Constants are written in, calls are inlined, every step has its type. Raises
        UnsupportedError, with every case, for what the language has no words for.
        """
        given = self.kernel_source.bind(arguments, keywords)
        call = specialise(self.arg_names, given, self._constexprs, self._general)
        return triton_source(build(self.kernel_source, call.types, call.constants))

    def warmup(self, *arguments: Any, grid: Any, **keywords: Any) -> Compiled | None:
        """Compile for these kinds of arguments, without a launch; see `run`."""
        return self.run(*arguments, grid=grid, warmup=True, **keywords)

    def run(
        self, *arguments: Any, grid: Any, warmup: bool = False, **keywords: Any
    ) -> Compiled | None:
        """Launch; gives the compiled kernel, None if it was evaluated with checks.

        warmup   compile only

        Raises InputError for arguments that do not fit and KernelError for what cannot be compiled.
        """
        names = self.arg_names
        check = wants_checks(names, keywords)
        for option in [k for k in keywords if k in LAUNCH_OPTIONS and k not in names]:
            del keywords[option]
        given = self.kernel_source.bind(arguments, keywords)
        call = specialise(names, given, self._constexprs, self._general)
        if check and not warmup:
            extents = grid_of(grid, given)
            evaluate_kernel(self.kernel_source, extents, call, check=True)
            return None
        compiled = self._compiled.get(call.key)
        if compiled is None:
            compiled = self._compiled[call.key] = compile_kernel(self.kernel_source, call)
            compiled.run = self._launch_again(call.constants)
        if not warmup:
            compiled.launch(grid_of(grid, given), call)
        return compiled

    def _launch_again(self, constants: Mapping[str, Any]) -> Callable[..., Any]:
        """`run` that knows the constants of an earlier launch: they may be left out."""
        others = [name for name in self.arg_names if name not in self._constexprs]

        def launch(*arguments: Any, grid: Any) -> Any:
            if len(arguments) != len(others):
                return self.run(*arguments, grid=grid)
            known = {name: value for name, value in constants.items() if name not in others}
            given = dict(zip(others, arguments, strict=True))
            return self.run(grid=grid, **known, **given)

        return launch


@overload
def jit(function: Callable[..., Any]) -> JITFunction: ...
@overload
def jit(
    *,
    do_not_specialize: Sequence[str | int] = (),
    do_not_specialize_on_alignment: Sequence[str | int] = (),
    **options: Any,
) -> Callable[[Callable[..., Any]], JITFunction]: ...
def jit(
    function: Callable[..., Any] | None = None,
    *,
    do_not_specialize: Sequence[str | int] = (),
    do_not_specialize_on_alignment: Sequence[str | int] = (),
    **options: Any,
) -> JITFunction | Callable[[Callable[..., Any]], JITFunction]:
    """Make a Python function a kernel; see `JITFunction`.

    do_not_specialize   parameters whose value 1 is not compiled in

    Other options are accepted, as they concern GPUs only. Raises LubanError if the function has no
    source to be read.
    """
    del do_not_specialize_on_alignment, options

    def decorate(found: Callable[..., Any]) -> JITFunction:
        return JITFunction(found, do_not_specialize)

    return decorate if function is None else decorate(function)
