"""Choosing constants of kernels: by timing, kept on disk configuration by configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luban.lang as tl
from luban.core import settings
from luban.core.errors import LubanError, OptionError
from luban.lang.autotune import Autotuner, Config, autotune, heuristics
from luban.lang.timings import Timings
from tests.lang.kernels import add_kernel

N = 1000


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path / "cache"))


class Fake:
    """Stands for a kernel: each launch is noted, and takes the time that it is told to take."""

    arg_names = ("x", "n", "BLOCK")
    cache_key = "source"

    def __init__(self, fails: tuple[int, ...] = ()) -> None:
        self.launches: list[dict[str, Any]] = []
        self.fails = fails

    def run(self, *args: Any, **kwargs: Any) -> str:
        options = {name: value for name, value in kwargs.items() if name in self.arg_names}
        self.launches.append({**dict(zip(self.arg_names, args, strict=False)), **options})
        if kwargs["BLOCK"] in self.fails:
            raise LubanError(f"BLOCK {kwargs['BLOCK']} is too large")
        return "launched"

    @property
    def blocks(self) -> list[int]:
        """The constants of all launches."""
        return [launch["BLOCK"] for launch in self.launches]


def tuned(
    fake: Fake, blocks: tuple[int, ...], times: dict[int, float], **options: Any
) -> Autotuner:
    """The fake kernel with a configuration for each block, timed by a table in milliseconds."""

    def timed(call: Any, quantiles: Any) -> list[float]:
        call()
        return [times[fake.blocks[-1]]] * 3

    configs = [Config({"BLOCK": block}) for block in blocks]
    return autotune(configs, key=["n"], do_bench=timed, **options)(fake)


def test_the_fastest_is_launched() -> None:
    fake = Fake()
    kernel = tuned(fake, (16, 32, 64), {16: 3.0, 32: 1.0, 64: 2.0})
    assert kernel[(1,)]("x", 5) == "launched"
    assert kernel.best_config == Config({"BLOCK": 32})
    assert fake.blocks[-1] == 32
    before = len(fake.launches)
    kernel[(1,)]("x", 5)
    assert fake.blocks[before:] == [32]  # not timed again


def test_another_key_is_timed_again() -> None:
    fake = Fake()
    kernel = tuned(fake, (16, 32), {16: 1.0, 32: 2.0})
    kernel[(1,)]("x", 5)
    before = len(fake.launches)
    kernel[(1,)]("x", 6)
    assert set(fake.blocks[before:]) == {16, 32}


def test_a_later_start_times_only_what_is_new() -> None:
    times = {16: 3.0, 32: 1.0, 64: 0.5}
    tuned(Fake(), (16, 32), times)[(1,)]("x", 5)
    fake = Fake()
    kernel = tuned(fake, (16, 32, 64), times)
    kernel[(1,)]("x", 5)
    assert set(fake.blocks) == {64}
    assert kernel.best_config == Config({"BLOCK": 64})
    fewer = Fake()
    kernel = tuned(fewer, (16, 32), times)
    kernel[(1,)]("x", 5)
    assert fewer.blocks == [32]


def test_a_damaged_entry_counts_as_not_measured() -> None:
    timings = Timings.of(Fake, "source", (1,))
    timings.add({"B=1": 0.5})
    assert timings.read() == {"B=1": 0.5}
    timings.cache.put("autotune", timings.name, b"[1, 2]")
    assert timings.read() == {}


def test_options_of_gpus_make_no_difference() -> None:
    kernel = autotune(
        [Config({"BLOCK": 16}, num_warps=w, num_stages=s) for w in (4, 8) for s in (2, 3)], key=[]
    )(Fake())
    assert kernel.configs == [Config({"BLOCK": 16}, num_warps=4, num_stages=2)]


def test_a_configuration_that_does_not_compile_is_not_chosen() -> None:
    fake = Fake(fails=(64,))
    kernel = tuned(fake, (64, 16), {16: 1.0})
    kernel[(1,)]("x", 5)
    assert kernel.best_config == Config({"BLOCK": 16})
    with pytest.raises(LubanError, match="BLOCK 64 is too large"):
        tuned(Fake(fails=(64, 128)), (64, 128), {})[(1,)]("x", 5)


def test_pruning_by_the_users_rules() -> None:
    fake = Fake()
    times = {16: 3.0, 32: 1.0, 64: 2.0}
    rule = {"early_config_prune": lambda configs, arguments, **_: configs[:1]}
    tuned(fake, (16, 32), times, prune_configs_by=rule)[(1,)]("x", 5)
    assert set(fake.blocks) == {16}
    modelled = Fake()
    model = {"perf_model": lambda BLOCK, **_: -BLOCK, "top_k": 1}
    tuned(modelled, (16, 32, 64), times, prune_configs_by=model)[(1,)]("x", 5)
    assert set(modelled.blocks) == {64}
    nothing: dict[str, Any] = {"early_config_prune": lambda *_, **__: []}
    with pytest.raises(OptionError, match="early_config_prune left no configuration"):
        tuned(Fake(), (16, 32), times, prune_configs_by=nothing)[(1,)]("x", 5)


def test_hooks_see_the_arguments() -> None:
    seen: list[Any] = []
    configs = [Config({"BLOCK": 16}, pre_hook=lambda given: seen.append(given["BLOCK"]))]
    autotune(configs, key=["n"])(Fake())[(1,)]("x", 5)
    assert seen == [16]


def test_wrong_keys_and_clashes_are_refused() -> None:
    with pytest.raises(OptionError, match="key names m, expected parameters of kernel: x, n, BLOC"):
        autotune([Config({})], key=["m"])(Fake())
    with pytest.raises(OptionError, match="BLOCK is given at the call and by the configurations"):
        tuned(Fake(), (16, 32), {16: 1.0, 32: 1.0})[(1,)]("x", 5, BLOCK=8)


def test_heuristics_see_the_arguments_and_earlier_ones() -> None:
    fake = Fake()
    kernel = heuristics({"EVEN": lambda a: a["n"] % 2 == 0, "BLOCK": lambda a: 8 + a["EVEN"]})(fake)
    kernel[(1,)]("x", 4)
    assert fake.launches == [{"x": "x", "n": 4, "BLOCK": 9}]


def test_a_kernel_is_tuned_and_right() -> None:
    configs = [Config({"BLOCK": block}) for block in (64, 256)]
    kernel = autotune(configs, key=["n"])(add_kernel)
    x, out = np.arange(N, dtype=np.float32), np.zeros(N, np.float32)
    kernel[lambda meta: (tl.cdiv(N, meta["BLOCK"]),)](x, x, out, N)
    np.testing.assert_array_equal(out, x + x)
    assert set(kernel.configs_timings) == set(configs)
    with settings.overridden(settings.KERNEL_CHECK, "1"):
        autotune(configs, key=["n"])(add_kernel)[(N // 64 + 1,)](x, x, out, N)


def test_outputs_that_timing_must_not_change_are_restored() -> None:
    torch = pytest.importorskip("torch")
    configs = [Config({"BLOCK": block}) for block in (64, 256)]
    kernel = autotune(configs, key=["n"], restore_value=["x_ptr"])(add_kernel)
    x = torch.ones(N)
    kernel[lambda meta: (tl.cdiv(N, meta["BLOCK"]),)](x, x, x, N)
    assert (x == 2).all()


def test_subclasses_time_a_configuration_themselves() -> None:
    fake = Fake()
    kernel = tuned(fake, (16, 32), {16: 3.0, 32: 1.0})
    assert kernel._bench("x", 5, config=kernel.configs[0], grid=(1,), warmup=False) == [3.0] * 3
    assert (
        tuned(Fake(fails=(16,)), (16,), {})._bench(config=Config({"BLOCK": 16}))
        == [float("inf")] * 3
    )
