# Two commands matter: `make run` and `make test`. `make help` lists the rest.
#
# Everything lives in .venv; nothing is installed into the system except by `make system-deps`.
# pip is called with the user's own configuration (its environment and its configuration files) and no options of ours.

SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# Without compiled files beside them, each process of each broker would compile all modules again at its start.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP ?= $(BIN)/python -m pip --disable-pip-version-check

# A stamp's name carries the checksum of what was installed, so a changed pin installs again and nothing else does.
sum = $(shell cat $(1) | sha256sum | cut -c1-16)
CORE_STAMP := $(VENV)/.core-$(call sum,requirements/core.txt)
DEV_STAMP := $(VENV)/.dev-$(call sum,requirements/core.txt requirements/dev.txt)
SPARK_STAMP := $(VENV)/.spark-$(call sum,requirements/core.txt requirements/spark.txt)
PROJECT_STAMP := $(VENV)/.project-$(call sum,pyproject.toml)

FLOORS := $(wildcard config mqtt access shards sessions gateway actors chaos cli pipeline holdfast_spark bridge benchmarks)
CHECKED := $(FLOORS) tests scripts $(wildcard deploy/bridges)
DATA_DIR ?= ./data
PORT ?= 1883

.PHONY: help
help: ## this list
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s $$'\t'

# ------------------------------------------------------------------------------------------ environment

.PHONY: env env-runtime env-spark
env: $(DEV_STAMP) $(PROJECT_STAMP) ## .venv with everything that running and testing needs, and .venv/bin/holdfast
env-runtime: $(CORE_STAMP) $(PROJECT_STAMP) ## .venv with what running needs
env-spark: $(SPARK_STAMP) $(PROJECT_STAMP) ## .venv with what the pipeline needs on top: Spark, and a Java for it

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no python3.11 and no python3 found: apt-get install python3.11 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11; say which to use: make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "$(PYTHON) has no venv: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(CORE_STAMP): | $(BIN)/python
	$(PIP) install --quiet -r requirements/core.txt
	@rm -f $(VENV)/.core-* && touch $@

$(DEV_STAMP): | $(BIN)/python $(CORE_STAMP)
	$(PIP) install --quiet -r requirements/core.txt -r requirements/dev.txt
	@rm -f $(VENV)/.dev-* && touch $@

$(SPARK_STAMP): | $(BIN)/python $(CORE_STAMP)
	$(PIP) install --quiet -r requirements/core.txt -r requirements/spark.txt
	@rm -f $(VENV)/.spark-* && touch $@

$(PROJECT_STAMP): | $(BIN)/python $(CORE_STAMP)
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@rm -f $(VENV)/.project-* && touch $@

.PHONY: system-deps
system-deps: ## Debian packages that tests use (deploy/debian-packages.txt); says what could not be installed and goes on
	@bash scripts/system_deps.sh

.PHONY: lock
lock: env ## pins of requirements/ from the ranges of pyproject.toml (UPGRADE=1: newest of each)
	$(BIN)/python scripts/lock.py $(if $(UPGRADE),--upgrade)

# ------------------------------------------------------------------------------------------ running

.PHONY: run
run: env-runtime ## a broker on 127.0.0.1:1883 (PORT=), its data in ./data (DATA_DIR=); Ctrl-C ends it
	$(BIN)/holdfast up --data-dir $(DATA_DIR) --port $(PORT)

# ------------------------------------------------------------------------------------------ checking

.PHONY: format lint test-fast check test sim
format: env ## lay the code out and mend what ruff can mend
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

lint: env ## everything that reads the code without running it; all of it, also after a failure
	@failed=; \
	for step in "$(BIN)/ruff format --check ." "$(BIN)/ruff check ." "$(BIN)/mypy $(CHECKED)" "$(BIN)/lint-imports"; do \
		echo "$$step"; $$step || failed="$$failed, $${step#$(BIN)/}"; \
	done; \
	if [ -n "$$failed" ]; then echo "lint failed: $${failed#, }"; exit 1; fi

test-fast: env ## the tests that take a moment
	$(BIN)/python -m pytest -m "not slow and not broker" --ignore=tests/broker --ignore=tests/cluster

check: lint test-fast ## before every commit

test: env env-spark ## all that CI runs: the fast suites, and real brokers and Spark beside them
	@$(BIN)/python -m tests $(ARGS)

