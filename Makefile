# The recipes that people and CI use. `make help` lists them.
#
# All recipes use one profile, release, and one set of features and flags for what is compiled from
# source: RocksDB and librdkafka take about a quarter of an hour on two cores, once for each profile,
# feature set or RUSTFLAGS. Do not add a second one. (The feature `sabotage`, and how far tests are
# optimized, only concern ratchet's own code.)
#
# Variables: CARGO_TARGET_DIR is honoured. ARGS goes to the program, or to the test binaries as a filter.
# SETUP_INSTALL=no makes the checks name what is missing instead of installing it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CARGO ?= cargo
ARGS ?=
SETUP_INSTALL ?= yes
IMAGE ?= ratchet:local
# Not called INSTALL: the build of a dependency takes that as the program that installs.
export SETUP_INSTALL IMAGE
# Tests mostly wait for brokers and timeouts, so more of them run at once than there are cores.
RUST_TEST_THREADS ?= 6
export RUST_TEST_THREADS
# How long `make sim` runs new seeds of the simulation.
SIM_SECONDS ?= 180
# How many seeds of the wire `make sim` runs.
SIM_WIRE_SEEDS ?= 2000

# How many bits `make bit-flips` flips in each kind of folder, and how many histories `make histories` has.
BIT_FLIPS ?= 1000
HISTORIES ?= 10000

# How long `make calls` causes random trouble.
CALLS_SECONDS ?= 120

# The versions of Apache Kafka that `make kafka-matrix` runs the tests on.
KAFKA_VERSIONS ?= 3.6.2 3.9.1 4.1.0 4.3.0 4.4.0

# How long `make soak` and `make sim-hunt` run, and the load of `make soak`; empty for their own defaults.
HOURS ?=
RATE ?=
# Which brokers `make brokers` runs, by a part of their names; empty for all.
PROFILE ?=
# The folder that `make fixtures` writes.
FORMAT ?=

BUILD := --release --locked
# The packages of this workspace, but for the benchmarks.
OWN := ratchet ratchet-cluster ratchet-core ratchet-http ratchet-testkit
PACKAGES := $(addprefix --package ,$(OWN))
# How tests are built: ratchet's own code with fewer optimizations (scripts/rustc-quick.sh has one more) and
# incrementally. Dependencies stay as they are. What is released, measured or run for hours is built as it is released.
TESTED := $(BUILD) $(foreach package,$(OWN),--config profile.release.package.$(package).opt-level=1)
# How long simulations are built: each of ratchet's crates as one unit, which compiles longer and runs twice as fast.
HUNTED := $(BUILD) $(foreach package,$(OWN),--config profile.release.package.$(package).codegen-units=1)
ifneq ($(QUICK),yes)
unit check test brokers models sim bit-flips histories fixtures schema: export CARGO_INCREMENTAL ?= 1
unit check test brokers models sim bit-flips histories fixtures schema: export RUSTC_WORKSPACE_WRAPPER ?= $(CURDIR)/scripts/rustc-quick.sh
else
# As CI has it: the demos show the program that was tested.
BUILD := $(TESTED)
# An example needs the dev-dependencies. Built beside one, the program shares its dependencies with the tests.
BESIDE := --example payment
export CARGO_INCREMENTAL ?= 1
export RUSTC_WORKSPACE_WRAPPER ?= $(CURDIR)/scripts/rustc-quick.sh
endif
BENCH = $(CARGO) bench --profile release --locked
STEP := scripts/step.sh
# Both at once: each alone has other features of what RocksDB is built with. Together they have those of the tests.
COMPARE = $(CARGO) build $(BUILD) --package ratchet --package compare --bin ratchet --bin compare && \
	$${CARGO_TARGET_DIR:-target}/release/compare

##@ Start here

.PHONY: help
help: ## List all recipes
	@awk -f scripts/help.awk $(MAKEFILE_LIST)

# Covers building, testing, change data capture and linting. SETUP_INSTALL=no only checks.
.PHONY: setup
setup: ## Check for what building and testing need, and install it if possible
	@scripts/setup.sh build test cdc lint

.PHONY: demo
demo: build ## Show a run, a crash and a recovery, without Kafka
	@$${CARGO_TARGET_DIR:-target}/release/ratchet demo $(ARGS)

