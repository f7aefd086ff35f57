# Everything that a clone needs: `make demo` shows the product, `make test` proves it. See CONTRIBUTING.md.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.ONESHELL:
.DEFAULT_GOAL := help

# Debian's own interpreter first: other users can run it, which one below somebody's HOME does not promise.
PYTHON ?= $(shell for p in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV := .venv
PY := $(VENV)/bin/python
STAMPS := $(VENV)/.stamps

SOURCES := setup.py $(filter-out $(wildcard native/_*.c), $(wildcard \
	native/*.pyx native/*.pxd native/*.h native/*.c native/*_build.py native/init/*))  # native/_*.c is cffi's output
CODE := supervisor agent native profiles benchmarks tests demo setup.py
# Tests whose outcome depends on who runs them.
AS_USER_TESTS := $(wildcard tests/unit tests/kernel tests/escape tests/e2e)

.PHONY: help build demo test check lint test-long bench tree clean

help:
	@echo "make demo       build everything, then watch lemni repair a small project"
	echo "make test       build everything, then all tests (as root: the kernel tests again as an ordinary user)"
	echo "make check      ruff, mypy, layers and unit tests, in under a minute"
	echo "make test-long  the slow tests: floods, large trees, long fuzzing"
	echo "make bench      the benchmark table"
	echo "make tree       redraw the map in ARCHITECTURE.md"
	echo "make build      .venv with lemni in it"
	echo "make clean      remove what was built"

build: $(STAMPS)/built

# A recipe of its own: the next one looks for the interpreter anew, and finds what this one may have installed.
$(STAMPS)/python:
	@test -n "$(PYTHON)" || tools/packages "" build
	mkdir -p $(STAMPS) && touch $@

$(STAMPS)/system: $(STAMPS)/python
	@tools/packages "$(PYTHON)" build
	test -x $(PY) || "$(PYTHON)" -m venv $(VENV)
	touch $@

$(STAMPS)/test-system: $(STAMPS)/system
	@tools/packages "$(PYTHON)" test
	touch $@

# The build's own requirements first, so that the project builds against what is installed and its build is one we repeat.
$(STAMPS)/installed: pyproject.toml $(STAMPS)/system
	@echo "installing Python packages into $(VENV)" >&2
	$(PY) -m pip install -qq --disable-pip-version-check 'setuptools>=77' 'Cython>=3.0' 'cffi>=1.16' wheel
	exec 9>$(STAMPS)/lock && flock 9
	$(PY) -m pip install -qq --disable-pip-version-check --no-build-isolation -e '.[dev]'
	touch $@

$(STAMPS)/built: $(SOURCES) $(STAMPS)/installed
	@exec 9>$(STAMPS)/lock && flock 9
	$(PY) setup.py -q build_ext --inplace
	touch $@

demo: build
	@$(PY) -m demo

test: build $(STAMPS)/test-system lint
	@exec </dev/null  # whatever make was started with, closed descriptors included
	$(PY) -m pytest -m "not slow" && first=0 || first=$$?
	again=0
	if [ "$$(id -u)" = 0 ]; then
		echo "again as an ordinary user: $(AS_USER_TESTS)"
		tools/as-user $(PY) -m pytest -p no:cacheprovider -m "not slow" $(AS_USER_TESTS) || again=$$?
	fi
	exit $$((first | again))

lint: $(STAMPS)/installed
	@$(VENV)/bin/ruff check -q .
	$(VENV)/bin/mypy $(CODE)

# Types are checked on one core while the tests run on the other.
check: build
	@exec </dev/null
	$(VENV)/bin/ruff check -q .
	$(VENV)/bin/mypy $(CODE) & types=$$!
	$(PY) -m pytest -q -m "not slow and not kernel" tests/architecture tests/unit && tests=0 || tests=$$?
	wait $$types && exit $$tests

test-long: build $(STAMPS)/test-system
	@exec </dev/null
	$(PY) -m pytest -m slow || [ $$? = 5 ]
	$(PY) -m pytest -q --hypothesis-profile=long tests/property $(wildcard tests/fuzz)

bench: build $(STAMPS)/test-system
	@$(PY) -m benchmarks

tree: $(STAMPS)/installed
	@PYTHONPATH=tests $(PY) -m support.drawing

clean:
	@rm -rf $(VENV) build dist ./*.egg-info native/*.so native/lemni-init native/_*.c
