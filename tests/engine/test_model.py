"""The public API: inputs and outputs in all their forms, and what is refused."""

import copy
import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import luban
from luban.core.errors import InputError, OptionError
from luban.native.target import host_target
from tests.engine.models import DATA, INT64, affine, affine_answer, model_of, saved, value

X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def model() -> luban.Model:
    return luban.compile(affine())


def check(outputs: dict[str, Any], x: Any = X) -> None:
    y, total = affine_answer(x)
    assert list(outputs) == ["y", "total"]
    np.testing.assert_allclose(outputs["y"], y, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(outputs["total"], total, rtol=1e-5, atol=1e-5)


def test_inputs_come_in_order_by_keyword_or_as_a_mapping(model: luban.Model) -> None:
    check(model(X))
    check(model(x=X))
    check(model({"x": X}))


def test_names_types_and_symbolic_shapes(model: luban.Model) -> None:
    assert [str(info) for info in model.inputs] == ["x: f32[batch,8]"]
    assert [(i.name, i.dtype, i.shape) for i in model.outputs] == [
        ("y", "f32", ("batch", 8)),
        ("total", "f32", ("batch",)),
    ]


@pytest.mark.parametrize("batch", [0, 1, 2, 7, 33])
def test_any_batch_from_one_compile(model: luban.Model, batch: int) -> None:
    x = np.full((batch, 8), 0.5, np.float32)
    for _ in range(3):  # the careful call, then bound ones
        check(model(x), x)


def test_repeated_calls_give_fresh_arrays(model: luban.Model) -> None:
    results = [model(X) for _ in range(4)]
    addresses = {outputs["y"].ctypes.data for outputs in results}
    assert len(addresses) == 4
    for outputs in results:
        check(outputs)


def test_a_repeated_call_is_bound(model: luban.Model) -> None:
    model(X)
    model(X)
    assert model.executor.replay([X]) is not None
    assert model.executor.replay([X[:2]]) is None
    assert model.executor.replay([X.astype(np.float64)]) is None
    assert model.executor.replay([X.T.copy().T]) is None
    assert model.executor.replay([]) is None
    assert model.executor.replay([None]) is None


def test_changing_shapes_change_the_bound_call(model: luban.Model) -> None:
    for batch in (2, 2, 5, 5, 5, 2, 5, 2, 5, 5, 5):
        x = np.full((batch, 8), batch / 4, np.float32)
        check(model(x), x)


def test_not_contiguous_and_foreign_byte_order(model: luban.Model) -> None:
    for _ in range(2):
        check(model(np.asfortranarray(X)))
        check(model(X.astype(">f4")))
        check(model(np.repeat(X, 2, axis=1)[:, ::2]))


def test_an_unaligned_input_is_copied(model: luban.Model) -> None:
    raw = np.zeros(X.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(np.float32).reshape(X.shape)
    unaligned[...] = X
    check(model(unaligned))


def test_nested_numbers(model: luban.Model) -> None:
    check(model(X.tolist()))


def test_out_is_written_to(model: luban.Model) -> None:
    y, total = np.empty((3, 8), np.float32), np.empty(3, np.float32)
    for out in ((y, total), {"total": total, "y": y}):
        y[...] = total[...] = np.nan
        outputs = model(X, out=out)
        assert outputs["y"] is y
        assert outputs["total"] is total
        check(outputs)


def test_out_of_a_repeated_call(model: luban.Model) -> None:
    y, total = np.empty((3, 8), np.float32), np.empty(3, np.float32)
    model(X, out=(y, total))
    model(X, out=(y, total))
    fast = model.executor._fast
    assert fast is not None
    for shift in range(3):
        outputs = model(X + shift, out=(y, total))
        assert fast.misses == 0
        assert outputs["y"] is y
        check(outputs, X + shift)
    with pytest.raises(InputError, match="out 'total' has shape"):
        model(X, out=(y, total[:2]))


def test_inputs_by_name_take_the_short_way_and_need_no_second_memory() -> None:
    nodes = [helper.make_node("Exp", ["x"], ["y"])]
    one = luban.compile(model_of(nodes, [value("x", [3])], [value("y", [3])]))
    x = np.linspace(0, 1, 3, dtype=np.float32)
    for shift in range(3):
        np.testing.assert_allclose(one(x=x + shift)["y"], np.exp(x + shift), rtol=1e-6)
    fast = one.executor._fast
    assert fast is not None
    assert fast.misses == 0
    assert len(one.executor._free) == 0  # the only runner is the short way's own


def test_out_that_is_the_same_array_twice() -> None:
    nodes = [helper.make_node(op, ["x"], [y]) for op, y in (("Exp", "a"), ("Neg", "b"))]
    two = luban.compile(model_of(nodes, [value("x", [3])], [value("a", [3]), value("b", [3])]))
    room = np.empty(3, np.float32)
    for _ in range(3):  # the last one written stays
        two(np.zeros(3, np.float32), out=(room, room))
        assert room.tolist() == [0, 0, 0]


def test_out_for_some_outputs_and_not_contiguous(model: luban.Model) -> None:
    wide = np.zeros((3, 16), np.float32)
    outputs = model(X, out={"y": wide[:, ::2]})
    assert outputs["y"].base is wide
    check(outputs)
    assert not wide[:, 1::2].any()


def test_out_that_overlaps_the_input(model: luban.Model) -> None:
    x = X.copy()
    outputs = model(x, out={"y": x})
    assert outputs["y"] is x
    check(outputs)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ([np.empty((3, 8), np.float32)], "given 1 arrays to write to, expected 2: y, total"),
        ({"z": None}, "out names z, expected some of y, total"),
        ({"y": np.empty((2, 8), np.float32)}, r"out 'y' has shape \[2, 8\], expected \[3, 8\]"),
        ({"y": np.empty((3, 8))}, r"out 'y' is float64\[3, 8\], expected a writeable array of f32"),
        ({"y": [[0.0]]}, "out 'y' is a list, expected an array"),
    ],
)
def test_out_that_does_not_fit(model: luban.Model, out: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        model(X, out=out)


def test_a_read_only_out_is_refused(model: luban.Model) -> None:
    y = np.empty((3, 8), np.float32)
    y.flags.writeable = False
    with pytest.raises(InputError, match="out 'y' is read-only"):
        model(X, out={"y": y})


def test_run_async(model: luban.Model) -> None:
    futures = [model.run_async(X + i) for i in range(8)]
    for i, future in enumerate(futures):
        check(future.result(), X + i)


def test_an_error_in_run_async_is_in_the_future(model: luban.Model) -> None:
    with pytest.raises(InputError):
        model.run_async(X[:, :3]).result()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="a fork beside threads warns from 3.12 on")
