# Two commands do everything: `make demo` and `make test`. Each makes $(VENV) and installs what it needs.
#   PYTHON=...   the interpreter (3.10 or newer) that $(VENV) is made from; test-gpu runs in it as it is
#   VENV=...     where the environment lies; a second Python gets one of its own
#   NVRTC_VENV=...  the same for the environment that NVRTC is in
#   WORKERS=...  processes of the parallel part of the tests
PYTHON ?= python3
VENV ?= .venv
NVRTC_VENV ?= .venv-nvrtc
WORKERS ?= auto
MARKS = not serial and not thorough

PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
PACKS := $(patsubst %/pyproject.toml,./%,$(sort $(wildcard harnesses/*/pyproject.toml plugins/*/pyproject.toml)))
# without extras: the CUDA packages are large, and no target needs them but test-gpu, which makes no environment
DISTS := ./core $(PACKS) ./
# what a pack names in its entry points must be reinstalled to be seen, what its modules hold need not
PROJECTS := $(patsubst %,%/pyproject.toml,$(patsubst %/,%,$(DISTS)))

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint tests docs test-nvrtc test-gpu install dev nvrtc clean

help:
	@echo 'make demo     compress a real field with every preset; writes a table and a picture to ./demo-out'
	@echo 'make test     ruff, mypy and every test'
	@echo 'make test-all  the same with the thorough tests: every mutant, every check of the kit, every GPU architecture'
	@echo 'make lint     ruff and mypy only'
	@echo 'make tests    the tests only'
	@echo 'make docs     the pages of ./docs as a site, in ./docs/_build'
	@echo 'make test-nvrtc  compile every device policy for GPUs, without one, and print registers and spills'
	@echo 'make test-gpu  the tests that need a GPU, in $$(PYTHON), which has briquette and the CUDA packages; fails without a GPU'
	@echo 'make clean    remove what the other targets made, $(VENV) and $(NVRTC_VENV) included'

demo: install
	$(VENV)/bin/briquette demo

test: lint
	@$(MAKE) --no-print-directory tests

test-all: MARKS = not serial
test-all: lint tests

# Timing tests come first and alone; the parallel part runs whatever they said, and its closing line is the last one.
tests: export BRIQUETTE_NVRTC_VENV = $(NVRTC_VENV)
tests: dev nvrtc
	@status=0; \
	$(PY) -m pytest -m serial || status=$$?; \
	$(PY) -m pytest -n $(WORKERS) -m '$(MARKS)' || status=$$?; \
	exit $$status

docs: dev
	$(PY) -m sphinx -q -W --keep-going -b html docs docs/_build
	@echo docs/_build/index.html

test-nvrtc: export BRIQUETTE_NVRTC_VENV = $(NVRTC_VENV)
test-nvrtc: dev nvrtc
	$(PY) -m pytest -s tests/nvrtc

# on a GPU machine: `pip install -e` of each distribution, ./plugins/target-cuda with its extra cuda12 or cuda13, comes before
test-gpu: export BRIQUETTE_REQUIRE_GPU = 1
test-gpu:
	$(PYTHON) -m pytest -m gpu

lint: dev
	$(PY) -m ruff check .
	$(PY) -m mypy --strict core/src
	$(PY) -m mypy $(foreach pack,$(PACKS),$(pack)/src) tools

install: $(VENV)/.installed
dev: $(VENV)/.dev
nvrtc: $(NVRTC_VENV)/.installed

$(VENV)/.made: tools/make_venv.py
	$(PYTHON) tools/make_venv.py $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.made $(PROJECTS)
	$(PIP) install 'setuptools>=77'
	$(PIP) install --no-build-isolation $(foreach dist,$(DISTS),-e $(dist))
	@touch $@

$(VENV)/.dev: $(VENV)/.installed requirements-dev.txt requirements-docs.txt
	$(PIP) install -r requirements-dev.txt
	@touch $@

# after $(VENV): both write the distributions' egg-info
$(NVRTC_VENV)/.installed: $(VENV)/.installed tools/make_venv.py requirements-nvrtc.txt
	$(PYTHON) tools/make_venv.py $(NVRTC_VENV)
	$(NVRTC_VENV)/bin/python -m pip --disable-pip-version-check --quiet install 'setuptools>=77' -r requirements-nvrtc.txt
	$(NVRTC_VENV)/bin/python -m pip --disable-pip-version-check --quiet install --no-build-isolation $(foreach dist,$(DISTS),-e $(dist))
	@touch $@

clean:
	rm -rf $(VENV) $(NVRTC_VENV) demo-out docs/_build build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name '*.egg-info' -prune -exec rm -rf {} +
	find . -name __pycache__ -prune -exec rm -rf {} +
