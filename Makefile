# Two commands: `make book` and `make test`. Both create .venv/ here first; `make help` lists the rest.
#
#   PYTHON=python3.12          another interpreter (3.11 or newer)
#   TORCH_INDEX=https://...    another package index for torch, for example the index of CPU-only builds
#   JOBS=4                     chapters (and test workers) that run at the same time
#   PROFILE=full               larger exhaustive scopes for `make book`

SHELL       := /bin/bash
PYTHON      ?= python3
JOBS        ?= 2
PROFILE     ?= quick
TORCH_INDEX ?=
PYTEST_ARGS ?=

BIN     := .venv/bin
OK      := .venv/.ok
ORACLE  := .venv/.oracle
NATIVE  := .venv/.native
STEP    := $(wildcard setup.py src/hybridseq/learning/native/*.[ch] src/hybridseq/learning/native/source.py)
PIP     := $(BIN)/python -m pip --disable-pip-version-check
LOCK    := -c requirements/lock.txt -c requirements/torch.txt
INDEX   := $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))

INSTALL_FAILED = tail -n 15 .venv/install.log; echo "pip failed; the whole of it: .venv/install.log"; exit 1

.DEFAULT_GOAL := help
.PHONY: help book test env oracle lock doctor lint clean

help: ## this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

book: env ## execute the chapters that changed, build the site, say where to open it
	@$(BIN)/hybridseq build --profile $(PROFILE) --jobs $(JOBS)

test: env ## all tests: package, chapters, project, and the site in Chromium
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -q $(PYTEST_ARGS)

env: $(OK) $(NATIVE) $(ORACLE) ## only the environment in .venv/

$(OK): pyproject.toml requirements/lock.txt requirements/torch.txt Makefile
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not installed: install Python 3.11 or newer, or say make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$$($(PYTHON) --version) is too old: Python 3.11 or newer is needed, say make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "Python has no venv here: install it (Debian, Ubuntu: sudo apt-get install python3-venv)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Setting up .venv/ (the first time takes some minutes): torch"
	@$(PIP) install $(INDEX) -r requirements/torch.txt >.venv/install.log 2>&1 || { $(INSTALL_FAILED); }
	@echo "Setting up .venv/: the book's packages"
	@$(PIP) install $(LOCK) -e '.[book,dev]' >>.venv/install.log 2>&1 || { $(INSTALL_FAILED); }
	@touch $(NATIVE) $@

# The trainer's step in C, where its source changed; without a compiler the package does without it (`make doctor` says so).
$(NATIVE): $(STEP) | $(OK)
	@echo "Setting up .venv/: the native training step"
	@$(PIP) install --no-deps -e . >.venv/native.log 2>&1 || { tail -n 15 .venv/native.log; exit 1; }
	@touch $@

# Reference code of other projects, read as source: apart from the rest, and never a reason to stop. Without --no-cache-dir pip
# would keep the wheel without kernels and hand it out later where kernels are wanted.
$(ORACLE): $(OK) requirements/oracle.txt
	@echo "Setting up .venv/: the oracles"
	@if $(PIP) install $(LOCK) setuptools wheel packaging ninja >.venv/oracle.log 2>&1 && \
	  MAMBA_SKIP_CUDA_BUILD=TRUE MAMBA_FORCE_BUILD=TRUE $(PIP) install --no-build-isolation --no-deps --no-cache-dir \
	    -r requirements/oracle.txt >>.venv/oracle.log 2>&1; \
	then echo ok >$@; \
	else echo missing >$@; echo "Oracles not installed, their checks show as not run here (why: .venv/oracle.log; again: make oracle)"; fi

oracle: ## install the oracles (again)
	@rm -f $(ORACLE)
	@$(MAKE) --no-print-directory $(ORACLE)

lock: $(OK) ## renew requirements/lock.txt from pyproject.toml (needs uv)
	@command -v uv >/dev/null || { echo "uv is not installed: pip install uv"; exit 1; }
	@uv pip compile pyproject.toml --quiet --extra book --extra dev --python-version 3.11 -c requirements/torch.txt \
	  --no-emit-package torch --no-header --no-annotate -o requirements/lock.txt
	@sed -i.old -E '/^(nvidia|cuda|triton)/d' requirements/lock.txt && rm requirements/lock.txt.old  # what torch for a GPU would bring

doctor: env ## look at this machine: what works, what would not be run
	@$(BIN)/hybridseq doctor

lint: env ## style of the code
	@$(BIN)/ruff check

clean: ## remove .venv/ and everything built
	@rm -rf .venv _build .pytest_cache .ruff_cache .hypothesis .import_linter_cache src/*.egg-info
