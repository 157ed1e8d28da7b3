# Each target sets up what it needs: a virtual environment in .venv with the right extras.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= $(FAIRWAY_CREDIT_CURVES)
SST2 ?= $(FAIRWAY_SST2_CURVES)
ANCHORS ?= $(FAIRWAY_ANCHORS)
TERMINATION ?= $(FAIRWAY_TERMINATION)
TABLES ?= $(FAIRWAY_DATA)
# One process more than there are cores: some tests wait for others.
PROCESSES ?= $(shell $(PYTHON) -c 'import os; print(min(8, os.cpu_count() + 1))')

.PHONY: demo test test-slow test-browser browser lint faults bench papers tables docs docs-serve clean

$(VENV)/.python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "fairway needs Python 3.11 or later"'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.%: $(VENV)/.python pyproject.toml
	@echo "Installing fairway[$*] into $(VENV), which takes a minute or two the first time."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	touch $@

demo: $(VENV)/.demo
	$(BIN)/python -m fairway.demo

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The style first, which takes a second; types and imports beside the tests, with what they say below them.
test: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@{ $(BIN)/mypy && $(BIN)/lint-imports; } > $(VENV)/types.log 2>&1 & types=$$!; \
	$(BIN)/pytest --ignore=tests/browser --numprocesses=$(PROCESSES) --durations=10; tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/types.log; \
	[ $$types = 0 ] || echo "make test: types or imports are wrong"; \
	[ $$tests = 0 ] || echo "make test: tests failed"; \
	[ $$types = 0 ] && [ $$tests = 0 ]

test-slow: $(VENV)/.dev
	$(BIN)/pytest -m slow

test-browser: $(VENV)/.dev browser
	$(BIN)/pytest tests/browser

browser:
	@if ! { command -v chromium && command -v chromedriver; } > /dev/null; then \
	  root=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$root apt-get install -y -qq chromium chromium-driver || \
	  { $$root apt-get update -qq && $$root apt-get install -y -qq chromium chromium-driver; }; fi

faults: $(VENV)/.dev
	$(BIN)/python -m tests.faults
	$(BIN)/python -m tests.attack.damage

bench: $(VENV)/.bench
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.speed
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.speed.ray
	$(BIN)/python -m bench.speed.fairness
	OMP_NUM_THREADS=1 $(BIN)/python -m bench.speed.boosting
	$(BIN)/python -m bench.levels
	$(BIN)/python -m bench.scale

papers: $(VENV)/.bench
	FAIRWAY_CREDIT_CURVES="$(DATA)" FAIRWAY_SST2_CURVES="$(SST2)" FAIRWAY_ANCHORS="$(ANCHORS)" \
	FAIRWAY_TERMINATION="$(TERMINATION)" FAIRWAY_DATA="$(TABLES)" \
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench run papers

tables: $(VENV)/.bench
	$(BIN)/python -m bench run practitioner search_cv unseen $(if $(TABLES),--data "$(TABLES)")

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --watch src --watch bench/results

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis site
