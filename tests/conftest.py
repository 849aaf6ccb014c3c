"""The surroundings of a test run: a cache of its own, so tests neither use nor fill the user's."""

import os
import tempfile

import pytest

_cache = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_cache] = tempfile.TemporaryDirectory(prefix="luban-test-cache-")
    os.environ["LUBAN_CACHE_DIR"] = config.stash[_cache].name


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_cache].cleanup()
