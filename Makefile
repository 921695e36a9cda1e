# reproduce   every figure, table and the report, from the records
# test        all tests that this machine can run
# lab         JupyterLab on the notebooks; LAB_ARGS="--no-browser --ip=0.0.0.0" for a remote machine
# measure     on a Hopper GPU: the studies afresh, into data/local/<gpu>
# lint        ruff, mypy, clang-format
# clean       remove what these made, except .venv
#
# Each installs what it needs into .venv by itself, and again only when pyproject.toml changed.

SHELL := bash
ifndef PYTHON
PYTHON := $(shell for name in python3 python3.13 python3.12 python3.11; do \
  $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
    && { echo $$name; break; }; done)
ifeq ($(PYTHON),)
$(error Python 3.11 or newer is needed: make PYTHON=/path/to/python)
endif
endif
ifndef EXTRA
EXTRA := $(shell $(PYTHON) scripts/pick_extra.py)
endif
BIN := .venv/bin
INSTALLED := .venv/installed-$(EXTRA)

.PHONY: reproduce test lab measure lint clean
.DELETE_ON_ERROR:

reproduce: $(INSTALLED)
	$(BIN)/asyncsparse reproduce $(REPRODUCE_ARGS)

test: $(INSTALLED)
	$(BIN)/python -m pytest $(TEST_ARGS)

lab: $(INSTALLED)
	$(BIN)/jupyter lab --LabApp.default_url=/lab/tree/notebooks/explore.ipynb $(LAB_ARGS)

measure: $(INSTALLED)
	$(BIN)/asyncsparse measure all $(MEASURE_ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $$(find kernels -name '*.cu' -o -name '*.cuh')

# CuPy for CUDA 12 and for CUDA 13 are the same module: the one that does not fit has to go.
$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	case $(EXTRA) in \
	  gpu) $(BIN)/python -m pip uninstall --quiet --yes cupy-cuda13x ;; \
	  gpu13) $(BIN)/python -m pip uninstall --quiet --yes cupy-cuda12x ;; \
	esac
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,$(EXTRA)]'
	rm -f .venv/installed-*
	touch $@

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