sim: env ## the simulator: SEED=n for one history (WORLD=Replaying: of that kind), SEEDS=n for that many
	@$(if $(SEED),SIM_SEED=$(SEED)) $(if $(WORLD),SIM_WORLD=$(WORLD)) $(if $(SEEDS),SIM_SEEDS=$(SEEDS)) $(BIN)/python -m tests.sim $(ARGS)

.PHONY: fuzz
fuzz: env ## a million hostile connections to a real broker; goes on where it was ended; ARGS=--help for more
	@$(BIN)/python -m tests.broker.fuzzing $(ARGS)

# ------------------------------------------------------------------------------------------ compiled

COMPILED := build/compiled
.PHONY: wheel-compiled test-compiled
wheel-compiled: env ## the last commit as a wheel in dist, with what is pure compiled by mypyc; needs a C compiler and some minutes
	rm -rf $(COMPILED)
	mkdir -p $(COMPILED)
	git archive HEAD | tar -x -C $(COMPILED)
	cd $(COMPILED) && HATCH_BUILD_HOOK_ENABLE_MYPYC=true $(CURDIR)/$(BIN)/python -m pip --disable-pip-version-check wheel \
		--no-deps --wheel-dir $(CURDIR)/dist .
	cd $(COMPILED) && PYTHONPATH=$(CURDIR)/$(COMPILED) $(CURDIR)/$(BIN)/python -m pytest -q tests/shards/test_engine_kept.py tests/shards/test_runs.py

test-compiled: wheel-compiled ## what is in that wheel: the tests of the pure floors, the simulator, and what stands upon them
	cd $(COMPILED) && PYTHONPATH=$(CURDIR)/$(COMPILED) $(CURDIR)/$(BIN)/python -m pytest \
		tests/mqtt tests/shards tests/sessions tests/gateway tests/contracts tests/sim tests/lives tests/fuzz tests/replication \
		tests/actors tests/bridge tests/chaos tests/cli tests/listening tests/broker $(ARGS)

# ------------------------------------------------------------------------------------------ showing

# Nothing that is promised is silent: what is not there yet prints FAIL.
.PHONY: bench conformance
conformance: env ## suites of others against Holdfast, from HOLDFAST_CONFORMANCE or beside this checkout; ARGS=--help for more
	@HOLDFAST_CONFORMANCE="$${HOLDFAST_CONFORMANCE:-$(wildcard $(CURDIR)/../shared/conformance)}" $(BIN)/python -m benchmarks.conformance $(ARGS)

bench: env ## measure this broker, and mosquitto when it is installed
	@if [ -f benchmarks/__main__.py ]; then $(BIN)/python -m benchmarks $(ARGS); \
	else echo "FAIL bench: not there yet"; exit 1; fi

.PHONY: bench-compare
# `make bench-compare A B`: words behind it are no goals.
ifeq ($(firstword $(MAKECMDGOALS)),bench-compare)
COMPARED := $(wordlist 2,3,$(MAKECMDGOALS))
.PHONY: $(COMPARED)
$(COMPARED): ; @:
endif
bench-compare: env ## bench-compare A B: two results files or commits; exit 1 when a message costs 15 % more CPU in B
	@$(BIN)/python -m benchmarks.compare $(or $(COMPARED),$(A) $(B))

.PHONY: bench-storage
bench-storage: env ## what each storage layout costs, into docs/layouts.md; ARGS=--quick takes a minute and prints
	@$(BIN)/python -m benchmarks.storage $(ARGS)

show-%: env ## show-01 .. show-10: one gate, PASS or FAIL and the figure
	@if [ -f tests/gates/show.py ] && compgen -G "tests/gates/gate_$*[_.]*" >/dev/null; then $(BIN)/python -m tests.gates.show $* $(ARGS); \
	else echo "FAIL gate $*: not there yet"; exit 1; fi

.PHONY: soak-cluster
soak-cluster: env ## all faults of three sites, again and again; goes on where it was ended; ARGS=--help for more
	@$(BIN)/python -m tests.gates.soak_cluster $(ARGS)

soak-%: env ## soak-10m, soak-2h: load, kills and audits for so long
	@if [ -f tests/gates/soak.py ]; then $(BIN)/python -m tests.gates.soak $* $(ARGS); \
	else echo "FAIL soak $*: not there yet"; exit 1; fi

.PHONY: docs clean
docs: env ## what is generated of docs/: configuration.md from config/schema.py, the tables of metrics.md from actors/metrics
	$(BIN)/python -m config.docs
	$(BIN)/python -m actors.metrics.docs

clean: ## all that tools made; never the data directory
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './data/*' -prune -exec rm -rf {} +
