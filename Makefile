# make demo     the trained model at work, on JAX alone
# make test     lint, types, and the suite once per backend
# make oldest   the suite again, on the oldest Keras that is supported
# make lint     the first part of it; make format rewrites the files
# make docs     the documentation site, in build/site
# make clean    removes what the others made
#
# Variables: PYTHON=python3.12   BACKENDS="jax torch"   WORKERS=4
#            PYTEST_ARGS="--run-slow -k resampling"

# The oldest first: all three backends have wheels for it.
CANDIDATES := python3.11 python3.12 python3.13 python3 python
RUNS := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
ifndef PYTHON
PYTHON := $(shell for p in $(CANDIDATES); do \
	$$p -c "$(RUNS)" 2>/dev/null && echo $$p && break; done)
endif

BACKENDS ?= jax tensorflow torch
WORKERS ?= 2
PYTEST_ARGS ?=
DATASET := /usr/share/datasets/fashion-mnist

# The CPU set-up of CI. This torch has a small build without CUDA, installed
# first and alone, so that nothing after it asks for the large one.
TORCH ?= torch==2.13.0
TENSORFLOW ?= tensorflow-cpu

# `make oldest` takes another environment, with another Keras.
VENV ?= .venv
KERAS ?= keras
BIN := $(VENV)/bin
OLDEST := $(shell sed -n 's/.*"keras>=\(.*\)",/\1/p' pyproject.toml)
PIP := python -m pip install --quiet --disable-pip-version-check

.PHONY: demo docs test oldest suite lint format clean python dataset browser
.DELETE_ON_ERROR:

demo: .venv-demo/ready
	KERAS_BACKEND=jax .venv-demo/bin/python recipes/demo.py

docs: .venv-docs/ready
	KERAS_BACKEND=jax .venv-docs/bin/python -m mkdocs build --strict

test: lint dataset browser
	@$(MAKE) --no-print-directory suite

oldest: dataset
	@$(MAKE) --no-print-directory suite VENV=.venv-oldest \
		KERAS=keras==$(OLDEST).0

suite: $(VENV)/ready
	@failed=; once=; \
	for backend in $(BACKENDS); do \
		echo "== tests on $$backend"; \
		KERAS_BACKEND=$$backend TF_CPP_MIN_LOG_LEVEL=2 OMP_NUM_THREADS=1 \
			$(BIN)/python -m pytest -q -n $(WORKERS) $$once \
			$(PYTEST_ARGS) tests || failed="$$failed $$backend"; \
		once=--skip-once; \
	done; \
	if [ -n "$$failed" ]; then echo "== FAILED on:$$failed"; exit 1; fi; \
	echo "== passed on: $(BACKENDS)"

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .venv-oldest .venv-demo .venv-docs demo .pytest_cache .ruff_cache build dist *.egg-info

# One file per environment says that it is whole; it is made again when what
# it is made from changes.
$(VENV)/ready: pyproject.toml Makefile | python
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/$(PIP) "$(TORCH)"
	$(BIN)/$(PIP) "$(KERAS)" "$(TENSORFLOW)" -e ".[jax,test]"
	@touch $@

.venv-demo/ready: pyproject.toml Makefile | python
	"$(PYTHON)" -m venv .venv-demo
	.venv-demo/bin/$(PIP) -e ".[jax,plots]"
	@touch $@

.venv-docs/ready: pyproject.toml Makefile | python
	"$(PYTHON)" -m venv .venv-docs
	.venv-docs/bin/$(PIP) -e ".[jax,docs]"
	@touch $@

python:
	@"$(PYTHON)" -c "$(RUNS)" 2>/dev/null || { \
		echo "No usable Python. Expected: Python 3.11 or newer with venv and" \
		"ensurepip. Received: PYTHON='$(PYTHON)'," \
		"$$("$(or $(PYTHON),python3)" --version 2>&1). Install one (on" \
		"Debian: python3 and python3-venv), or name it:" \
		"make PYTHON=/path/to/python3.11" >&2; exit 1; }

# Real pictures for the tests that want them; without them those are skipped.
dataset:
	@if [ ! -d $(DATASET) ] && [ "$$(id -u)" = 0 ] \
		&& command -v apt-get >/dev/null; then \
		apt-get install -qq -y dataset-fashion-mnist >/dev/null 2>&1 || { \
		apt-get update -qq >/dev/null 2>&1; \
		apt-get install -qq -y dataset-fashion-mnist >/dev/null 2>&1; }; \
	fi; \
	[ -d $(DATASET) ] || echo "No $(DATASET): tests of real images are skipped"

# A browser for the test of `keras-vit explain`; skipped without one.
browser:
	@if ! command -v chromium >/dev/null && [ "$$(id -u)" = 0 ] \
		&& command -v apt-get >/dev/null; then \
		apt-get install -qq -y chromium >/dev/null 2>&1 || { \
		apt-get update -qq >/dev/null 2>&1; \
		apt-get install -qq -y chromium >/dev/null 2>&1; }; \
	fi; \
	command -v chromium >/dev/null \
		|| echo "No chromium: tests of the report page are skipped"
