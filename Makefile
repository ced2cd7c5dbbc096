# Everything runs in .venv, which `setup` makes: `make demo` and `make test` work on a fresh machine.
PYTHON ?= python3
BIN := .venv/bin
# Test files side by side: most of a test is waiting for leases, brokers and Spark's triggers.
WORKERS ?= 4
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)

.PHONY: help setup jars demo check test test-interop test-oldest lint types docs bench bench-quick native-sanitize broker clean check-python check-java

help:
	@echo "make demo    broker, messages, consumer, tracker, a crash: a live table and a verdict"
	@echo "make check   lint, types, tests without broker and Spark: in a minute"
	@echo "make test    all tests      make lint    ruff       make types   mypy"
	@echo "make test-oldest  most tests, with the oldest brokers and libraries that are supported"
	@echo "make docs    the documentation, into docs/_build   make bench   ours against the peers"
	@echo "make bench-quick  the most telling benchmarks, once each: four minutes"
	@echo "make native-sanitize  the native reader under AddressSanitizer and UBSan"
	@echo "make broker  a Kafka broker until Ctrl-C"
	@echo "make setup   only .venv     make clean   remove what was made here"

check-python:
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or later with venv is needed: install it (on Debian also python3-venv)," \
	    "or name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }

check-java:
	@version=$$("$(JAVA)" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -n 1); \
	[ "$${version:-0}" -ge 17 ] || { \
	  echo "Java 17 or later is needed by Spark and Kafka (found: $${version:-none}): install one" \
	    "and set JAVA_HOME to it, or put its bin directory on PATH" >&2; exit 1; }

NATIVE := native/setup.py native/pyproject.toml $(wildcard native/src/*)

.venv/.ready: constraints.txt pyproject.toml $(NATIVE) | check-python
	@test -x $(BIN)/python || { echo "making .venv"; $(PYTHON) -m venv .venv; }
	@echo "installing into .venv (the first time this takes a minute or two)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  --no-build-isolation -e '.[dev]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall \
	  --no-build-isolation ./native 2>.venv/native.log || \
	  echo "going on without the native reader, which needs a C compiler and Python's headers (.venv/native.log)"
	@touch $@

setup: .venv/.ready

# Before pytest, which would hide the progress lines of the first download.
jars: check-java setup
	@$(BIN)/cursorq broker --prepare

demo: check-java setup
	@$(BIN)/cursorq demo

# What to run after each edit: no broker, no Spark.
PURE := tests/core tests/options tests/wire tests/test_layout.py tests/test_public_faces.py tests/test_errors.py \
  tests/test_promises.py spark_cursor_source
check: lint types
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(PURE)

test: jars
	@$(BIN)/python -m tests.compiled
	@$(BIN)/python -m tests.class_archive || echo "going on without archives of classes: each JVM starts slower"
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

# With programs that are built of a checkout of kafka-mq-go; see the top of tests/interop/programs.py.
test-interop: jars
	@if [ -n "$$KAFKA_MQ_GO" ]; then $(BIN)/python -m pytest tests/interop; else \
	  $(BIN)/python -c 'from tests.interop.programs import NOT_NAMED; print(NOT_NAMED)'; fi

# With the oldest brokers and dependencies that the package allows, in a virtual environment of their own.
OLDEST := .venv-oldest
OLDEST_TESTS ?= $(addprefix tests/,admin cli client consumer interop kafka metrics spark topics tracker ui test_cli.py test_cluster.py)
# These expect texts of later versions of typer and librdkafka.
LATER_TEXTS := \
  "cli/test_wrong_values.py::test_a_value_that_cannot_be_is_wrong_usage[arguments0" \
  "cli/test_wrong_values.py::test_a_value_that_cannot_be_is_named_on_one_line_before_a_broker_is_asked[arguments2" \
  "kafka/test_first_contact.py::test_plaintext_to_a_tls_listener_says_so"

$(OLDEST)/.ready: pyproject.toml tools/oldest.py | check-python
	@test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	@$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check packaging
	@$(OLDEST)/bin/python -m tools.oldest > $(OLDEST)/constraints.txt
	@$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(OLDEST)/constraints.txt \
	  -e '.[spark,cli,ui,metrics,otel,avro,notebooks]' pytest pytest-timeout pytest-xdist chispa hypothesis httpx playwright \
	  opentelemetry-sdk
	@touch $@

test-oldest: export CURSORQ_TEST_KAFKA := 3.5.2
test-oldest: check-java $(OLDEST)/.ready
	@$(OLDEST)/bin/python -m tests.kafka_version
	@$(OLDEST)/bin/python -m pytest -n $(WORKERS) --dist loadfile -W ignore::DeprecationWarning \
	  $(addprefix --deselect=tests/,$(LATER_TEXTS)) $(OLDEST_TESTS)

lint: setup
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: setup
	@$(BIN)/mypy

docs: setup
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build
	@echo "open docs/_build/index.html"

bench: jars
	@$(BIN)/python -m tests.benchmarks $(BENCH)

bench-quick: jars
	@$(BIN)/python -m tests.benchmarks --quick $(BENCH)

native-sanitize: jars
	@$(BIN)/python -m tools.sanitize

broker: check-java setup
	@$(BIN)/cursorq broker

clean:
	rm -rf .venv $(OLDEST) build dist *.egg-info native/build native/*.egg-info native/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf spark-warehouse metastore_db derby.log artifacts docs/_build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
