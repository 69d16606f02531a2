# Every target makes .venv and installs what it needs; a stamp file remembers that it is up to date.
# Python 3.11 or newer. To use another interpreter: make PYTHON=python3.12 test

PYTHON ?= python3
OUT ?= report
WORKERS ?= 2
BIN := .venv/bin

# Each test process keeps to one thread: two of them with torch's default would fight for the cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help run test test-all lint bench docs clean

help:
	@echo "make run       install, reproduce the paper's experiments, write $(OUT)/index.html"
	@echo "make test      the default test suite, a few minutes"
	@echo "make test-all  the slow tests too"
	@echo "make lint      ruff, pyright, import-linter"
	@echo "make bench     time ANNA attention against softmax attention on this machine"
	@echo "make docs      build the documentation strictly into site/"
	@echo "make clean     remove what these targets made, .venv included"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "make needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0])'
	$(PYTHON) -m venv .venv

.venv/lab.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -c constraints.txt -e '.[lab]'
	@touch $@

.venv/dev.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]'
	@touch $@ .venv/lab.stamp

run: .venv/lab.stamp
	$(BIN)/anna reproduce --out $(OUT)

test: .venv/dev.stamp
	@$(PYTEST)

test-all: .venv/dev.stamp
	@$(PYTEST) -m 'slow or not slow'

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

bench: .venv/lab.stamp
	$(BIN)/anna bench attention

docs: .venv/dev.stamp
	@# The theme prints an advertisement unless told not to.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf .venv site dist build report runs .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
