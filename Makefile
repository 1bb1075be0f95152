# Each target makes its own virtual environment in .venv and installs what it needs; the second time it only runs.

PYTHON ?= python3
VENV := .venv
OLDEST := .venv-oldest
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

ifndef GLRU_DATA
ifneq ($(wildcard ../shared/data),)
export GLRU_DATA := $(abspath ../shared/data)
endif
endif

.PHONY: help demo test test-oldest lint docs coverage package bench zoo attack mutants reproduce clean
.NOTPARALLEL:

help:
	@echo "make demo    exact leave-one-out of a bundled dataset beside brute force; a picture and a report"
	@echo "make test    run the tests"
	@echo "make test-oldest   run the tests with the oldest versions that pyproject.toml allows, in .venv-oldest"
	@echo "make lint    check format, style, types and layers"
	@echo "make docs    build the documentation in docs/_build/html: pages, reference and examples; warnings are errors"
	@echo "make coverage   run the tests and show which lines they reach, kernels included; COVERAGE=tests/contracts for some of them"
	@echo "make package    build the sdist and the wheel, check their metadata, and try each in an empty environment"
	@echo "make bench   measure training times beside scikit-learn, and the bounds"
	@echo "make zoo     ask every data set every question, beside scikit-learn (hours; ZOO=--quick: a quarter of an hour)"
	@echo "make attack  hold certificates of hostile problems against retraining in 40 digits, for ATTACK_SECONDS (600)"
	@echo "make mutants break the proofs on purpose and see that the tests notice (a quarter of an hour)"
	@echo "make reproduce   run the paper's experiments and render docs/results"
	@echo "make clean   remove the virtual environment and all caches"

demo: $(VENV)/cli,plot.stamp
	@mkdir -p demo-output
	$(BIN)/glru loocv breast_cancer --verify 569 --plot demo-output/loocv.png --html demo-output/report.html

test: $(VENV)/test.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest

test-oldest: $(OLDEST)/test.stamp
	SCIPY_ARRAY_API=1 OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest

lint: $(VENV)/lint.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/docs.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Compiled kernels have no lines to count: the tests of the contracts and of the solvers run them once more as Python.
KERNEL_TESTS := tests/contracts tests/reference

coverage: $(VENV)/coverage.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --cov --cov-report= $(COVERAGE)
	NUMBA_DISABLE_JIT=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest --cov --cov-append --cov-report=html:coverage-html --cov-report=term $(KERNEL_TESTS)

package: $(VENV)/package.stamp
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	for file in dist/*; do \
		rm -rf $(VENV)-package && $(PYTHON) -m venv $(VENV)-package && \
		$(VENV)-package/bin/python -m pip install --quiet --disable-pip-version-check $$file && \
		(cd dist && ../$(VENV)-package/bin/python ../tests/try_package.py) || exit 1; \
	done
	rm -rf $(VENV)-package

bench: $(VENV)/paper.stamp
	$(BIN)/python -m benchmarks

zoo: $(VENV)/paper.stamp
	$(BIN)/python -m benchmarks zoo --out zoo.csv $(ZOO)

attack: $(VENV)/test.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.attack

mutants: $(VENV)/test.stamp
	$(BIN)/python -m tests.attack.mutants

reproduce: $(VENV)/paper.stamp
	$(BIN)/python -m paper run all
	$(BIN)/python -m paper render

clean:
	rm -rf $(VENV) $(OLDEST) $(VENV)-package dist coverage-html .coverage demo-output reproduce-quick .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis docs/_build docs/_figures docs/api docs/gallery
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/paper.stamp: pyproject.toml paper/requirements.txt | $(BIN)/python
	$(PIP_INSTALL) --editable '.[cli,plot]' --requirement paper/requirements.txt
	@touch $@

$(VENV)/%.stamp: pyproject.toml | $(BIN)/python
	$(PIP_INSTALL) --editable '.[$*]'
	@touch $@

$(OLDEST)/test.stamp: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]' --constraint constraints-oldest.txt
	@touch $@
