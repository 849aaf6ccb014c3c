"""`autotune` and `heuristics`: choose the constants of a kernel by timing, or by a rule.

What was timed is kept on disk for each configuration on its own, under the machine, the kernel's
source and the key of the call. A later start times only what is new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from luban.core import settings
from luban.core.errors import InternalError, LubanError, OptionError
from luban.lang.interface import KernelInterface
from luban.lang.timings import Timings

__all__ = ["Autotuner", "Config", "Heuristics", "Kernel", "autotune", "heuristics"]

# A configuration is timed until it has run this long, its first call (which compiles) not counted.
_TIMING_S = 0.02
_MOST_CALLS = 50
_HOPELESS = 4.0  # a first timed call this many times slower than the best ends the timing


class Kernel(Protocol):
    """What tuning needs of a kernel, or of another layer of tuning round it."""

    arg_names: list[str]

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Launch it."""


class Config:
    """One choice of constants for a kernel.

    kwargs                                   the constants by name
    num_warps, num_stages, num_ctas, maxnreg, ...  of GPUs: accepted; they change nothing on CPUs
    pre_hook                                 called with all arguments by name before each launch
    """

    def __init__(
        self,
        kwargs: Mapping[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[[dict[str, Any]], object] | None = None,
        ir_override: str | None = None,
        **of_other_backends: Any,
    ) -> None:
        self.kwargs = dict(kwargs)
        self.num_warps = num_warps
        self.num_stages = num_stages
        self.num_ctas = num_ctas
        self.maxnreg = maxnreg
        self.pre_hook = pre_hook
        self.ir_override = ir_override
        self.of_other_backends = of_other_backends

    def all_kwargs(self) -> dict[str, Any]:
        """The constants and the GPU's options, as a launch takes them."""
        options = {
            "num_warps": self.num_warps,
            "num_ctas": self.num_ctas,
            "num_stages": self.num_stages,
            "maxnreg": self.maxnreg,
        }
        return {**self.kwargs, **{k: v for k, v in options.items() if v is not None}}

    @property
    def words(self) -> str:
        """The constants as text: configurations with equal words are one on a CPU.

        >>> Config({"N": 8, "BLOCK": 64}, num_warps=8).words
        'BLOCK=64, N=8'
        """
        return ", ".join(f"{name}={self.kwargs[name]!r}" for name in sorted(self.kwargs))

    def __repr__(self) -> str:
        return f"Config({self.words or 'no constants'})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Config):
            return NotImplemented
        return (self.all_kwargs(), self.pre_hook) == (other.all_kwargs(), other.pre_hook)

    def __hash__(self) -> int:
        return hash((self.words, self.num_warps, self.num_stages, self.pre_hook))


def distinct_on_cpu(configs: Sequence[Config]) -> list[Config]:
    """Without those that differ from an earlier one in options of GPUs only.

    >>> distinct_on_cpu([Config({"B": 8}, num_warps=4), Config({"B": 8}, num_warps=8)])
    [Config(B=8)]
    """
    found: dict[tuple[str, object], Config] = {}
    for config in configs:
        found.setdefault((config.words, config.pre_hook), config)
    return list(found.values())


def _no_hook(given: dict[str, Any], **_: Any) -> None:
    del given


class Autotuner(KernelInterface):
    """A kernel whose configuration is the fastest of `configs` for the arguments named in `key`.

    best_config  the one of the latest launch
    cache        from keys to configurations, of this process
    bench_time   seconds that the latest timing took
    """

    def __init__(
        self,
        fn: Any,
        arg_names: Sequence[str],
        configs: Sequence[Config],
        key: Sequence[str],
        reset_to_zero: Sequence[str] | None = None,
        restore_value: Sequence[str] | None = None,
        pre_hook: Callable[..., object] | None = None,
        post_hook: Callable[..., object] | None = None,
        prune_configs_by: Mapping[str, Any] | None = None,
        warmup: float | None = None,
        rep: float | None = None,
        use_cuda_graph: bool = False,
        do_bench: Callable[..., Any] | None = None,
        cache_results: bool = False,
    ) -> None:
        del warmup, rep, use_cuda_graph, cache_results
        self.fn = fn
        self.__name__ = getattr(self.base_fn, "__name__", "kernel")
        self.arg_names = list(arg_names)
        self.configs = distinct_on_cpu(configs or [Config({})])
        self.keys = list(key)
        self.cache: dict[tuple[Any, ...], Config] = {}
        self.best_config: Config | None = None
        self.bench_time = 0.0
        self.configs_timings: dict[Config, float] = {}
        self.reset_to_zero = list(reset_to_zero or ())
        self.restore_value = list(restore_value or ())
        self.pre_hook = pre_hook or _no_hook
        self.post_hook = post_hook or _no_hook
        self.user_defined_pre_hook = pre_hook is not None
        self.user_defined_post_hook = post_hook is not None
        self.nargs: dict[str, Any] | None = None
        pruning = dict(prune_configs_by or {})
        self.perf_model = pruning.get("perf_model")
        self.configs_top_k = pruning.get("top_k", 1.0)
        self.early_config_prune = pruning.get("early_config_prune")
        self.do_bench = do_bench
        unknown = [name for name in self.keys if name not in self.arg_names]
        if unknown:
            raise OptionError(
                f"autotune: key names {', '.join(unknown)}, "
                f"expected parameters of {self.__name__}: {', '.join(self.arg_names)}",
                hint="a key is a parameter whose value decides which configuration is the fastest",
            )

    @property
    def base_fn(self) -> Any:
        """The Python function under all decorators."""
        found = self.fn
        while hasattr(found, "fn"):
            found = found.fn
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the kernel does."""
        return self.fn(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "fn":
            raise AttributeError(name)
        return getattr(self.fn, name)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch with the fastest configuration, timing what has not been timed before."""
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        try:
            config = self._chosen(args, kwargs, grid, warmup)
            self.best_config = config
            if config.pre_hook is not None and not warmup:
                config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
            return self.fn.run(*args, grid=grid, warmup=warmup, **{**kwargs, **config.all_kwargs()})
        finally:
            self.nargs = None

    def _chosen(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any, warmup: bool
    ) -> Config:
        assert self.nargs is not None
        if len(self.configs) == 1:
            return self.configs[0]
        given = {**self.nargs, **kwargs}
        key = _key_of(self.keys, given)
        found = self.cache.get(key)
        if found is None:
            pruned = self.prune_configs(kwargs)
            if warmup or len(pruned) == 1 or kwargs.get("check", settings.KERNEL_CHECK.get()):
                return pruned[0]  # there is nothing to time
            found = self.cache[key] = self._fastest(key, pruned, args, kwargs, grid)
        return found

    def prune_configs(self, kwargs: Mapping[str, Any]) -> list[Config]:
        """The configurations that the user's pruning leaves. Raises OptionError if none."""
        pruned = self.configs
        if self.early_config_prune is not None:
            pruned = distinct_on_cpu(self.early_config_prune(self.configs, self.nargs, **kwargs))
        if not pruned:
            raise OptionError(
                f"autotune of {self.__name__}: early_config_prune left no configuration",
                hint="it must return at least one of the configurations it is given",
            )
        top_k = self.configs_top_k
        if isinstance(top_k, float) and top_k <= 1.0:
            top_k = max(1, int(len(self.configs) * top_k))
        if self.perf_model is not None and len(pruned) > top_k:
            cost = {
                config: self.perf_model(**(self.nargs or {}), **kwargs, **config.all_kwargs())
                for config in pruned
            }
            pruned = sorted(pruned, key=cost.__getitem__)[: int(top_k)]
        return pruned

    def _fastest(
        self,
        key: tuple[Any, ...],
        configs: Sequence[Config],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        grid: Any,
    ) -> Config:
        start = time.perf_counter()
        timings = Timings.of(self.base_fn, getattr(self.fn, "cache_key", None), key)
        known = timings.read()
        failures: list[LubanError] = []
        times: dict[Config, float] = {}
        for config in configs:
            seconds = known.get(config.words)
            if seconds is None:
                best = min(times.values(), default=float("inf"))
                seconds = self._timed(config, best, args, kwargs, grid, failures)
                if seconds is not None:
                    known[config.words] = seconds
            if seconds is not None:
                times[config] = seconds
        self.bench_time = time.perf_counter() - start
        self.configs_timings = times
        if not times:
            raise failures[0]
        timings.add({config.words: seconds for config, seconds in times.items()})
        return min(times, key=times.__getitem__)

    def _bench(self, *args: Any, config: Config, **meta: Any) -> list[float]:
        """Milliseconds of a launch three times over, as subclasses of Triton's tuner ask for it."""
        grid = meta.get("grid")
        options = {k: v for k, v in meta.items() if k not in ("grid", "warmup")}
        failures: list[LubanError] = []
        seconds = self._timed(config, float("inf"), args, options, grid, failures)
        return [float("inf") if seconds is None else seconds * 1e3] * 3

    def _timed(
        self,
        config: Config,
        best_s: float,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        grid: Any,
        failures: list[LubanError],
    ) -> float | None:
        """Seconds of a call, or None, with the reason in `failures`, if it does not compile."""
        clash = sorted(set(kwargs) & set(config.kwargs))
        if clash:
            raise OptionError(
                f"autotune of {self.__name__}: {', '.join(clash)} is given at the call "
                "and by the configurations",
                hint="leave it out of the call",
            )
        given = {**(self.nargs or {}), **kwargs, **config.all_kwargs()}
        kept = {name: given[name].clone() for name in self.restore_value}

        def call() -> None:
            if config.pre_hook is not None:
                config.pre_hook(given)
            self.pre_hook(given)
            for name in self.reset_to_zero:
                given[name].zero_()
            for name, value in kept.items():
                given[name].copy_(value)
            self.fn.run(*args, grid=grid, warmup=False, **{**kwargs, **config.all_kwargs()})
            self.post_hook(given, exception=None)

        try:
            call()
            seconds = self._seconds(call, best_s)
        except InternalError:
            raise
        except LubanError as error:  # too large for this machine, or not supported: not chosen
            failures.append(error)
            return None
        finally:
            for name in self.reset_to_zero:
                given[name].zero_()
            for name, value in kept.items():
                given[name].copy_(value)
        return seconds

    def _seconds(self, call: Callable[[], None], best_s: float) -> float:
        if self.do_bench is not None:
            found = self.do_bench(call, quantiles=(0.5, 0.2, 0.8))
            return float(found[0] if isinstance(found, (list, tuple)) else found) * 1e-3
        fastest = float("inf")
        spent = 0.0
        for _ in range(_MOST_CALLS):
            start = time.perf_counter()
            call()
            seconds = time.perf_counter() - start
            fastest = min(fastest, seconds)
            spent += seconds
            if spent > _TIMING_S or fastest > _HOPELESS * best_s:
                break
        return fastest


def _key_of(names: Sequence[str], given: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values of the key's parameters and the dtypes of all tensors."""
    values = [given[name] for name in names if name in given]
    plain = [getattr(v, "shape", v) if hasattr(v, "dtype") else v for v in values]
    dtypes = [str(value.dtype) for value in given.values() if hasattr(value, "dtype")]
    return (*(tuple(v) if isinstance(v, (list, tuple)) else v for v in plain), *dtypes)


def autotune(
    configs: Sequence[Config],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., object] | None = None,
    post_hook: Callable[..., object] | None = None,
    warmup: float | None = None,
    rep: float | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
) -> Callable[[Any], Autotuner]:
    """Time `configs` when the parameters named in `key` change, and launch with the fastest.

    configs           those equal but for options of GPUs count as one
    key               parameters whose values decide; dtypes of tensors always do
    prune_configs_by  early_config_prune(configs, arguments, **kwargs), perf_model(**arguments),
                      top_k: as in Triton
    reset_to_zero     tensors set to 0 before each timed call
    restore_value     tensors that timing must leave as they were
    do_bench          another way to time a call; milliseconds

    Results stay on disk whether `cache_results` says so or not. `warmup`, `rep` and
    `use_cuda_graph` are accepted and have no effect.
    """
    del warmup, rep, use_cuda_graph, cache_results

    def decorate(fn: Any) -> Autotuner:
        return Autotuner(
            fn,
            fn.arg_names,
            configs,
            key,
            reset_to_zero,
            restore_value,
            pre_hook,
            post_hook,
            prune_configs_by,
            do_bench=do_bench,
        )

    return decorate


class Heuristics(KernelInterface):
    """A kernel some of whose constants are computed from the other arguments."""

    def __init__(
        self, fn: Any, arg_names: Sequence[str], values: Mapping[str, Callable[..., Any]]
    ) -> None:
        self.fn = fn
        self.arg_names = list(arg_names)
        self.values = dict(values)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the kernel does."""
        return self.fn(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "fn":
            raise AttributeError(name)
        return getattr(self.fn, name)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch with the computed constants added."""
        given = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        for name, rule in self.values.items():
            given[name] = kwargs[name] = rule(given)
        return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs)


def heuristics(values: Mapping[str, Callable[..., Any]]) -> Callable[[Any], Heuristics]:
    """Compute constants from the arguments of each call, in the order given.

    values  from a parameter's name to a function of the dictionary of all arguments so far
    """
    return lambda fn: Heuristics(fn, fn.arg_names, values)