# Its PostgreSQL lives in a temporary folder, for as long as the demo.
.PHONY: demo-effects
demo-effects: build setup-postgres ## Show crashes, and effects that happen once: in PostgreSQL, by calls, by a handler
	@$(CARGO) build $(BUILD) --example demo_effects --example payment
	@scripts/with-postgres.sh $${CARGO_TARGET_DIR:-target}/release/examples/demo_effects

##@ Build

.PHONY: build
build: setup-build ## Build the program
	$(CARGO) build $(BUILD) --bin ratchet $(BESIDE)

.PHONY: package
package: build ## Pack a release into dist/
	@scripts/package.sh

.PHONY: docker
docker: ## Build the container image
	@scripts/docker.sh

# Needs no container engine.
.PHONY: compose-check
compose-check: ## Validate docker-compose.yml
	@scripts/compose-check.sh

# Needs neither a cluster nor systemd running. Builds helm and kubeconform the first time, which takes some minutes.
.PHONY: deploy-check
deploy-check: setup-deploy ## Check the systemd units and the Helm chart
	@scripts/deploy-check.sh

# Also removes dist/ and the demo's folder; compiled dependencies stay.
.PHONY: clean
clean: ## Remove ratchet's own build results
	$(CARGO) clean --release $(PACKAGES)
	rm -rf dist .ratchet

##@ Check

# Every test target is in one of these tiers; `make lint` fails if one is left out (scripts/tiers.sh).
# Need nothing but this machine; the second builds another program against the crate.
LOCAL := semantics cli formats
OUTSIDE := outside
# Start servers of their own.
SERVERS := services faults
# Have recipes of their own, which `make test-all` runs; `cargo test` and `--all-targets` leave them out. `make test` has
# the fixed seeds of the simulation, too.
APART := brokers cdc models sim soak

# What `make check` leaves out: simulated seeds, and the formats in a server.
NOT_CHECKED := wire::simulated table_of_requests hashes_of_requests todays_format_of_requests

# The loop for every edit: the library's tests of one package, without optimizations, and nothing else is built.
# PACKAGE is one of OWN, ARGS a filter.
PACKAGE ?= ratchet
.PHONY: unit
unit: setup-build ## Run unit tests of one package: make unit PACKAGE=ratchet-core ARGS=dedup::
	$(CARGO) test $(subst opt-level=1,opt-level=0,$(TESTED)) --package $(PACKAGE) --lib -- $(ARGS)

# ARGS is a filter.
.PHONY: check
check: setup-build ## Run the tests that need no server, 2 minutes after the build
	$(CARGO) test $(TESTED) $(PACKAGES) --lib --bins $(addprefix --test ,$(LOCAL)) -- \
		$(addprefix --skip ,$(NOT_CHECKED)) $(ARGS)

# The examples are the programs that tests/handlers runs. RATCHET_TEST_BROKERS=host:port uses a Kafka of yours.
.PHONY: test
test: setup-test ## Run all that every change should pass, with real servers (ARGS='--test NAME' for a part)
ifneq ($(strip $(ARGS)),)
	$(CARGO) build $(TESTED) --examples
	$(CARGO) test $(TESTED) $(ARGS)
else
	@$(STEP) "build the tests" $(CARGO) test $(TESTED) --workspace --no-run --lib --bins --example demo_effects \
		$(addprefix --test ,$(LOCAL) $(OUTSIDE) $(SERVERS) sim)
	@$(STEP) "build the examples" $(CARGO) build $(TESTED) --examples
	@$(STEP) "library, command line, formats" $(CARGO) test $(TESTED) $(PACKAGES) --lib --bins --example demo_effects \
		$(addprefix --test ,$(LOCAL))
	@$(STEP) "documentation's examples" $(CARGO) test $(TESTED) $(PACKAGES) --doc
	@$(STEP) "program outside" $(CARGO) test $(TESTED) $(addprefix --test ,$(OUTSIDE))
	@$(STEP) "benchmarks' own tests" $(CARGO) test $(TESTED) --workspace --bin compare
	@$(STEP) "simulation" $(CARGO) test $(TESTED) --test sim -- --skip differential::
	@$(STEP) "servers" scripts/side-by-side.sh "$(CARGO) test $(TESTED) --test services" \
		"$(CARGO) test $(TESTED) --test faults; $(CARGO) test $(TESTED) --test sim -- differential::"
