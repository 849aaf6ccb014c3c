"""What a load does ahead of the first call: plans, memory, and the sizes of the process before."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import luban
from luban.core.settings import child_environment
from luban.engine import executor
from luban.native.cache import Cache, default_cache
from tests.engine.models import INT64, Array, affine, affine_answer, model_of, saved, value

SOURCE = str(Path(luban.__file__).parents[1])


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """A cache of the test's own."""
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path / "cache"))
    return default_cache()


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """The sizes that stages were planned for, filled in as it happens."""
    found: list[dict[str, int]] = []
    original: Any = getattr(executor, "plan_stage")  # noqa: B009  # it is not exported there

    def watched(steps: Any, escaping: Any, sizes: dict[str, int], *rest: Any, **named: Any) -> Any:
        found.append(dict(sizes))
        return original(steps, escaping, sizes, *rest, **named)

    monkeypatch.setattr(executor, "plan_stage", watched)
    return found


def fixed() -> Any:
    nodes = [helper.make_node("Neg", ["x"], ["y"], "turn")]
    return model_of(nodes, [value("x", [4, 8])], [value("y", [4, 8])])


def test_a_model_of_fixed_sizes_is_planned_at_load(
    tmp_path: Path, planned: list[dict[str, int]]
) -> None:
    path = saved(fixed(), tmp_path)
    for from_cache in (False, True):
        model = luban.load(path)
        assert model.from_cache is from_cache
        assert planned == [{}]
        assert (model(np.ones((4, 8), np.float32))["y"] == -1).all()
        assert planned == [{}]
        planned.clear()
    assert not list(default_cache().directory.glob("sizes/*/*"))


def test_sizes_are_those_of_the_last_process_whose_first_call_had_new_ones(
    tmp_path: Path, planned: list[dict[str, int]]
) -> None:
    path = saved(affine(), tmp_path)

    def call(batch: int) -> None:
        x = np.full((batch, 8), 2, np.float32)
        np.testing.assert_allclose(luban.load(path)(x)["y"], affine_answer(x)[0], rtol=1e-6)

    for batch, at_load, in_the_call in ((3, [], [3]), (3, [3], []), (5, [3], [5]), (5, [5], [])):
        planned.clear()
        call(batch)
        assert [sizes["batch"] for sizes in planned] == at_load + in_the_call


@pytest.mark.parametrize("record", [b"no JSON", b"[1]", b'{"batch": "x"}', b'{"batch": -7}'])
def test_a_record_that_cannot_be_used_is_no_obstacle(
    tmp_path: Path, store: Cache, record: bytes
) -> None:
    path = saved(affine(), tmp_path)
    x = np.ones((2, 8), np.float32)
    luban.load(path)(x)
    (entry,) = store.directory.glob("sizes/*/*")
    store.put("sizes", entry.parent.name + entry.name, record)
    model = luban.load(path)
    assert model.from_cache
    np.testing.assert_allclose(model(x)["y"], affine_answer(x)[0], rtol=1e-6)


def test_stages_that_hang_on_host_results_are_left_to_the_call(
    tmp_path: Path, planned: list[dict[str, int]]
) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"], "find"),
        helper.make_node("Add", ["where", "where"], ["twice"], "double"),
    ]
    graph = model_of(nodes, [value("x", [6])], [value("twice", [1, "found"], INT64)])
    path = saved(graph, tmp_path)
    x = np.array([0, 1, 0, 1, 1, 0], np.float32)
    luban.load(path)(x)
    planned.clear()
    model = luban.load(path)
    assert model(x)["twice"].tolist() == [[2, 6, 8]]


@pytest.mark.skipif(sys.platform != "linux", reason="counts page faults")
def test_a_first_call_waits_for_few_pages_and_loads_no_module(tmp_path: Path, store: Cache) -> None:
    width = 1 << 10
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "product"),
        helper.make_node("MatMul", ["h", "w"], ["y"], "product_again"),
    ]
    weights: dict[str, Array] = {"w": np.ones((width, width), np.float32)}
    shape: list[int | str] = [2048, width]  # 8 MB of intermediates; 4 MB of weights, packed
    graph = model_of(nodes, [value("x", shape)], [value("y", shape)], weights)
    path = saved(graph, tmp_path)
    script = (
        "import resource, sys, luban, numpy\n"
        f"x = numpy.ones((2048, {width}), numpy.float32)\n"
        f"model = luban.load({str(path)!r}, threads=1)\n"
        "def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "modules, out = set(sys.modules), numpy.ones_like(x)\n"
        "before = faults()\n"
        "model(x, out=out)\n"
        "print(faults() - before, sorted(set(sys.modules) - modules))\n"
    )
    environment = child_environment({"LUBAN_CACHE_DIR": str(store.directory), "PYTHONPATH": SOURCE})
    command = [sys.executable, "-c", script]
    for _ in range(2):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    count, modules = done.stdout.split(" ", 1)
    assert modules == "[]\n"
    assert int(count) < 200  # of 3,000 pages


def test_the_bound_of_the_cache_is_not_looked_after_in_a_call(
    tmp_path: Path, store: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = luban.load(saved(affine(), tmp_path))

    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(Cache, "account", refuse)
    x: Array = np.ones((2, 8), np.float32)
    model(x)
    assert list(store.directory.glob("sizes/*/*"))
