# torchstone: `make run` and `make test` need only Python 3.11 (with venv), g++ and make. `make help` lists the rest.

PYTHON ?= python3.11
VENV ?= .venv
TORCH ?= torch==2.13.0
STORE ?= .torchstone/results.sqlite
SITE ?= site
JOBS ?= 2
SETTINGS ?=
GPU_PYTHON ?=
GPU_SITE ?= $(CURDIR)/.torchstone/gpu/site
GPU_OPTIONS ?=
BACKENDS ?= eager linalg tosa tensorrt
LIMIT ?= 10
RUN_OPTIONS ?= --source opinfo --dtype float32 --limit $(LIMIT)

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
TOX := $(BIN)/tox run --quiet -e

.DEFAULT_GOAL := help
.PHONY: help install run test lint types imports docs conformance controls ray releases machines gpu selftrial torture check clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

# The stamps make every target incremental: nothing is installed again until the package's metadata or the pins change.
$(VENV)/.stamp-run: pyproject.toml constraints.txt
	@echo "Installing torchstone and its dependencies into $(VENV) (once; torch is large)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) "$(TORCH)"
	$(PIP) --editable .
	@touch $@

$(VENV)/.stamp-test: $(VENV)/.stamp-run
	$(PIP) --editable ".[test]"
	@touch $@

$(VENV)/.stamp-tox: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) tox
	@touch $@

install: $(VENV)/.stamp-run ## create the virtual environment and install torchstone into it

# Exit code 1 of `torchstone run` means "ran, and found failures": the report is what shows them, so it is written first.
run: $(VENV)/.stamp-run ## run the conformance suite and write the report
	@status=0; \
	$(BIN)/torchstone run $(addprefix --backend ,$(BACKENDS)) $(RUN_OPTIONS) --jobs $(JOBS) --store $(STORE) || status=$$?; \
	if [ $$status -gt 1 ]; then exit $$status; fi; \
	$(BIN)/torchstone report --store $(STORE) --out $(SITE) || exit $$?; \
	if [ $$status -ne 0 ]; then echo "the run found failures: the report shows them" >&2; fi; \
	exit $$status

test: $(VENV)/.stamp-test ## run the tests
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations 15 $(PYTEST_OPTIONS)

lint: $(VENV)/.stamp-tox ## check formatting and lint
	$(TOX) lint

types: $(VENV)/.stamp-tox ## type-check the installed package
	$(TOX) types

imports: $(VENV)/.stamp-tox ## check which room may import which
	$(TOX) imports

docs: $(VENV)/.stamp-tox ## build the documentation
	$(TOX) docs

conformance: $(VENV)/.stamp-tox ## run the suite from an installed package: a few samples of every op
	$(TOX) conformance

selftrial: $(VENV)/.stamp-tox ## try mutants of the compiler; see whether the harness finds them
	$(TOX) selftrial

controls: $(VENV)/.stamp-tox ## try right backends that compute otherwise; see whether the harness accuses one
	$(TOX) controls

torture: $(VENV)/.stamp-tox ## the long tests: kill the runner at random moments, train whole models, try all rows of tables
	$(TOX) torture

ray: $(VENV)/.stamp-tox ## run on a Ray cluster of this machine, and lose a node of it
	$(TOX) ray

releases: $(VENV)/.stamp-tox ## workers with other releases of PyTorch: TORCHSTONE_PYTHONS=PATH:PATH
	$(TOX) releases

machines: $(VENV)/.stamp-test ## the tests under what other machines differ in: SETTINGS="aten path-with-space"
	$(BIN)/python tests/machines --jobs $(JOBS) $(SETTINGS) $(if $(PYTEST_OPTIONS),-- $(PYTEST_OPTIONS))

# GPU_PYTHON stays as it is: torchstone goes into a folder beside it, with the packages that it lacks.
gpu: $(if $(GPU_PYTHON),,$(VENV)/.stamp-test) ## all that needs a GPU: GPU_PYTHON=python3 for one that has PyTorch 2.11 or newer
	$(if $(GPU_PYTHON),$(GPU_PYTHON) tests/gpu/site_folder.py $(GPU_SITE))
	$(if $(GPU_PYTHON),PYTHONPATH=$(GPU_SITE) $(GPU_PYTHON),$(BIN)/python) tests/gpu $(GPU_OPTIONS)

check: lint types imports docs test ## everything a change has to pass

clean: ## remove what make created, results and report included
	rm -rf $(VENV) .tox build dist *.egg-info $(SITE) .torchstone
