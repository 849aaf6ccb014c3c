"""Arrays of other libraries, with and without a dtype that numpy knows."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import luban
from luban.core.errors import InputError
from luban.engine.arrays import as_array
from tests.engine.models import affine, affine_answer

torch = pytest.importorskip("torch", reason="the peers are not installed")


def test_a_tensor_is_read_in_place() -> None:
    tensor = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    array = as_array(tensor)
    assert array.ctypes.data == tensor.data_ptr()
    np.testing.assert_array_equal(array, np.arange(12, dtype=np.float32).reshape(3, 4))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("bfloat16", ml_dtypes.bfloat16),
        ("float8_e4m3fn", ml_dtypes.float8_e4m3fn),
        ("float8_e5m2", ml_dtypes.float8_e5m2),
    ],
)
def test_narrow_floats_that_numpy_lacks_are_read_in_place(theirs: str, ours: Any) -> None:
    tensor = torch.tensor([[0.5, -2.0, 3.0], [1.0, 0.0, -0.25]]).to(getattr(torch, theirs))
    for view in (tensor, tensor.T, tensor[:, 1:], tensor[:0]):
        array = as_array(view)
        assert array.dtype == ours
        assert array.shape == tuple(view.shape)
        np.testing.assert_array_equal(array.astype(np.float32), view.float().numpy())
        assert not array.size or array.ctypes.data == view.data_ptr()


def test_a_view_keeps_the_memory_alive() -> None:
    array = as_array(torch.full((1000,), 0.5, dtype=torch.bfloat16))
    for _ in range(10):
        torch.full((1000,), 2.0, dtype=torch.bfloat16)
    assert (array == 0.5).all()


def test_a_tensor_that_needs_gradients_is_refused() -> None:
    with pytest.raises(InputError, match=r"input 'x' is a .* that cannot be read"):
        as_array(torch.ones(3, requires_grad=True), "x")


class _OnAnotherDevice:
    def __dlpack__(self) -> None:
        raise AssertionError("must not be asked")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def test_memory_of_another_device_is_refused() -> None:
    with pytest.raises(InputError, match=r"input 'x' lies on device \(2, 0\)"):
        as_array(_OnAnotherDevice(), "x")


def test_models_take_tensors_and_their_outputs_go_back() -> None:
    model = luban.compile(affine())
    x = torch.linspace(-1, 1, 24).reshape(3, 8)
    y = model(x)["y"]
    np.testing.assert_allclose(y, affine_answer(x.numpy())[0], rtol=1e-6, atol=1e-6)
    assert torch.from_dlpack(y).data_ptr() == y.ctypes.data


def test_a_tensor_can_be_written_to() -> None:
    model = luban.compile(affine())
    y = torch.zeros(3, 8)
    model(torch.ones(3, 8), out={"y": y})
    assert y.any()
