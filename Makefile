# Each target makes .venv itself; a stamp file remembers what is already installed there.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PIP = .venv/bin/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test check bench clean

demo: .venv/demo.stamp
	.venv/bin/python -m examples.identify_files
	.venv/bin/python -m examples.read_text

test: .venv/test.stamp
	scripts/test

check: .venv/test.stamp
	scripts/check

bench: .venv/bench.stamp
	scripts/bench

.venv/demo.stamp .venv/test.stamp .venv/bench.stamp: .venv/%.stamp: pyproject.toml | .venv/bin/python
	$(PIP) --editable '.[$*]'
	@touch $@

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("luban needs Python 3.11 or newer, found " + sys.version)'
	$(PYTHON) -m venv .venv

clean:
	rm -rf .venv build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
