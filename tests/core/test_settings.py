"""Settings: parsed from the environment, refused with the variable's name."""

from typing import Any

import pytest

from luban.core import settings
from luban.core.errors import OptionError


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        (settings.NUM_THREADS, "4", 4),
        (settings.CACHE_SIZE, "512M", 512 << 20),
        (settings.CACHE_SIZE, "1.5GiB", 3 << 29),
        (settings.CACHE_SIZE, "0", 0),
        (settings.CACHE_SIZE, "100", 100),
        (settings.VERIFY, "yes", True),
        (settings.VERIFY, "0", False),
        (settings.TARGET, "avx2", "avx2"),
        (settings.CACHE_DIR, "/x", "/x"),
    ],
)
def test_values(setting: Any, text: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(setting.variable, text)
    assert setting.get() == value


@pytest.mark.parametrize("setting", settings.SETTINGS, ids=lambda s: s.variable)
def test_unset_and_empty_give_the_default(setting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(setting.variable, raising=False)
    assert setting.get() == setting.default
    monkeypatch.setenv(setting.variable, "")
    assert setting.get() == setting.default


@pytest.mark.parametrize(
    ("setting", "text", "reason"),
    [
        (settings.NUM_THREADS, "0", "expected a whole number >= 1"),
        (settings.NUM_THREADS, "many", "invalid literal"),
        (settings.CACHE_SIZE, "-1", "expected a size >= 0, such as 512M or 2G"),
        (settings.CACHE_SIZE, "big", "could not convert"),
        (settings.VERIFY, "maybe", "expected 1 or 0"),
    ],
)
def test_text_that_cannot_be_read_is_refused(
    setting: Any, text: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(setting.variable, text)
    with pytest.raises(
        OptionError, match=f"{setting.variable}='{text}' is not understood: {reason}"
    ):
        setting.get()


def test_variables_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert settings.environment("OMP_NUM_THREADS") == "3"
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert settings.environment("OMP_NUM_THREADS") is None


def test_another_process_adopts_what_was_given_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for setting in settings.SETTINGS:
        monkeypatch.setenv(setting.variable, "")
    monkeypatch.setenv("LUBAN_VERIFY", "1")
    monkeypatch.delenv("LUBAN_TARGET")
    given = settings.given()
    assert given["LUBAN_VERIFY"] == "1"
    assert "LUBAN_TARGET" not in given
    monkeypatch.setenv("LUBAN_TARGET", "avx2")
    settings.adopt(given)
    assert settings.VERIFY.get()
    assert settings.TARGET.get() == "host"
    assert settings.given() == given
