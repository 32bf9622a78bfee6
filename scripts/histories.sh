#!/usr/bin/env bash
# Writes histories of the proxy under kills and has them judged: histories.sh COUNT 'CARGO TEST COMMAND'. The judge's own
# tests come first: it must reject histories that are wrong.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

count=$1 test=$2
go=$(go_program) || fail "go is not on the path
help: make setup-histories"
folder=$(mkdir -p "${CARGO_TARGET_DIR:-target}/histories" && cd "${CARGO_TARGET_DIR:-target}/histories" && pwd -P)
(cd tests/histories/judge && "$go" vet ./... && "$go" test -count=1 ./... && "$go" build -o "$folder/judge" .)
# shellcheck disable=SC2086 # The command is several words.
RATCHET_HISTORIES=$count RATCHET_HISTORIES_FILE=$folder/histories.jsonl \
    $test -- --ignored --exact --nocapture histories::histories_on_all_stores
"$folder/judge" "$folder/histories.jsonl"
