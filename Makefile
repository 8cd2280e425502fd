# make audit: set everything up and run the main job. make test: set everything up and pass the tests.
# make quick: one test or more of every room and one round of every method, in under a minute.
# make slow: the tests that make test leaves out because they take long.
# make bench-smoke: whether any of twelve rounds does more work than is committed; make check asks it, too.
# make explore: property tests on random examples, for EXPLORE_MINUTES (10) minutes.
# make faults: every planted fault that an audit has to find, beyond those that make test plants.
# make adapters: the tests of other packages' mechanisms and filters, each package in a throw-away environment.
# make docs: the site of the documentation, in site/.
# make federation: a SuperLink and three nodes on this machine, over TLS, train a private recommender.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

EXPLORE_MINUTES ?= 10

# Tests start hundreds of processes: each would compile all sources again where the caller forbids bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: audit quick test slow faults adapters explore check bench bench-smoke docs federation clean

audit: $(READY)
	$(BIN)/privfed audit

test: $(READY)
	$(BIN)/python -m pytest -n 2 -q --dist loadfile

quick: $(READY)
	$(BIN)/python -m pytest -n 2 -q @tests/quick.txt

slow: $(READY)
	$(BIN)/python -m pytest -n 2 -q --dist loadfile -m slow

faults: $(READY)
	$(BIN)/python -m pytest -n 2 -q -m "exhaustive or not exhaustive" tests/audit/faults tests/audit/test_mechanism.py

adapters: $(READY)
	$(BIN)/python tests/adapters.py

explore: $(READY)
	$(BIN)/python tests/explore.py $(EXPLORE_MINUTES)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m benchmarks.smoke

bench-smoke: $(READY)
	$(BIN)/python -m benchmarks.smoke

bench: $(READY)
	$(BIN)/python -m benchmarks.speed.rounds methods

docs: $(READY)
	$(BIN)/mkdocs build --strict

federation: $(READY)
	$(INSTALL) -e ".[flower]"
	$(BIN)/python examples/flower/federation.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch -e ".[dev,docs,flower]" || { \
	    echo "flwr cannot be installed here, so the tests that need it are skipped and make federation will not run"; \
	    $(INSTALL) torch -e ".[dev,docs]"; }
	@# The first call of a compiled loop compiles it and keeps it: here, and not while somebody waits for a run.
	@out=$$(mktemp -d); for method in hetefedrec fair fedmf private-gram; do \
	    { $(BIN)/privfed run $$method --data synthetic-small --rounds 1 --out $$out/$$method >$$out/$$method.log 2>&1 \
	        || cat $$out/$$method.log; } & \
	done; wait; rm -rf $$out
	touch $(READY)

clean:
	rm -rf $(VENV) audit runs site
