# Each target sets up what it needs: a virtual environment in .venv with the right extras.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= $(FAIRWAY_CREDIT_CURVES)
ANCHORS ?= $(FAIRWAY_ANCHORS)
TABLES ?= $(FAIRWAY_DATA)

.PHONY: demo test lint faults bench papers tables clean

$(VENV)/.python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "fairway needs Python 3.11 or later"'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.%: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	touch $@

demo: $(VENV)/.demo
	$(BIN)/python -m fairway.demo

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest

faults: $(VENV)/.dev
	$(BIN)/python -m tests.faults

bench: $(VENV)/.bench
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.speed
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.speed.ray
	$(BIN)/python -m bench.speed.fairness
	$(BIN)/python -m bench.scale

papers: $(VENV)/.bench
	$(BIN)/python -m bench.papers.ace_curves $(if $(DATA),--data "$(DATA)")
	$(BIN)/python -m bench.papers.staleness $(if $(DATA),--data "$(DATA)")
	$(BIN)/python -m bench.papers.plugged_in $(if $(DATA),--data "$(DATA)")
	$(BIN)/python -m bench.papers.ctpe_tabular $(if $(ANCHORS),--anchors "$(ANCHORS)")
	$(BIN)/python -m bench.papers.cikm2021 $(if $(ANCHORS),--anchors "$(ANCHORS)")
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.papers.termination $(if $(TERMINATION),--data "$(TERMINATION)") $(if $(DATA),--curves "$(DATA)")

tables: $(VENV)/.bench
	$(BIN)/python -m bench.practitioner $(if $(TABLES),--data "$(TABLES)")
	$(BIN)/python -m bench.search_cv $(if $(TABLES),--data "$(TABLES)")

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
