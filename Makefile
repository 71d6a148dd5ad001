# Two commands set everything up on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check unit bench clean help

help:
	@echo "make demo    run the main job on this machine, with progress and a Gantt picture"
	@echo "make test    lint, types, import contracts and all tests"
	@echo "make bench   measure; JSON on standard output (BENCH=name for one of them)"
	@echo "make clean   remove what was installed and produced"

.venv/installed-demo: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --editable '.[demo]'
	touch $@

.venv/installed-dev: .venv/installed-demo
	$(BIN)/pip install --quiet --editable '.[demo,parquet,metrics,top]' --group dev
	touch $@

demo: .venv/installed-demo
	$(BIN)/python -m hetdemo

test: check unit

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/codespell

unit: .venv/installed-dev
	$(BIN)/pytest

bench: .venv/installed-dev
	$(BIN)/python -m hetbench $(BENCH)

clean:
	rm -rf .venv demo-output bench-output .mypy_cache .ruff_cache .pytest_cache .hypothesis
