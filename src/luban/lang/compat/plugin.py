"""A pytest plug-in that runs Triton's tests, or yours, on the CPU.

pytest -p luban.lang.compat.plugin --luban-device-map cuda=cpu tests
"""

from __future__ import annotations

from typing import Any

from luban.lang import compat

__all__ = ["pytest_addoption", "pytest_configure", "pytest_report_header", "pytest_unconfigure"]


def pytest_addoption(parser: Any) -> None:
    """The options of the plug-in."""
    group = parser.getgroup("luban", "kernels on the CPU")
    group.addoption("--luban-device-map", metavar="FROM=TO", default=None, help="such as cuda=cpu")
    group.addoption(
        "--luban-shadow",
        action="store_true",
        help="stand in for Triton even where it is installed",
    )


def pytest_configure(config: Any) -> None:
    """Stand in before any test module is imported."""
    compat.install(
        device_map=config.getoption("--luban-device-map"),
        shadow=config.getoption("--luban-shadow"),
    )


def pytest_unconfigure(config: Any) -> None:  # noqa: ARG001  # the signature is pytest's
    """Leave nothing behind."""
    compat.uninstall()


def pytest_report_header(config: Any) -> str:
    """A line that says what `triton` is."""
    mapped = config.getoption("--luban-device-map")
    return "triton: Luban on the CPU" + (f", device map {mapped}" if mapped else "")
