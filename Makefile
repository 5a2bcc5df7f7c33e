# Everything here makes its own environment in .venv; Python 3.11+, bash and make are all it needs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# The first of these that is new enough is used; `make PYTHON=/path/to/python test` overrides.
PYTHONS := python3 python3.14 python3.13 python3.12 python3.11 python
PYTHON :=

VENV := .venv
# What a peer of the benchmarks pulls in (plugins, other versions) must never enter a test run.
BENCH_VENV := .venv-bench
SDK_VENV := .venv-integrations
CLUSTER_VENV := .venv-cluster
DOCS_VENV := .venv-docs
PACKAGE_VENV := .venv-package
BIN := $(VENV)/bin
INSTALL := -m pip install --quiet --disable-pip-version-check

# A file stays in one process: it has one daemon, and some begin all their cases at once. In their order (conftest.py)
# no long one is left for the end. They wait more than they work, so there are four processes more than there are cores.
# `make SIDE_BY_SIDE= test` runs them one after the other, as plain pytest does.
SIDE_BY_SIDE := --numprocesses $(shell echo $$(($$(nproc) + 4))) --dist loadfile --no-loadscope-reorder

# What one runs after each change: a minute on two cores. One bash without the large corpora, without the hosts that end,
# the crowds and the commands that refuse to end; policies and contracts; some of the daemon and the command line. Not
# what `make check` runs, nor the pages.
QUICK_NOT := $(addprefix --ignore=tests/engine/test_,$(addsuffix .py,async_crowd async_loop_ends background \
  background_orphans cases collection ctrl_c_at_end cut cut_moment differential flood forgery hidden_host hosts \
  hosts_threads hosts_watched hostile job_kill locales many_children orphans outlive runaways sandbox_life \
  sandbox_limits start_refused sweep unseen vfork))
STRUCTURE := $(addprefix tests/test_,$(addsuffix .py,imports rooms prose))
QUICK := tests/engine tests/policy \
  $(filter-out $(STRUCTURE) tests/test_docs.py tests/test_readme.py,$(wildcard tests/test_*.py)) \
  $(addprefix tests/contracts/test_tool_,$(addsuffix .py,bashtool langchain persistent phoenix spec strands)) \
  $(addprefix tests/daemon/test_,$(addsuffix .py,audit daemon_agents daemon_clients daemon_restart daemon_waiting \
  deliveries ledger wire)) \
  $(addprefix tests/cli/test_cli_,$(addsuffix .py,help plain run_limits))

# The tests start hundreds of interpreters, and each of them would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo quick test soak test-integrations test-cluster package docs generated check bench picture clean

help:  ## say what there is
	@echo "usage: make TARGET"
	@echo
	@sed -n 's/^\([a-z-]*\):.*##\( .*\)/  \1\t\2/p' Makefile | expand -t 20

demo: $(VENV)/.installed  ## build and test a small project in one session, step by step
	@$(BIN)/python -m benchmarks.demo

test: $(VENV)/.installed-dev  ## run the tests
	@$(BIN)/python -m pytest -q $(SIDE_BY_SIDE)

quick: $(VENV)/.installed-dev  ## run the tests that find most mistakes, in a minute
	@$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) $(QUICK_NOT) $(QUICK)

soak: $(VENV)/.installed-dev  ## run the tests with every combination, more generated cases and more rounds
	@SHELLSESSION_TEST_SOAK=1 $(BIN)/python -m pytest -q $(SIDE_BY_SIDE) -o timeout=1800

test-integrations: $(SDK_VENV)/.installed-integrations  ## run the tests of the SDKs, and the programs of docs/ and examples/
	@$(SDK_VENV)/bin/python -m pytest -q $(SIDE_BY_SIDE) tests/integrations

test-cluster: $(CLUSTER_VENV)/.installed-cluster  ## run the tests that need a Ray cluster, which they make
	@$(CLUSTER_VENV)/bin/python -m pytest -q tests/cluster

package: $(PACKAGE_VENV)/.installed-package  ## build dist/, and try the wheel as a user would
	@rm -rf dist
	@$(PACKAGE_VENV)/bin/python -m build --outdir dist . >$(PACKAGE_VENV)/build.log 2>&1 || { cat $(PACKAGE_VENV)/build.log; exit 1; }
	@$(PACKAGE_VENV)/bin/python -m twine check --strict dist/*
	@$(PACKAGE_VENV)/bin/python -m pytest -q --noconftest tests/package

generated: $(VENV)/.installed-dev  ## make the completion scripts and the man page anew
	@$(BIN)/python -m docs.generate

check: $(VENV)/.installed-dev  ## ruff, mypy --strict, who imports whom, who may do what, and how long sentences are
	@$(BIN)/python -m ruff check --output-format concise .
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/python -m mypy --strict
	@$(BIN)/python -m pytest -q $(STRUCTURE)

bench: $(BENCH_VENV)/.installed-bench  ## measure against the floor and the peers (BENCH=--quick for a taste)
	@$(BENCH_VENV)/bin/python -m benchmarks.bench $(BENCH)

picture: $(BENCH_VENV)/.installed-bench  ## draw the pictures of the README from real runs
	@$(BENCH_VENV)/bin/python -m benchmarks.picture

docs: $(DOCS_VENV)/.installed-docs  ## build the site of docs/ in build/site, with every link checked
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/python -m mkdocs build --strict --clean

clean:  ## remove what these targets made
	@rm -rf $(VENV) $(BENCH_VENV) $(SDK_VENV) $(CLUSTER_VENV) $(DOCS_VENV) $(PACKAGE_VENV)
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find shellsession tests benchmarks docs examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# A stamp is written last, so an interrupted installation is done again.
%/.made:
	@found=''; for python in $(or $(PYTHON),$(PYTHONS)); do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found="$$python"; break; fi; \
	done; \
	if [[ -z "$$found" ]]; then \
	  echo "make: Python 3.11 or newer is needed; tried: $(or $(PYTHON),$(PYTHONS))" >&2; \
	  echo "hint: install one, or name it: make PYTHON=/path/to/python3 TARGET" >&2; exit 1; \
	fi; \
	echo "making $* with $$("$$found" --version)"; \
	"$$found" -m venv --clear $* || { \
	  echo "hint: this Python cannot make environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

%/.installed: pyproject.toml %/.made
	@$*/bin/python $(INSTALL) --editable .
	@touch $@

%/.installed-dev: pyproject.toml %/.made
	@$*/bin/python $(INSTALL) --editable '.[dev]'
	@touch $@

%/.installed-bench: pyproject.toml %/.made
	@$*/bin/python $(INSTALL) --editable '.[bench]'
	@touch $@

%/.installed-integrations: pyproject.toml %/.made
	@$*/bin/python $(INSTALL) --editable '.[dev,integrations]'
	@touch $@

%/.installed-cluster: pyproject.toml %/.made
	@$*/bin/python $(INSTALL) --editable '.[dev,ray]' 'psutil>=6'
	@touch $@

%/.installed-docs: pyproject.toml %/.made
	@$*/bin/python $(INSTALL) --editable '.[docs]'
	@touch $@

# Not the package itself: its tests install the wheel in an environment of their own.
%/.installed-package: Makefile %/.made
	@$*/bin/python $(INSTALL) 'build>=1.2' 'pytest>=8.3' 'pytest-timeout>=2.3' 'twine>=6.1'
	@touch $@

.PRECIOUS: %/.made
