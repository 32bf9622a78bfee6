# Every recipe that people and CI use. `make help` lists them.
#
# There is one profile, release, and one set of features and flags, in every recipe: RocksDB and
# librdkafka are compiled from source, which takes about a quarter of an hour on two cores, once for
# each profile, feature set or RUSTFLAGS that they are asked for with. Do not add a second one. (The feature
# `sabotage` concerns ratchet's own code alone.)
#
# Variables: CARGO_TARGET_DIR is honoured. ARGS goes to the program or to the test binaries' filter.
# SETUP_INSTALL=no makes the checks name what is missing instead of installing it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CARGO ?= cargo
ARGS ?=
SETUP_INSTALL ?= yes
IMAGE ?= ratchet:local
# Not called INSTALL, which the build of a dependency takes for the program that installs.
export SETUP_INSTALL IMAGE
# Tests mostly wait for brokers and timeouts: more of them at once than there are cores.
RUST_TEST_THREADS ?= 6
export RUST_TEST_THREADS
# For how long `make test` runs seeds of the simulation that were not run before.
SIM_SECONDS ?= 180

# The versions of Apache Kafka that `make kafka-matrix` runs the tests on.
KAFKA_VERSIONS ?= 3.6.2 3.9.1 4.1.0 4.3.0

# How long `make soak` and `make sim-hunt` take, and how much load the former makes; empty: their own defaults.
HOURS ?=
RATE ?=
# The folder that `make fixtures` writes.
FORMAT ?=

BUILD := --release --locked
BENCH = $(CARGO) bench --profile release --locked
COMPARE = $(CARGO) build $(BUILD) --bin ratchet && $(CARGO) run $(BUILD) --quiet --package compare --

##@ Start here

.PHONY: help
help: ## List every recipe
	@awk -f scripts/help.awk $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Check for everything that building, testing and linting need, databases included; install it where that may be done
	@scripts/setup.sh build test cdc lint

.PHONY: demo
demo: build ## Show the whole story on the embedded cluster, without Kafka
	@$(CARGO) run $(BUILD) --quiet --bin ratchet -- demo $(ARGS)

##@ Build

.PHONY: build
build: setup-build ## Build the program
	$(CARGO) build $(BUILD) --bin ratchet

.PHONY: package
package: build ## Pack program, completions, configuration and docs into dist/ratchet-VERSION-TARGET.tar.gz
	@scripts/package.sh

.PHONY: docker
docker: ## Build the container image (IMAGE=ratchet:local)
	@scripts/docker.sh

.PHONY: compose-check
compose-check: ## Validate docker-compose.yml, without a container engine
	@scripts/compose-check.sh

.PHONY: clean
clean: ## Remove ratchet's own build results, dist/ and the demo's folder; compiled dependencies stay
	$(CARGO) clean --release --package ratchet
	rm -rf dist .ratchet

##@ Check

.PHONY: test
test: setup-test ## Run the whole suite, real Kafka and new seeds of the simulation included (ARGS='--test NAME' for a part; RATCHET_TEST_BROKERS for a Kafka of yours; SIM_SECONDS of new seeds)
	$(CARGO) test $(BUILD) $(ARGS)
ifeq ($(strip $(ARGS)),)
	SIM_SECONDS=$(SIM_SECONDS) $(CARGO) test $(BUILD) --test sim -- --nocapture --skip _seeds
endif

