# Everything a developer types. `make` alone lists the targets.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# The first interpreter that runs and is new enough (a shim may exist and not run).
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$name" && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCKS := requirements/build.txt requirements/dev.txt
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --quiet

# What the image is installed with.
IMAGE_EXTRAS := $(foreach extra,hashes http http-auth jwt postgres redis kafka,--extra $(extra))

SEED ?=
ROUNDS ?= 200
# A seed that nobody has chosen.
FRESH_SEED := $(or $(SEED),$(shell od -An -N3 -tu4 /dev/urandom | tr -d ' '))
SEEDS ?= 20
FUZZ_SECONDS ?= 600
# A file of tests stays on one worker. Those that wait most, for kills and servers, begin, and the many
# short ones fill what is left.
ALL_TESTS := tests/crash tests/interop tests/browser tests/contract tests/model tests/sim tests/wire \
	tests/fuzz tests/unit
SPREAD := --dist loadfile --no-loadscope-reorder
TESTS ?= $(ALL_TESTS)
WORKERS ?= 3
PYTEST ?=
# Of the files in COMPILED_TESTS only a part, as part/of:seed: a run beside it takes the others.
SHARE ?=
# A folder for what failed, for a second run of it (.ci/run).
OUTCOME ?=
RECORD := $(if $(OUTCOME),-p tools.outcome --outcome $(OUTCOME))
DEMO ?=
BENCH ?=
HOSTILE ?=
export PYTHONUNBUFFERED := 1
# Bytecode is kept, whatever the environment says: hundreds of processes start from it.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 18

.PHONY: setup
setup: $(STAMP) ## make .venv with the locked dependencies (skipped while nothing changed)

$(STAMP): $(LOCKS) pyproject.toml
	@test -n "$(PYTHON)" || { echo "Perdure needs Python 3.11 or newer (set PYTHON=...)." >&2; exit 1; }
	@echo "setup: $(VENV) with $$($(PYTHON) --version)"
	@tools/make_venv.sh "$(PYTHON)" "$(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r requirements/build.txt -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

.PHONY: demo
demo: setup ## the three promises on real clients, through a kill -9 (DEMO="--help" for options)
	@$(BIN)/python -m examples.demo $(DEMO)

.PHONY: demo-cluster
demo-cluster: setup ## the same on three nodes and three Kafka brokers: kills a node, a Kafka broker, and everything (Java, Maven)
	@$(BIN)/python -m examples.demo --broker cluster $(DEMO)

# Who names tests gets all of them, other runs one in four of those that start processes.
SAMPLE ?= $(if $(filter file,$(origin TESTS)),$(FRESH_SEED))
.PHONY: test test-all
test: setup ## tests in some minutes; TESTS=tests/unit for all of a part, WORKERS=n at once, PYTEST="-k word"
test-all: setup ## all tests; SHARE=0/2:7 leaves those to a compiled run that have the other half
test-all: SAMPLE :=
# In a fresh clone the workers would each prepare all tests, at the same time.
test test-all:
	@test -d tests/__pycache__ || $(BIN)/python -m pytest --collect-only -qq $(TESTS) >/dev/null || true
	PERDURE_SAMPLE=$(SAMPLE) PERDURE_SHARE=$(SHARE) PERDURE_SHARED="$(COMPILED_TESTS)" \
		$(BIN)/python -m pytest -q -n $(WORKERS) $(SPREAD) $(PYTEST) $(RECORD) $(TESTS)

SPARK_TESTS ?= $(shell grep -rlE 'importorskip[^ ]"py(arrow|spark)' tests/unit tests/crash) tests/spark
SPARK_SAMPLE ?=
.PHONY: test-spark
test-spark: setup ## the tests of the data pipeline, with Spark (needs Java 17; 1 GB to install)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r requirements/build.txt -r requirements/spark.txt
	PERDURE_SAMPLE=$(SPARK_SAMPLE) $(BIN)/python -m pytest -q $(PYTEST) $(RECORD) $(SPARK_TESTS)

