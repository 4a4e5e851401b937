# The development loop, one word each. Every word sets up first, and only when something changed.
# PYTHON: the interpreter that makes the virtual environment. TORCH: what pip installs as PyTorch.
PYTHON ?= python3.11
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up
DOCS_STAMP := $(VENV)/.set-up-docs
# A new package must be made known to the editable install, as the core must be built again.
PACKAGES := $(shell find src -name __init__.py)
NATIVE := CMakeLists.txt $(shell find native -name '*.?pp' -not -path '*/tests/*' -not -path '*/fuzz/*' 2>/dev/null)
PYTEST := $(BIN)/python -m pytest
CASES := ../shared/cases
# Of each fuzz target, of which two run at a time. They try the same inputs each time, as far as the seconds allow.
FUZZ_SECONDS ?= 60
# Options of tools/fresh_machine.sh, as '--bind FOLDER' for pip's files.
FRESH_MACHINE ?=

.PHONY: help setup check check-python check-core fuzz format test test-all demo bench papers docs wheel clean campaign
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## a virtual environment with everything in it
# PyTorch first and by itself: resolved as a dependency of another package it may come with gigabytes of CUDA.
$(STAMP): pyproject.toml $(NATIVE) $(PACKAGES)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@sh tools/install_liburing.sh
	$(BIN)/pip install --quiet "$(TORCH)"
	$(BIN)/pip install --quiet --editable ".[dev]"
	@touch $(STAMP)
	@echo "diskhop is set up: 'source $(BIN)/activate', then 'diskhop --help'"

check: $(STAMP) ## format, lint, types, layers, the core's tests under sanitizers, and all fuzz targets (FUZZ_SECONDS=60 each)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync check-python check-core
	@$(MAKE) --no-print-directory fuzz

check-python: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST) -q tests/unit/test_layers.py

check-core: $(STAMP)
	$(BIN)/clang-format --dry-run --Werror $$(find native -name '*.?pp')
	sh tools/native_tests.sh address,undefined

fuzz: $(STAMP) ## every fuzz target of the core and of the readers in Python, FUZZ_SECONDS=60 each
	sh tools/fuzz.sh $(FUZZ_SECONDS)
	$(BIN)/python -m tests.fuzz.run --seconds $(FUZZ_SECONDS)

format: $(STAMP) ## write all files in the house's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $$(find native -name '*.?pp')

# A third test uses the cores while others wait for the disk or for a process. Modules are compiled once, whatever the
# environment says, not by each of the hundreds of processes that tests start.
test: $(STAMP) ## the tests; under 10 minutes on 2 cores
	PYTHONDONTWRITEBYTECODE= $(PYTEST) -m "not slow" -n 3 --dist worksteal --durations 15

# Cases that users of similar systems run into lie next to the repository, where they are there.
test-all: $(STAMP) ## every test, the slow ones, the shared cases, the thread sanitizer, the site and a bare machine included
	sh tools/native_tests.sh thread
	PYTHONDONTWRITEBYTECODE= $(PYTEST) --hypothesis-profile thorough
	if [ -d $(CASES) ]; then $(PYTEST) -p tests.recorder $(CASES); else echo "skipped: $(CASES) is not there"; fi
	$(MAKE) --no-print-directory docs
	if [ "$$(id -u)" = 0 ] && command -v debootstrap >/dev/null; then sh tools/fresh_machine.sh $(FRESH_MACHINE); \
	else echo "skipped: tools/fresh_machine.sh needs root and debootstrap"; fi

# What is done stays in the file: the same command continues where it was stopped.
campaign: $(STAMP) ## the fault campaign at full count, hours long; figures in docs/reliability.md
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m tests.campaign --results docs/campaign.json

demo: $(STAMP) ## make a graph with 1 GB of features and train on it from disk
	$(BIN)/python examples/demo.py

bench: $(STAMP) ## every benchmark, results in benchmarks/results/
	$(BIN)/python benchmarks/run_all.py

papers: $(STAMP) ## the papers' figures at full size, hours long; QUICK=1: at quick sizes; written to docs/papers.md
	$(BIN)/python benchmarks/papers_page.py $(if $(QUICK),--quick)

# The site's own tools are installed when it is first built.
$(DOCS_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --editable ".[docs]"
	@touch $(DOCS_STAMP)

docs: $(DOCS_STAMP) ## the documentation as a site, in docs/_build/html; a warning is an error
	$(BIN)/python -m sphinx --quiet --nitpicky --fail-on-warning --keep-going docs docs/_build/html
	@echo "docs/_build/html/index.html"

wheel: $(STAMP) ## dist/: a source distribution, and a wheel for other machines (glibc 2.28, any x86-64)
	sh tools/make_wheel.sh dist

clean: ## remove what was built and generated; the virtual environment too
	rm -rf build dist docs/_build docs/reference/generated $(VENV) demo-data .mypy_cache .pytest_cache .ruff_cache .hypothesis