.PHONY: kafka-matrix
kafka-matrix: setup-test ## Run the tests on real Kafka with each of KAFKA_VERSIONS, one after the other (KAFKA_VERSIONS='3.9.1 4.3.0' for some, ARGS='takeovers::' for a part)
	@failed=(); for version in $(KAFKA_VERSIONS); do \
		echo "kafka-matrix: Apache Kafka $$version"; \
		env -u RATCHET_TEST_BROKERS RATCHET_TEST_KAFKA_VERSION=$$version \
			$(CARGO) test $(BUILD) --no-fail-fast --test cluster_kafka --test kafka -- $(ARGS) || failed+=($$version); \
	done; \
	[[ $${#failed[@]} == 0 ]] || { echo "kafka-matrix: failed on Apache Kafka $${failed[*]}" >&2; exit 1; }

.PHONY: cdc
cdc: setup-cdc ## Run the tests of real change data capture: Debezium on Kafka Connect, PostgreSQL, MariaDB
	$(CARGO) test $(BUILD) --test cdc -- --nocapture $(ARGS)

.PHONY: sim
sim: setup-build ## Run the simulation: the engine on a simulated Kafka with faults, new seeds last (SIM_SEEDS=n seeds of each profile, SIM_FIRST=n from this one on; SIM_PROFILE=wild SIM_SEED=n ARGS=one_seed tells one in full: docs/simulation.md)
	$(CARGO) test $(BUILD) --test sim -- --nocapture $(ARGS)
ifeq ($(strip $(ARGS)$(SIM_FIRST)$(SIM_SEEDS)),)
	SIM_SECONDS=$(SIM_SECONDS) $(CARGO) test $(BUILD) --test sim -- --nocapture --exact new_seeds_of_all_profiles
endif

.PHONY: sim-hunt
sim-hunt: setup-build ## Run new seeds of all profiles for HOURS (1), and write docs/simulation/situations.md
	SIM_PAGE=yes SIM_SECONDS=$$(awk -v hours=$(or $(HOURS),1) 'BEGIN { printf "%d", hours * 3600 }') $(CARGO) test $(BUILD) --test sim -- --nocapture --exact new_seeds_of_all_profiles

.PHONY: faults
faults: setup-test ## Make every fault on real Kafka with real processes, one after the other, and write docs/faults.md (ARGS='broker kill' for those with such names, ARGS=--list for the names)
	$(CARGO) test $(BUILD) --test faults -- --all $(ARGS)

.PHONY: sim-mistakes
sim-mistakes: setup-build ## Judge the simulation's judge by sabotage and lies, and write docs/simulation/mistakes.md (SIM_MISTAKE=NAME for one)
	$(CARGO) test $(BUILD) --no-default-features --features sabotage --test sim -- --nocapture mistake $(ARGS)

.PHONY: fuzz
fuzz: setup-build ## Fuzz what reads others' bytes and whole lanes, each target for FUZZ_SECONDS (30)
	@scripts/fuzz.sh

.PHONY: bounds
bounds: setup-test ## Measure the process's memory under floods of keys, huge records, a slow broker and a thousand partitions
	RATCHET_TEST_BOUNDS=full $(CARGO) test $(BUILD) --test kafka -- --nocapture --test-threads 1 memory:: $(ARGS)

.PHONY: bench
bench: setup-bench ## Compare with pass-throughs, Kafka Streams and Quix Streams (more than an hour), and write docs/benchmarks.md (ARGS='--parts ids' for a part)
	$(COMPARE) run $(ARGS)

.PHONY: bench-quick
bench-quick: setup-bench ## The same for a few minutes, printed only
	$(COMPARE) run --quick --parts ids --rounds 2 $(ARGS)

.PHONY: bench-contender
bench-contender: setup-bench ## Run one contender alone (ARGS='ratchet --part versions --records 2000000')
	$(COMPARE) contender $(ARGS)

.PHONY: bench-report
bench-report: setup-build ## Write docs/benchmarks.md again, from the last results
	$(COMPARE) report

.PHONY: bench-guard
bench-guard: setup-test ## Fail if ratchet has clearly lost speed against a pass-through, in a minute
	$(COMPARE) guard

.PHONY: bench-stages
bench-stages: setup-build ## Time the stages of a record's way, one by one
	$(BENCH) --bench dedup --bench state --bench stages --bench large $(ARGS)

.PHONY: soak
soak: setup-test ## Run on three real brokers for HOURS (1, fractions too) with restarts, kills and changes of size, have it judged, and print the figures (RATE=500 records a second)
	HOURS=$(HOURS) RATE=$(RATE) $(CARGO) test $(BUILD) --test soak

.PHONY: fixtures
fixtures: setup-build ## Write what today's program persists into tests/fixtures/FORMAT, once for each set of formats (FORMAT=format-2)
	FORMAT=$(FORMAT) $(CARGO) test $(BUILD) --test formats -- --ignored --exact write::write_fixtures

.PHONY: lint
lint: setup-build subjects fmt-check clippy docs-check deny shell-check compose-check ## Run all that can be said of the sources without running them

.PHONY: schema
schema: setup-build ## Write config/topology.schema.json and the tables of keys in docs
	RATCHET_GOLDEN=write $(CARGO) test $(BUILD) --lib -- --exact topology::keys::tests::reference_has_the_tables_of_the_keys \
		topology::schema::tests::committed_schema_is_the_printed_one \
		config::tests::the_reference_has_the_table_of_the_settings

.PHONY: fmt
fmt: ## Format the sources
	$(CARGO) fmt --all
	rustfmt --edition 2024 fuzz/fuzz_targets/*.rs fuzz/src/world.rs

.PHONY: fmt-check
fmt-check: ## Check the format of the sources
	$(CARGO) fmt --all -- --check
	rustfmt --edition 2024 --check fuzz/fuzz_targets/*.rs fuzz/src/world.rs

# Tests with recipes of their own, which `cargo test` and `--all-targets` pass over.
APART := cdc sim soak

.PHONY: clippy
clippy: ## Run clippy on everything; a warning is an error
	$(CARGO) clippy $(BUILD) --workspace --all-targets -- -D warnings
	$(CARGO) clippy $(BUILD) $(addprefix --test ,$(APART)) -- -D warnings
	$(CARGO) clippy $(BUILD) --no-default-features --features sabotage --test sim -- -D warnings

.PHONY: docs
docs: ## Build the documentation of the code
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(BUILD) --no-deps $(ARGS)

.PHONY: docs-check
docs-check: docs ## Check the documentation of the code: the same as `docs`, a warning is an error

.PHONY: deny
deny: ## Check licences, sources and versions of the dependencies, and known advisories where their database can be had
	@scripts/deny.sh

.PHONY: subjects
subjects: ## Check the subjects of the commits
	@scripts/subjects.sh

.PHONY: shell-check
shell-check: ## Check the shell scripts
	@scripts/shell-check.sh

# The checks alone, as other recipes call them; `make setup` does both.
.PHONY: setup-build setup-test setup-cdc setup-bench
setup-build:
	@scripts/setup.sh build
setup-test:
	@scripts/setup.sh build test
setup-cdc:
	@scripts/setup.sh build cdc
setup-bench:
	@scripts/setup.sh build test bench
