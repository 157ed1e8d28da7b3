# Each target sets up what it needs: a virtual environment in .venv with the right extras.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= $(FAIRWAY_CREDIT_CURVES)
SST2 ?= $(FAIRWAY_SST2_CURVES)
ANCHORS ?= $(FAIRWAY_ANCHORS)
TERMINATION ?= $(FAIRWAY_TERMINATION)
TABLES ?= $(FAIRWAY_DATA)

.PHONY: demo test test-browser lint faults bench papers tables docs docs-serve clean

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

test-browser: $(VENV)/.dev
	@if ! { command -v chromium && command -v chromedriver; } > /dev/null; then \
	  root=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$root apt-get install -y -qq chromium chromium-driver || \
	  { $$root apt-get update -qq && $$root apt-get install -y -qq chromium chromium-driver; }; fi
	$(BIN)/pytest tests/browser

faults: $(VENV)/.dev
	$(BIN)/python -m tests.faults

bench: $(VENV)/.bench
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.speed
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.speed.ray
	$(BIN)/python -m bench.speed.fairness
	$(BIN)/python -m bench.scale

papers: $(VENV)/.bench
	FAIRWAY_CREDIT_CURVES="$(DATA)" FAIRWAY_SST2_CURVES="$(SST2)" FAIRWAY_ANCHORS="$(ANCHORS)" \
	FAIRWAY_TERMINATION="$(TERMINATION)" FAIRWAY_DATA="$(TABLES)" \
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench run papers

tables: $(VENV)/.bench
	$(BIN)/python -m bench run practitioner search_cv $(if $(TABLES),--data "$(TABLES)")

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --watch src --watch bench/results

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis site
