# Two commands matter on a fresh machine: `make soak` and `make test`. `make help` lists the rest.
# make itself always exits with 2 when a command failed; its last line names that command's own code ("Error 3").

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help soak test check prove explore format reference pins lab dev clean

VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)
DATA ?=
ARGS ?=
RUN := $(VENV)/.installed-run
DEV := $(VENV)/.installed-dev
NOTEBOOKS := $(wildcard notebooks/*.ipynb runbooks/*.ipynb)

help: ## Show this.
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  make soak DATA=folder replays a recorded review instead of the simulated one."
	@echo "  make test ARGS='tests/unit -x' runs what pytest is told to, without coverage."
	@echo "  make prove ARGS='500 tests/integration/backfills/test_histories.py' plays 500 of data backfills instead."
	@echo "  make explore ARGS='--preemptions 1 --triples 10' plays few orders, in minutes."
	@echo "  STATLIB_TEST_DATA=folder make test also tests on the recorded reviews in folder."

soak: $(RUN) ## Replay a review against the embedded replica set, archive the report and verify it.
	@PWD_OF_CALLER="$(PWD)" tools/soak $(BIN) "$(DATA)"

test: $(DEV) ## Run every test, with branch coverage; no module may fall under its floor.
	@tools/test $(BIN) $(ARGS)

check: $(DEV) ## Lint, types, contracts, tidiness, and whether generated pages are fresh.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.reference --check
	$(BIN)/nbstripout --keep-id --verify $(NOTEBOOKS)
	$(BIN)/pytest -q tests/unit/test_tidy.py

prove: $(DEV) ## Play 2,000 random histories of every writer, in two processes (about an hour).
	@tools/prove $(BIN) $(ARGS)

explore: $(DEV) ## Play the orders in which the fold, savers, readers and rebuilds can interleave (hours).
	@$(BIN)/python -m tools.explore $(ARGS)

format: $(DEV) ## Format code, and strip notebooks of what running them left.
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/nbstripout --keep-id $(NOTEBOOKS)

reference: $(DEV) ## Write docs/reference/ anew from the code.
	$(BIN)/python -m tools.reference

pins: $(DEV) ## Resolve constraints.txt anew.
	$(BIN)/pip install --quiet uv
	@tools/pins $(BIN)

lab: $(RUN) ## Start the embedded replica set and JupyterLab on it.
	@$(BIN)/statlib up
	STATLIB_CONFIG="$(CURDIR)/.statlib/statlib.toml" STATLIB_ARCHIVE="$(CURDIR)/reports" $(BIN)/jupyter lab

dev: $(DEV) ## Make the virtual environment with everything in it.

clean: ## Stop the embedded server; remove the environment, its data and every cache. Reports stay.
	@if [ -x $(BIN)/statlib ] && [ -d .statlib ]; then $(BIN)/statlib down; fi
	rm -rf $(VENV) .statlib build dist htmlcov .coverage .coverage* .hypothesis .mypy_cache .ruff_cache .pytest_cache
	rm -rf .import_linter_cache .test-failures
	find . -name __pycache__ -prune -exec rm -rf {} +

$(RUN): pyproject.toml constraints.txt
	@tools/environment "$(PYTHON)" $(VENV) local,postgres,admin,notebooks
	@touch $@

$(DEV): pyproject.toml constraints.txt
	@tools/environment "$(PYTHON)" $(VENV) dev
	@touch $@ $(RUN)
