# `make demo` and `make test` need nothing but Python 3.11+, a JDK 17+ and a package registry.

VENV := .venv
BIN := $(VENV)/bin
RUNS ?= 20000
FACTOR ?= 20
KILLS ?= 200
ORACLE_RUNS ?= 90
IN_ONE_THREAD := $(addprefix tests/,protocol data state storage simulation conformance contracts graph modes settings inspect)
CONNECTORS := tests/connectors
COMMANDS := $(addprefix tests/,cli docs)
PAGES := $(addprefix tests/,ui pictures laboratory advice)
KAFKA := tests/kafka
DATABASES := $(addprefix tests/,postgres database tables)
HOSTS := $(addprefix tests/,s3 clouds cluster)
NAMED := $(IN_ONE_THREAD) $(CONNECTORS) $(COMMANDS) $(PAGES) $(KAFKA) $(DATABASES) $(HOSTS) tests/runtime

# Else each of the many processes of the tests compiles all of minirt: that takes longer than most of their jobs.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test lint soak bench bench-peers site release-check clean java python
.NOTPARALLEL:

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' Makefile | expand -t 18

demo: java $(VENV)/.demo ## kill workers of a job over real flights in three checkpoint modes; Spark verifies
	@$(BIN)/minirt demo $(ARGS)

test: java $(VENV)/.dev ## lint and run all tests, some parts of them side by side
	@# Five parts at a time keep two cores busy: all but one wait more than they work. What runs in one thread takes the time
	@# that is left. Long ones come first: one that begins late would run on alone. The first to end makes what the JVMs of
	@# those behind use. Workers of xdist would ignore Ctrl-C, which some tests send.
	printf '%s\n' '4 one-thread $(IN_ONE_THREAD)' \
		'0 spark-classes run make $(VENV)/spark-classes.jsa' '0 kafka $(KAFKA)' '0 rest $(addprefix --ignore=,$(NAMED))' \
		'0 hosts $(HOSTS)' '0 databases $(DATABASES)' '0 connectors $(CONNECTORS)' '0 commands $(COMMANDS)' \
		'0 runtime-on tests/runtime --ignore-glob=tests/runtime/test_[a-l]*.py' '0 runtime tests/runtime/test_[a-l]*.py' \
		'0 pages $(PAGES)' '0 lint run make lint' \
		| PYTEST='$(BIN)/python -m pytest -q' .ci/test-parts 5

lint: $(VENV)/.dev ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

soak: $(VENV)/.dev ## simulate RUNS crashing jobs and FACTOR times the campaigns of the tests, then kill real processes KILLS times, then ORACLE_RUNS of the oracle
	$(BIN)/python -m tests.simulation.soak --runs $(RUNS)
	CAMPAIGN_FACTOR=$(FACTOR) $(BIN)/python -m pytest -q -n auto --dist worksteal --timeout 7200 tests/simulation tests/conformance \
		tests/operators tests/partitionings tests/connectors/test_random_windows.py tests/connectors/test_random_joins.py
	CAMPAIGN_FACTOR=$(FACTOR) $(BIN)/python -m pytest -q -m soak --timeout 3600
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -q -m hypothesis -n auto --dist worksteal --timeout 7200
	$(BIN)/python -m tests.runtime.soak --kills $(KILLS)
	$(BIN)/python -m tests.oracle.soak --runs $(ORACLE_RUNS)
	$(BIN)/python -m tests.kills --kills $(KILLS)

bench: $(VENV)/.dev ## measure throughput, checkpoints and recovery
	$(BIN)/python -m benchmarks.throughput
	$(BIN)/python -m benchmarks.checkpoints
	$(BIN)/python -m benchmarks.recovery

bench-peers: java ## install what `python -m benchmarks.throughput --peers ...` compares with, into .bench
	@.ci/install-peers .bench

site: $(VENV)/.site ## build the documentation as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

release-check: python ## build sdist and wheel, and do what the README says on every Python of this machine
	@$$(.ci/find-python) .ci/release_check.py $(ARGS)

clean: ## remove everything that is not in the repository, the virtual environment included
	git clean -qfdX

# $(error) ends make with the one line that says what is missing.
java:
	$(if $(missing),$(error $(missing)))
java: missing = $(shell .ci/require-java 2>&1)

# "dev" has all that "demo" needs, so it leaves both marks.
$(VENV)/.dev: pyproject.toml | python
	@.ci/install $(VENV) dev
	@touch $(VENV)/.dev $(VENV)/.demo

# Without it tests are slower, and no more: that it cannot be made is no failure.
$(VENV)/spark-classes.jsa: $(VENV)/.dev
	-@$(BIN)/python -m tests.spark_classes

# Without the rest of "dev" the documentation is built with a tenth of its packages.
$(VENV)/.site: pyproject.toml | python
	@test -e $(VENV)/.dev || .ci/install $(VENV) site
	@touch $@

$(VENV)/.demo: pyproject.toml | python
	@.ci/install $(VENV) demo
	@touch $@

python:
	$(if $(missing),$(error $(missing)))
python: missing = $(shell .ci/find-python 2>&1 >/dev/null)
