#!/usr/bin/env bash
# Builds the broker of tests/brokers beside the other results, from Go modules of fixed versions. Prints its path.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

go=$(go_program) || fail "go is not on the path
help: make setup-brokers"
folder=${CARGO_TARGET_DIR:-target}/tools/kfake
mkdir -p "$folder"
folder=$(cd "$folder" && pwd -P)
"$go" -C tests/brokers/kfake build -o "$folder/kfake" . 2> >(grep -v '^go: downloading' >&2)
printf '%s\n' "$folder/kfake"
