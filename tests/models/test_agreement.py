"""Luban agrees with unoptimised ONNX Runtime on every model, at every size, from one compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cases import ModelCase
from benchmarks.engines import load_luban
from benchmarks.models import BUILT, BUNDLED
from benchmarks.packages import PACKAGES
from tests.models.oracle import THREADS, compiled_files, disagreements

# Wheels of some megabytes, models that compile in seconds: convolution, one-hot, LSTM, If, STFT.
FAST_PACKAGES = frozenset(
    {
        "magika",
        "silero_vad",
        "silero_vad_op18",
        "silero_vad_half",
        "silero_vad_sequence",
        "wake_embedding",
        "wake_melspectrogram",
    }
)
FAST = [case for case in BUILT if (BUNDLED / f"{case.name}.onnx").exists()]
FAST += [case for case in PACKAGES if case.name in FAST_PACKAGES]
SLOW = [case for case in (*BUILT, *PACKAGES) if case not in FAST]


# Gaps, listed in docs/status.md: the bound stays as it was stated first.
BEYOND_THEIR_BOUND: dict[str, str] = {}


def _parameters(cases: list[ModelCase]) -> pytest.MarkDecorator:
    gaps = {
        name: [pytest.mark.xfail(strict=True, reason=reason)]
        for name, reason in BEYOND_THEIR_BOUND.items()
    }
    rows = [pytest.param(case, id=case.name, marks=gaps.get(case.name, [])) for case in cases]
    return pytest.mark.parametrize("case", rows)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for what Luban compiles."""
    monkeypatch.setenv("LUBAN_CACHE_DIR", str(tmp_path))
    return tmp_path


def _agrees_at_every_size(case: ModelCase, cache: Path) -> None:
    """The outputs keep the bound, and only the first size may compile."""
    model = load_luban(case.path(), THREADS)
    model(case.inputs())
    compiled = compiled_files(cache)
    assert compiled, "nothing was compiled into the cache"
    assert list(disagreements(case, model)) == []
    assert compiled_files(cache) == compiled, "another size compiled more kernels"


@_parameters(FAST)
def test_small_models_agree_at_every_size_without_a_recompile(case: ModelCase, cache: Path) -> None:
    _agrees_at_every_size(case, cache)


@pytest.mark.slow
@_parameters(SLOW)
def test_models_agree_at_every_size_without_a_recompile(case: ModelCase, cache: Path) -> None:
    _agrees_at_every_size(case, cache)


@_parameters([case for case in FAST if case.name in {"tiny_mlp", "bert_tiny", "resnet_tiny"}])
def test_the_answer_does_not_depend_on_the_number_of_threads(case: ModelCase, cache: Path) -> None:
    feeds = case.inputs()
    one, two = (load_luban(case.path(), threads)(feeds) for threads in (1, 2))
    assert [a.tobytes() for a in one] == [b.tobytes() for b in two]


@_parameters([case for case in FAST if case.name in {"tiny_mlp", "bert_tiny", "resnet_tiny"}])
def test_a_second_call_gives_the_same_bits(case: ModelCase, cache: Path) -> None:
    model, feeds = load_luban(case.path(), THREADS), case.inputs()
    first = [output.copy() for output in model(feeds)]
    model(case.inputs(case.sizes[-1], seed=1))
    assert [a.tobytes() for a in model(feeds)] == [b.tobytes() for b in first]
