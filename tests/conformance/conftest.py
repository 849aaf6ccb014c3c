"""Every compile here also runs every verifier."""

import pytest


@pytest.fixture(autouse=True)
def verify(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUBAN_VERIFY", "1")