COMPILED := build/compiled
# What a client or a store can tell, and the modules themselves: a compiler takes types at their word.
# What speaks to servers is not compiled; the store of a server in memory ("remote") stands for them.
COMPILED_TESTS ?= tests/contract tests/model tests/sim tests/wire tests/unit/mqtt tests/unit/net \
	tests/unit/session tests/unit/storage/rocksdb tests/unit/topic \
	tests/unit/server/administration tests/unit/web tests/unit/cli tests/unit/observe

# All modules: those that stay interpreted are copied beside.
$(COMPILED)/.built: $(STAMP) compiled.txt setup.py $(shell find src -name '*.py')
	rm -rf $(COMPILED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--no-build-isolation --target $(COMPILED) .
	PYTHONPATH=$(COMPILED):. $(BIN)/python -m tools.compiled
	@touch $@

.PHONY: compiled
compiled: $(COMPILED)/.built ## a package with the modules that mypyc has compiled

.PHONY: test-compiled
test-compiled: compiled ## tests on the compiled package (COMPILED_TESTS="tests/unit" for others, SEED=n, SEEDS=n, SHARE)
	PYTHONPATH=$(COMPILED):. PERDURE_SEED=$(SEED) PERDURE_SIM_SEEDS=$(SEEDS) PERDURE_SHARE=$(SHARE) \
		PERDURE_SHARED="$(COMPILED_TESTS)" $(BIN)/python -m pytest -q \
		-o pythonpath=. -n $(WORKERS) $(SPREAD) -m "not (redis or postgres or kafka)" $(PYTEST) \
		$(RECORD) $(COMPILED_TESTS)

.PHONY: check
check: setup ## what CI asks of a change before the tests: format, lint, types, import law, tidy, generated pages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tools.tidy
	$(BIN)/python -m pytest -q -p no:cacheprovider -k current tests/unit/tools tests/unit/docs \
		tests/unit/config/test_reference.py tests/unit/observe/test_metric_table.py \
		tests/unit/observe/test_sys_topic_table.py

.PHONY: format
format: setup ## put the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: crash
crash: setup ## ROUNDS rounds of kill -9 with real processes (SEED=n repeats a run)
	PERDURE_CRASH_ROUNDS=$(ROUNDS) PERDURE_SEED=$(SEED) \
		$(BIN)/python -m pytest -q -s --timeout=0 -o faulthandler_timeout=0 tests/crash/test_kill_rounds.py

.PHONY: faults
faults: setup ## ROUNDS rounds of power cuts, a failing disk and damaged files (root: on file systems of their own)
	PERDURE_FAULT_ROUNDS=$(ROUNDS) PERDURE_SEED=$(SEED) \
		$(BIN)/python -m pytest -q -s --timeout=0 -o faulthandler_timeout=0 \
		tests/crash/test_power_loss.py tests/crash/test_failing_disk.py tests/crash/test_damage.py

.PHONY: fuzz
fuzz: setup ## ROUNDS clients that break every grammar, on a whole broker and its decoders (SEED=n repeats)
	PERDURE_FUZZ_ROUNDS=$(ROUNDS) PERDURE_SEED=$(SEED) \
		$(BIN)/python -m pytest -q -s --timeout=0 -o faulthandler_timeout=0 tests/fuzz

.PHONY: fuzz-decoder
fuzz-decoder: setup ## FUZZ_SECONDS of bytes that reach ever more of the decoder's code (build/corpus keeps them)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r requirements/fuzz.txt
	@mkdir -p build/corpus
	PYTHONPATH=src:. $(BIN)/python tests/fuzz/fuzz_decoder.py -max_total_time=$(FUZZ_SECONDS) \
		-timeout=20 -print_final_stats=1 -artifact_prefix=build/ build/corpus

.PHONY: fresh
fresh: setup ## simulations and wire cases with seeds that no run had (SEED=n repeats, SEEDS=n simulations)
	@echo "fresh seeds: repeat with make fresh SEED=$(FRESH_SEED) SEEDS=$(SEEDS)"
	PERDURE_SEED=$(FRESH_SEED) PERDURE_SIM_SEEDS=$(SEEDS) $(BIN)/python -m pytest -q -n $(WORKERS) \
		$(SPREAD) -k "virtual or every_promise" tests/sim tests/wire

.PHONY: sim
sim: setup ## repeat a simulated run: make sim SEED=n
	@test -n "$(SEED)" || { echo "usage: make sim SEED=n (a failing test prints its seed)" >&2; exit 64; }
	PERDURE_SEED=$(SEED) $(BIN)/python -m pytest -q -s tests/sim

.PHONY: bench
bench: ## take all records anew on a compiled build and write their page (BENCH="layouts memory": a part)
	@tools/make_venv.sh "$(PYTHON)" build/bench
	@build/bench/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r requirements/build.txt -r requirements/dev.txt
	@build/bench/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall \
		--no-build-isolation --no-deps .
	@build/bench/bin/python -m tools.compiled
	build/bench/bin/python -m benchmarks $(BENCH)

.PHONY: hostile
hostile: setup ## attack a broker and show what others notice (HOSTILE="--list", or names of attacks)
	$(BIN)/python -m benchmarks.hostile $(HOSTILE)

.PHONY: docs
docs: setup ## write the generated pages: docs/traps.md, docs/reference/, the Grafana dashboard
	$(BIN)/python -m tools.traps
	$(BIN)/python -m tools.conformance
	$(BIN)/python -m tools.references
	$(BIN)/python -m tools.rest_page
	$(BIN)/python -m tools.cli_pages
	$(BIN)/python -m tools.grafana

.PHONY: site
site: setup ## the documentation as a site in build/site/site; broken links fail
	@$(PYTHON) -m venv build/site-venv
	@build/site-venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r requirements/docs.txt
	$(BIN)/python -m tools.site build/site-venv/bin/zensical

.PHONY: man
man: setup ## manual pages into build/man and completion scripts into build/completion
	$(BIN)/python -m tools.cli_pages build/man
	@mkdir -p build/completion
	@for shell in bash zsh fish; do $(BIN)/perdure completion $$shell >build/completion/perdure.$$shell; done

.PHONY: deploy-tools
deploy-tools: setup ## what checks deploy/: helm, promtool (go), mmdebstrap (Debian), schemas
	@tools/deploy_tools.sh "$(VENV)"

.PHONY: image-test
image-test: setup ## the Dockerfile's steps in a clean root, and a broker in it (root, mmdebstrap)
	$(BIN)/python -m pytest -q tests/image

.PHONY: changelog
changelog: setup ## show what the news fragments will say
	$(BIN)/towncrier build --draft

.PHONY: peers
peers: ## install the third-party clients that some tests want (Debian, as root)
	@tools/install_peers.sh

.PHONY: bench-peers
bench-peers: ## build the brokers of other languages that bench compares with (cargo, go)
	@tools/build_peers.sh

.PHONY: wheels
wheels: ## compiled wheels for this system and architecture into dist/ (on Linux with Docker or Podman)
	@$(PYTHON) -m venv build/wheels
	@build/wheels/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r requirements/wheels.txt
	build/wheels/bin/cibuildwheel --output-dir dist

.PHONY: lock
lock: ## write requirements/*.txt again from pyproject.toml (needs uv)
	$(COMPILE) requirements/build.in -o requirements/build.txt
	$(COMPILE) requirements/wheels.in -o requirements/wheels.txt
	$(COMPILE) requirements/fuzz.in -o requirements/fuzz.txt
	$(COMPILE) pyproject.toml -o requirements/core.txt
	$(COMPILE) pyproject.toml --extra dev -c requirements/core.txt -o requirements/dev.txt
	$(COMPILE) requirements/docs.in -o requirements/docs.txt
	$(COMPILE) requirements/deploy.in -c requirements/dev.txt -o requirements/deploy.txt
	$(COMPILE) pyproject.toml $(IMAGE_EXTRAS) -c requirements/dev.txt -o requirements/image.txt
	$(COMPILE) pyproject.toml --extra dev --extra spark --extra connect --extra lake-tests \
		-c requirements/dev.txt -o requirements/spark.txt
	$(COMPILE) pyproject.toml $(IMAGE_EXTRAS) --extra spark --extra connect --extra lake \
		--extra payloads --extra sql -c requirements/image.txt -c requirements/spark.txt -o requirements/pipeline.txt

.PHONY: clean
clean: ## remove what make and the tools produced
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache \
		.hypothesis .import_linter_cache
	find src tests tools examples -name __pycache__ -type d -prune -exec rm -rf {} +