endif

# Goes on after a failure with -k. Some recipes write pages in docs.
.PHONY: test-all
test-all: test deploy-check models sim test-librdkafka bench-stages sim-mistakes bit-flips histories bench-guard calls bounds fuzz cdc brokers kafka-matrix faults soak ## Run every test there is, for hours

.PHONY: models
models: setup-build ## Search the models of the protocols (RATCHET_MODELS=large for larger worlds)
	$(CARGO) test $(TESTED) --test models -- $(ARGS)

# All that have lanes on real Kafka, but for those with recipes of their own, where RATCHET_TEST_DATA_PATH=librdkafka does
# the same.
BY_LIBRDKAFKA := cluster_kafka:: real_kafka:: calls:: handlers:: gates:: sinks:: --skip requests::

.PHONY: test-librdkafka
test-librdkafka: export RATCHET_TEST_DATA_PATH = librdkafka
test-librdkafka: setup-test ## Run the tests on real Kafka with lanes by librdkafka
	$(CARGO) build $(BUILD) --examples
	$(CARGO) test $(BUILD) --test services -- $(or $(ARGS),$(BY_LIBRDKAFKA))
ifeq ($(strip $(ARGS)),)
	$(CARGO) test $(BUILD) --test sim -- differential::
	$(CARGO) test $(BUILD) --test faults
endif

