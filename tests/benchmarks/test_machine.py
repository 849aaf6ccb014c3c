"""The facts that a figure is printed with."""

from __future__ import annotations

import os

import pytest

from benchmarks import machine


def test_facts_name_the_machine_the_versions_and_the_commit() -> None:
    facts = machine.facts()
    assert all(facts.values())
    assert {"date", "processor", "cores", "memory", "other load", "numpy", "commit"} <= set(facts)


def test_a_busy_machine_is_said_to_be_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (3.21, 0.0, 0.0))
    assert machine.load().startswith("3.2 processes: BUSY")
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 9.0, 9.0))
    assert machine.load() == "0.1 processes"