def test_a_model_works_in_a_child_after_a_fork(model: luban.Model) -> None:
    check(model.run_async(X).result())
    check(model(X))
    locked = model.executor._lock  # as if another thread were inside
    locked.acquire()
    child = os.fork()
    if not child:
        status = 1
        try:
            check(model(X))
            check(model.run_async(X).result(timeout=60))
            check(model(X))
            status = 0
        finally:
            os._exit(status)
    locked.release()
    assert os.waitpid(child, 0)[1] == 0
    check(model(X))


def test_concurrent_calls_with_other_shapes(model: luban.Model) -> None:
    failures: list[BaseException] = []

    def work(batch: int) -> None:
        try:
            x = np.full((batch, 8), batch / 8, np.float32)
            for _ in range(200):
                check(model(x), x)
        except BaseException as error:  # noqa: BLE001  # a thread's failure is the test's
            failures.append(error)

    threads = [threading.Thread(target=work, args=(1 + i % 3,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_memory_stays_flat_over_random_shapes(model: luban.Model) -> None:
    generator = np.random.default_rng(0)

    def calls(count: int) -> None:
        for batch in generator.integers(0, 300, count):
            x = np.ones((int(batch), 8), np.float32)
            for _ in range(2):
                model(x)

    calls(500)
    before = _resident_bytes()
    calls(3000)
    assert _resident_bytes() - before < 2 << 20


def test_an_input_that_is_an_output_is_copied() -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    same = luban.compile(model_of(nodes, [value("x", ["n"])], [value("y", ["n"])]))
    for _ in range(3):
        given = np.ones(3, np.float32)
        result = same(given)["y"]
        result[0] = 7
        assert given.tolist() == [1, 1, 1]


def test_one_value_as_two_outputs() -> None:
    nodes = [helper.make_node(op, ["x"], [y]) for op, y in (("Exp", "a"), ("Exp", "b"))]
    twice = luban.compile(model_of(nodes, [value("x", [3])], [value("a", [3]), value("b", [3])]))
    for _ in range(3):
        outputs = twice(np.zeros(3, np.float32))
        outputs["a"][0] = 7
        assert outputs["b"].tolist() == [1, 1, 1]


def test_a_model_without_inputs() -> None:
    nodes = [helper.make_node("Identity", ["w"], ["y"])]
    constant = luban.compile(model_of(nodes, [], [value("y", [2], INT64)], {"w": np.array([3, 4])}))
    for _ in range(3):
        assert constant()["y"].tolist() == [3, 4]


def test_an_input_called_out_comes_in_a_mapping() -> None:
    nodes = [helper.make_node("Neg", ["out"], ["y"])]
    model = luban.compile(model_of(nodes, [value("out", [2])], [value("y", [2])]))
    assert model({"out": np.ones(2, np.float32)})["y"].tolist() == [-1, -1]


def test_threads_by_argument_and_by_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert luban.compile(affine(), threads=1).num_threads == 1
    monkeypatch.setenv("LUBAN_NUM_THREADS", "3")
    assert luban.compile(affine()).num_threads == 3
    with pytest.raises(OptionError, match="threads=0, expected at least 1"):
        luban.compile(affine(), threads=0)
    for odd in ("2", 1.5):
        with pytest.raises(OptionError, match=rf"threads={odd!r}, expected"):
            luban.compile(affine(), threads=odd)  # type: ignore[arg-type]


def test_a_model_is_not_copied_or_pickled() -> None:
    for attempt in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled; load the model where"):
            attempt(luban.compile(affine()))


def test_passes_can_be_left_out() -> None:
    left = luban.compile(affine(), without=["simplify", "layout"])
    check(left(X))
    assert "simplify" not in {report.name for report in left.compiled.reports}
    with pytest.raises(OptionError, match="unknown pass no_such_pass"):
        luban.compile(affine(), without=["no_such_pass"])


def test_a_target_that_cannot_run_here_is_refused() -> None:
    other = "neon" if host_target().architecture == "x86_64" else "avx2"
    with pytest.raises(OptionError, match=f"target '{other}' is for other machines: this one"):
        luban.compile(affine(), target=other)


def test_shapes_in_place_of_the_declared_ones() -> None:
    fixed = luban.compile(affine(), shapes={"x": [3, 8]})
    assert fixed.inputs[0].shape == (3, 8)
    check(fixed(X))
    with pytest.raises(InputError, match="axis 0 is 2, expected 3"):
        fixed(X[:2])


def test_repr_and_notebook_table(tmp_path: Path) -> None:
    model = luban.load(saved(affine(), tmp_path, "a&b.onnx"), threads=1)
    words = "<luban model a&b.onnx: (x: f32[batch,8]) -> (y: f32[batch,8], total: f32[batch])>"
    assert repr(model) == words
    table = model._repr_html_()
    assert "a&amp;b.onnx, 1 thread</caption>" in table
    assert table.count("<tr>") == 3


def test_a_real_model_from_bytes_and_path_agree() -> None:
    path = DATA / "resnet_tiny.onnx"
    one, two = luban.load(path), luban.compile(path.read_bytes())
    shape = [size if isinstance(size, int) else 2 for size in one.inputs[0].shape]
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    for left, right in zip(one(x).values(), two(x).values(), strict=True):
        np.testing.assert_array_equal(left, right)
