# `make demo` and `make test` do all of their own set-up, in .venv, and re-use it the next time.
# Each step of the set-up leaves a stamp in .venv/.stamps, named after a hash of what it depends on:
# the step is repeated when the contents of those files change, and only then.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

TORCH := torch==2.13.0
VENV := .venv
PY := $(VENV)/bin/python
BIN := $(VENV)/bin
PIP := $(PY) -m pip install -qq --disable-pip-version-check
STAMPS := $(VENV)/.stamps
WORKERS ?= 2
MINUTES ?= 10
# Tests that compare programs with eager PyTorch: they are run once more, through generated code.
PROGRAMS := tests/capture tests/dynamic $(addprefix tests/test_,dynamic_shapes.py module.py \
    introductory_programs.py soundness.py random_programs.py threads.py) tests/driver/test_limits.py
# Tests of backends that say nothing of CPUs, and what may change between calls, on tensors of a GPU.
ON_GPU := tests/test_soundness.py $(addprefix tests/backends/test_,layouts.py matmul.py writes.py \
    writes_in_place.py overlaps.py output_views.py by_sizes.py strides.py odd_inputs.py \
    signed_numbers.py changing_inputs.py float8.py)

hash = $(shell cat $(1) 2>/dev/null | sha256sum | cut -c1-16)
TORCH_STAMP := $(STAMPS)/$(subst ==,-,$(TORCH))
DEV_STAMP := $(STAMPS)/dev-$(call hash,pyproject.toml)
DOCS_STAMP := $(STAMPS)/docs-$(call hash,pyproject.toml)
RELEASE_STAMP := $(STAMPS)/release-$(call hash,pyproject.toml)
MODELS_STAMP := $(STAMPS)/models-$(call hash,tests/models/requirements.txt)
PLIANT_STAMP := $(STAMPS)/pliant-$(call hash,Makefile pyproject.toml setup.py $(sort $(wildcard csrc/*)))

# Everything anew, since a page that hasn't changed may link to one that has. To check links, no page
# has to be written (-b dummy); this takes about 5 s.
SPHINX := $(PY) -m sphinx -q -W --keep-going -E -a -c docs -d build/doctrees

.PHONY: help demo test test-long test-models test-asan test-gpu test-matrix test-wheel wheels fuzz conformance check docs bench format setup setup-dev clean FORCE

help:  ## this list
	@awk -F ':.*## *' '/^[a-z-]+:.*##/ {printf "  make %-12s %s\n", $$1, $$2}' Makefile

demo: setup  ## set up, then a tour of what pliant does
	@$(PY) examples/tour.py

test: setup-dev check  ## set up, then everything that CI checks
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(WORKERS)
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(WORKERS) --backend=llvm $(PROGRAMS)

test-long: setup-dev  ## the tests that take minutes
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(WORKERS) -m long || test $$? = 5  # 5: there are none

test-models: setup-dev $(MODELS_STAMP)  ## real networks (transformers, random weights)
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(WORKERS) -m models tests/models
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(WORKERS) -m models tests/models --backend=llvm

test-gpu: setup-dev  ## programs on a GPU; without one they are skipped
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(WORKERS) tests/gpu
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(WORKERS) --backend=llvm --device=cuda $(ON_GPU)
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(WORKERS) --backend=llvm --device=cuda -m models \
	    tests/models/test_transformers.py || test $$? = 5  # 5: the package isn't installed

conformance: setup-dev  ## PyTorch's own tests of Dynamo, with PYTORCH=a source tree of it
	$(PY) tools/conformance.py $(PYTORCH) --report docs/conformance.md

test-matrix:  ## the tests on Python 3.12 to 3.14, in environments made for them
	python3 tools/matrix.py $(PYTHONS)

test-asan: setup-dev  ## the extension under AddressSanitizer and UBSan, over the tests of native code
	$(PY) tools/sanitize.py $(TESTS)

wheels: setup $(RELEASE_STAMP)  ## what is published, in build/wheels: the source, and a wheel for this Python and torch
	$(PY) tools/wheels.py build

test-wheel: wheels  ## installs the wheel into a new environment, and runs it without a compiler
	$(PY) tools/wheels.py try

fuzz: setup-dev  ## random programs against eager, for MINUTES=10
	$(PY) tools/fuzz.py --minutes $(MINUTES) --jobs $(WORKERS) --report fuzz-report.txt

check: setup-dev $(DOCS_STAMP)  ## style, types, imports, budgets, links in the documentation
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/mypy --no-error-summary
	$(BIN)/lint-imports --no-logo | tail -n 3 || { $(BIN)/lint-imports --no-logo; exit 1; }
	$(PY) tools/budgets.py
	$(SPHINX) -b dummy . build/site

docs: setup $(DOCS_STAMP)  ## the documentation as a site: build/site/index.html
	$(SPHINX) . build/site
	@echo "build/site/index.html"

bench: setup  ## pliant beside eager and torch.compile
	$(PY) -m benchmarks overhead
	$(PY) -m benchmarks capture

format: setup-dev  ## write all code in the common style
	$(BIN)/ruff check --quiet --fix . || true
	$(BIN)/ruff format .

setup: $(PLIANT_STAMP)

setup-dev: $(PLIANT_STAMP) $(DEV_STAMP)

# Python 3.11 to 3.14: `make PYTHON=/path/to/python`, or the first that is found.
$(STAMPS)/venv:
	@if ! $(PY) -m pip --version >/dev/null 2>&1; then \
	    for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	        if $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
	            2>/dev/null; then found=$$python; break; fi; \
	    done; \
	    test -n "$${found:-}" || { echo "pliant needs Python 3.11 to 3.14" >&2; exit 1; }; \
	    echo "making $(VENV) with $$($$found --version)"; \
	    $$found -m venv --clear $(VENV); \
	fi
	@mkdir -p $(STAMPS) && touch $@

$(TORCH_STAMP): $(STAMPS)/venv
	@echo "installing $(TORCH)"
	@$(PIP) $(TORCH) "setuptools>=77" wheel numpy
	@touch $@

# The packages of an extra; asked for by themselves, because installing the extra would build the
# extension once more.
extra = $$($(PY) -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
    print(*project["optional-dependencies"]["$(1)"])')

$(DEV_STAMP): | $(TORCH_STAMP)
	@echo "installing the development tools"
	@$(PIP) $(call extra,dev)
	@rm -f $(STAMPS)/dev-* && touch $@

$(DOCS_STAMP): | $(TORCH_STAMP)
	@echo "installing what builds the documentation"
	@$(PIP) $(call extra,docs)
	@rm -f $(STAMPS)/docs-* && touch $@

$(RELEASE_STAMP): | $(TORCH_STAMP)
	@echo "installing what builds wheels"
	@$(PIP) $(call extra,release)
	@rm -f $(STAMPS)/release-* && touch $@

# Without what they depend on, which would be another torch.
$(MODELS_STAMP): tests/models/requirements.txt | $(TORCH_STAMP)
	@echo "installing the packages of tests/models"
	@$(PIP) --no-deps --requirement $<
	@rm -f $(STAMPS)/models-* && touch $@

# Without isolation, to build against the torch that is installed and not against another one.
$(PLIANT_STAMP): $(if $(wildcard pliant/_native*.so),,FORCE) | $(TORCH_STAMP)
	@echo "building and installing pliant"
	@MAX_JOBS=$${MAX_JOBS:-2} $(PIP) --no-build-isolation --editable .
	@rm -f $(STAMPS)/pliant-* && touch $@

FORCE:

clean:  ## remove what was built, and the set-up
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache \
	    .hypothesis pliant/_native*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
