#!/usr/bin/env bash
# Validates docker-compose.yml with whichever compose is installed, and checks that images are pinned.
# Needs no container engine.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

# The files that the compose file mounts or builds from, which compose itself does not check.
for file in Dockerfile config/ratchet.yaml topologies/payments.yaml; do
    [[ -f $file ]] || fail "docker-compose.yml needs $file, which does not exist"
done

# Tags move, so images are named by digest, except the one that is built here.
digest='[^ ]+@sha256:[0-9a-f]{64}'
if loose=$(grep -nE '^FROM ' Dockerfile | grep -vE "FROM $digest( AS [a-z]+)?$") ||
    loose=$(grep -nE '^ *image: ' docker-compose.yml | grep -vE "image: ($digest|ratchet:local)$"); then
    fail "an image is not pinned by its digest: $loose"
fi
toolchain=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
grep -q "^FROM rust:$toolchain-.*" Dockerfile || fail "Dockerfile does not build with rust-toolchain.toml's $toolchain"

if docker compose version >/dev/null 2>&1; then
    docker compose --file docker-compose.yml config --quiet
elif have docker-compose; then
    docker-compose --file docker-compose.yml config --quiet
else
    say "compose: NOT validated: neither 'docker compose' nor docker-compose is installed"
    exit 0
fi
say "compose: docker-compose.yml is valid"
