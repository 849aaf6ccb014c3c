"""PyTorch code that says "cuda" runs on the CPU while a map is active, and only then."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch")

from luban.core.errors import OptionError  # noqa: E402
from luban.lang.compat.devices import DeviceMap, parse_device_map  # noqa: E402


@pytest.fixture
def _mapped() -> Iterator[None]:
    with DeviceMap("cuda", "cpu"):
        yield


PLACES: dict[str, Callable[[], object]] = {
    "factory": lambda: torch.randn(3, device="cuda"),
    "factory with a device": lambda: torch.ones(3, device=torch.device("cuda", 0)),
    "factory with an index": lambda: torch.empty(3, device=0),
    "method": lambda: torch.ones(3).cuda(),
    "to": lambda: torch.ones(3).to("cuda:0", non_blocking=True),
    "pinned": lambda: torch.ones(3).pin_memory(),
    "module": lambda: torch.nn.Linear(2, 2).cuda().weight,
    "module moved": lambda: torch.nn.Linear(2, 2).to("cuda").weight,
    "generator": lambda: torch.rand(3, generator=torch.Generator(device="cuda").manual_seed(1)),
}


@pytest.mark.usefixtures("_mapped")
@pytest.mark.parametrize("place", PLACES)
def test_tensors_are_made_on_the_cpu(place: str) -> None:
    tensor = PLACES[place]()
    assert isinstance(tensor, torch.Tensor)
    assert tensor.device.type == "cpu"
    assert tensor.is_cuda


@pytest.mark.usefixtures("_mapped")
def test_the_runtime_answers() -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    assert torch.cuda.get_device_capability() == (8, 0)
    assert torch.cuda.get_device_properties(0).multi_processor_count >= 1
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    end.record()
    assert start.elapsed_time(end) >= 0
    with torch.cuda.device(0), torch.cuda.stream(torch.cuda.Stream()):
        torch.manual_seed(3)
        first = torch.rand(3)
        torch.cuda.manual_seed(3)
        assert torch.equal(first, torch.rand(3))


@pytest.mark.usefixtures("_mapped")
def test_gradients_flow() -> None:
    x = torch.ones(3, device="cuda", requires_grad=True)
    (x.cuda() * 2).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0))


def test_everything_is_as_before_afterwards() -> None:
    before = (torch.cuda.is_available, torch.cuda.Event, torch.manual_seed, torch.Generator)
    with DeviceMap("cuda", "cpu"):
        assert torch.cuda.Event is not before[1]
    assert before == (
        torch.cuda.is_available,
        torch.cuda.Event,
        torch.manual_seed,
        torch.Generator,
    )
    assert not torch.ones(1).is_cuda


@pytest.mark.parametrize("text", ["", "cuda", "cuda=", "=cpu", "cpu=cpu", "cuda=xpu"])
def test_other_texts_are_no_map(text: str) -> None:
    with pytest.raises(OptionError, match="expected FROM=cpu"):
        parse_device_map(text)
