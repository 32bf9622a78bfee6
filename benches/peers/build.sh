#!/usr/bin/env bash
# Builds all contenders, or those named, in ${CARGO_TARGET_DIR:-target}/bench/peers.
set -euo pipefail
# shellcheck source=benches/peers/lib.sh
source "$(dirname "$0")/lib.sh"

[[ $# -gt 0 ]] || set -- kafka-streams quix
for name in "$@"; do
    build "$name"
done
