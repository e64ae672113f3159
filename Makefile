# Two commands do everything: `make demo` and `make test`. Each makes $(VENV) and installs what it needs.
#   PYTHON=...   the interpreter (3.10 or newer) that $(VENV) is made from
#   VENV=...     where the environment lies; a second Python gets one of its own
#   WORKERS=...  processes of the parallel part of the tests
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= auto

PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
PACKS := $(patsubst %/pyproject.toml,./%,$(sort $(wildcard harnesses/*/pyproject.toml plugins/*/pyproject.toml)))
DISTS := ./core $(PACKS) ./
# what a pack names in its entry points must be reinstalled to be seen, what its modules hold need not
PROJECTS := $(patsubst %,%/pyproject.toml,$(patsubst %/,%,$(DISTS)))

.DEFAULT_GOAL := help
.PHONY: help demo test lint tests install dev clean

help:
	@echo 'make demo     compress a real field with every preset; writes a table and a picture to ./demo-out'
	@echo 'make test     ruff, mypy and every test'
	@echo 'make lint     ruff and mypy only'
	@echo 'make tests    the tests only'
	@echo 'make clean    remove what the other targets made, $(VENV) included'

demo: install
	$(VENV)/bin/briquette demo

test: lint
	@$(MAKE) --no-print-directory tests

# Timing tests come first and alone; the parallel part runs whatever they said, and its closing line is the last one.
tests: dev
	@status=0; \
	$(PY) -m pytest -m serial || status=$$?; \
	$(PY) -m pytest -n $(WORKERS) -m 'not serial' || status=$$?; \
	exit $$status

lint: dev
	$(PY) -m ruff check .
	$(PY) -m mypy --strict core/src
	$(PY) -m mypy $(foreach pack,$(PACKS),$(pack)/src) tools

install: $(VENV)/.installed
dev: $(VENV)/.dev

$(VENV)/.made: tools/make_venv.py
	$(PYTHON) tools/make_venv.py $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.made $(PROJECTS)
	$(PIP) install 'setuptools>=77'
	$(PIP) install --no-build-isolation $(foreach dist,$(DISTS),-e $(dist))
	@touch $@

$(VENV)/.dev: $(VENV)/.installed requirements-dev.txt
	$(PIP) install -r requirements-dev.txt
	@touch $@

clean:
	rm -rf $(VENV) demo-out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name '*.egg-info' -prune -exec rm -rf {} +
	find . -name __pycache__ -prune -exec rm -rf {} +