# One version after the other: KAFKA_VERSIONS='3.9.1 4.4.0' for some, ARGS='takeovers::' for a part.
.PHONY: kafka-matrix
kafka-matrix: setup-test ## Run the Kafka tests with each of KAFKA_VERSIONS
	@failed=(); for version in $(KAFKA_VERSIONS); do \
		echo "kafka-matrix: Apache Kafka $$version"; \
		env -u RATCHET_TEST_BROKERS RATCHET_TEST_KAFKA_VERSION=$$version \
			$(CARGO) test $(BUILD) --test services -- $(or $(ARGS),cluster_kafka:: real_kafka::) || failed+=($$version); \
	done; \
	[[ $${#failed[@]} == 0 ]] || { echo "kafka-matrix: failed on Apache Kafka $${failed[*]}" >&2; exit 1; }

# Debezium on Kafka Connect, against PostgreSQL and MariaDB.
.PHONY: cdc
cdc: setup-cdc ## Run the tests of real change data capture
	$(CARGO) test $(BUILD) --test cdc -- --nocapture $(ARGS)

# PROFILE='no transactions' for those with such names.
.PHONY: brokers
brokers: setup-brokers ## Run on brokers that lack requests, or refuse them
	@kfake=$$(scripts/kfake.sh) && RATCHET_TEST_KFAKE=$$kfake RATCHET_TEST_PROFILE='$(PROFILE)' \
		$(CARGO) test $(TESTED) --test brokers -- --nocapture $(ARGS)

# Each of the two random tests lasts for CALLS_SECONDS (120).
.PHONY: calls
calls: setup-test ## Call a provider while it and the instances die, freeze and fail
	RATCHET_TEST_CALLS_SECONDS=$(CALLS_SECONDS) $(CARGO) test $(BUILD) --test services -- --nocapture $(or $(ARGS),calls::) --skip requests::

# New seeds come last, then those of the wire. SIM_SEEDS=n runs n seeds of each profile, SIM_FIRST=n from this one on;
# SIM_PROFILE=wild SIM_SEED=n ARGS=one_seed shows one in full: docs/dev/simulation.md.
.PHONY: sim
sim: setup-build ## Run the simulation: the engine on a simulated Kafka, with faults
	$(CARGO) test $(TESTED) --test sim -- --nocapture --skip differential:: $(ARGS)
ifeq ($(strip $(ARGS)$(SIM_FIRST)$(SIM_SEEDS)),)
	SIM_SECONDS=$(SIM_SECONDS) $(CARGO) test $(TESTED) --test sim -- --nocapture --exact new_seeds_of_all_profiles
	SIM_WIRE_SEEDS=$(SIM_WIRE_SEEDS) $(CARGO) test $(TESTED) --package ratchet-cluster --lib -- --nocapture wire::simulated
endif

.PHONY: sim-hunt
sim-hunt: setup-build ## Simulate new seeds for HOURS (1), and write docs/dev/simulation/situations.md
	SIM_PAGE=yes SIM_SECONDS=$$(awk -v hours=$(or $(HOURS),1) 'BEGIN { printf "%d", hours * 3600 }') $(CARGO) test $(HUNTED) --test sim -- --nocapture --exact new_seeds_of_all_profiles

# One bit after the other, BIT_FLIPS (1000) of each, RATCHET_TEST_SEED=n for the ones of an earlier run.
.PHONY: bit-flips
bit-flips: setup-test ## Flip bits in files of stores, of the embedded log and of a broker
	RATCHET_BIT_FLIPS=$(BIT_FLIPS) $(CARGO) test $(TESTED) $(PACKAGES) --lib -- --nocapture flipped_bits
	RATCHET_BIT_FLIPS=$(BIT_FLIPS) $(CARGO) test $(TESTED) --test services -- --nocapture flipped_bits

# HISTORIES (10000), a third on each store; RATCHET_TEST_SEED=n for the requests of an earlier run.
.PHONY: histories
histories: setup-histories ## Judge histories of the proxy under kills by a linearizability checker
	@scripts/histories.sh $(HISTORIES) "$(CARGO) test $(TESTED) --test services"

# With real processes, one fault after the other. ARGS='broker kill' for those with such names, ARGS=--list for the
# names.
.PHONY: faults
faults: setup-test ## Cause every fault on real Kafka, and write docs/dev/faults.md
	$(CARGO) test $(BUILD) --test faults -- --all $(ARGS)

# SIM_MISTAKE=NAME for one mistake, with SIM_PROFILE=NAME on the seeds of another profile than its own. Those of the wire's
# own simulation come last.
.PHONY: sim-mistakes
sim-mistakes: setup-build ## Check that the simulation finds sabotage, and write docs/dev/simulation/mistakes.md
	$(CARGO) test $(HUNTED) --no-default-features --features sabotage --test sim -- --nocapture mistake $(ARGS)
ifeq ($(strip $(ARGS)$(SIM_MISTAKE)),)
	SIM_PAGE=yes $(CARGO) test $(BUILD) --package ratchet-cluster --lib -- --nocapture noticing::page_of_mistakes
endif

.PHONY: fuzz
fuzz: setup-build ## Fuzz the parsers and whole lanes, each for FUZZ_SECONDS (30)
	@scripts/fuzz.sh

# Floods of keys, huge records, a slow broker and a thousand partitions.
.PHONY: bounds
bounds: setup-test ## Measure memory use under extreme loads
	RATCHET_TEST_BOUNDS=full $(CARGO) test $(BUILD) --test services -- --nocapture --test-threads 1 $(or $(ARGS),real_kafka::memory::)

# Compares with pass-throughs, Kafka Streams and Quix Streams. ARGS='--parts ids' for a part.
.PHONY: bench
bench: setup-bench ## Run the benchmarks, more than an hour, and write docs/benchmarks.md
	$(COMPARE) run $(ARGS)

.PHONY: bench-quick
bench-quick: setup-bench ## Run a few minutes of the benchmarks, and print the results
	$(COMPARE) run --quick --parts ids --rounds 2 $(ARGS)

.PHONY: bench-contender
bench-contender: setup-bench ## Run one contender (ARGS='ratchet --part versions --records 2000000')
	$(COMPARE) contender $(ARGS)

.PHONY: bench-report
bench-report: setup-build ## Write docs/benchmarks.md again from the last results
	$(COMPARE) report

# Compares with a pass-through, in a minute.
.PHONY: bench-guard
bench-guard: setup-test ## Fail if ratchet has clearly become slower
	$(COMPARE) guard

.PHONY: bench-stages
bench-stages: setup-build ## Time each stage of a record's way
	$(BENCH) --bench dedup --bench state --bench stages --bench memtable --bench large $(ARGS)

# Judged at the end. HOURS may be a fraction; RATE=500 for other than the default records a second.
.PHONY: soak
soak: setup-test ## Run on three real brokers for HOURS (1), with restarts and kills
	HOURS=$(HOURS) RATE=$(RATE) $(CARGO) test $(BUILD) --test soak

# Once for each set of formats: FORMAT=format-2, FORMAT=control-1 for what stands in control topics, FORMAT=request-1 for
# what is remembered of HTTP requests.
.PHONY: fixtures
fixtures: setup-build ## Write today's persisted formats to tests/fixtures/FORMAT
	FORMAT=$(FORMAT) $(CARGO) test $(TESTED) --test formats -- --ignored --exact write::write_fixtures

LINT := subjects fmt-check tiers clippy fuzz-check docs-check deny shell-check compose-check
.PHONY: lint
lint: setup-build ## Run all checks of the sources
	@for part in $(LINT); do $(STEP) "$$part" $(MAKE) "$$part"; done

.PHONY: tiers
tiers: ## Check that no test is left out of `make test-all`
	@scripts/tiers.sh

.PHONY: schema
schema: setup-build ## Write the schemas in config and the tables of keys in docs
	RATCHET_GOLDEN=write $(CARGO) test $(TESTED) --lib -- --exact topology::keys::tests::reference_has_the_tables_of_the_keys \
		topology::schema::tests::committed_schema_is_the_printed_one \
		config::tests::the_reference_has_the_table_of_the_settings \
		proxy::settings::tests::reference_has_the_tables_of_the_keys \
		proxy::settings::tests::committed_schema_is_the_printed_one

.PHONY: fmt
fmt: ## Format the sources
	$(CARGO) fmt --all
	rustfmt --edition 2024 fuzz/fuzz_targets/*.rs fuzz/src/world.rs

.PHONY: fmt-check
fmt-check: ## Check the format of the sources
	$(CARGO) fmt --all -- --check
	rustfmt --edition 2024 --check fuzz/fuzz_targets/*.rs fuzz/src/world.rs

# They include rooms of the crate by their files, so that a change there can break them.
.PHONY: fuzz-check
fuzz-check: ## Check that the fuzz targets compile
	CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-target}/fuzz $(CARGO) check --quiet --locked --manifest-path fuzz/Cargo.toml

# The last one checks the simulation and the sabotage in the library, the first two all else.
.PHONY: clippy
clippy: ## Run clippy on everything
	$(CARGO) clippy $(BUILD) --workspace --all-targets -- -D warnings
	$(CARGO) clippy $(BUILD) $(addprefix --test ,$(filter-out sim,$(APART))) -- -D warnings
	$(CARGO) clippy $(BUILD) --no-default-features --features sabotage --lib --test sim -- -D warnings

.PHONY: docs
docs: ## Build the code's documentation, with all rooms
	RUSTDOCFLAGS="-D warnings --cfg ratchet_internals" $(CARGO) doc $(BUILD) $(PACKAGES) --no-deps $(ARGS)

# What programs that use the crate see of it.
.PHONY: docs-public
docs-public: ## Build the documentation for programs that use the crate
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(BUILD) --no-deps --lib --package ratchet $(ARGS)

# A warning is an error.
.PHONY: docs-check
docs-check: docs docs-public ## Check the code's documentation

# Advisories are checked if their database can be reached.
.PHONY: deny
deny: ## Check the dependencies: licences, sources, versions, advisories
	@scripts/deny.sh

.PHONY: subjects
subjects: ## Check the subjects of the commits
	@scripts/subjects.sh

.PHONY: shell-check
shell-check: ## Check the shell scripts
	@scripts/shell-check.sh

# The checks for single recipes.
.PHONY: setup-build setup-test setup-cdc setup-bench setup-postgres setup-deploy setup-brokers setup-histories
setup-build:
	@scripts/setup.sh build
setup-test:
	@scripts/setup.sh build test
setup-postgres:
	@scripts/setup.sh build postgres
setup-brokers:
	@scripts/setup.sh build brokers
setup-cdc:
	@scripts/setup.sh build cdc
setup-deploy:
	@scripts/setup.sh deploy
setup-histories:
	@scripts/setup.sh build test histories
setup-bench:
	@scripts/setup.sh build test bench
