#!/usr/bin/env bash
# Validates docker-compose.yml with whichever compose is installed; needs no container engine.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

# The files that the compose file mounts or builds from: compose itself does not look for them.
for file in Dockerfile config/ratchet.yaml topologies/payments.yaml; do
    [[ -f $file ]] || fail "docker-compose.yml needs $file, which is not there"
done

if docker compose version >/dev/null 2>&1; then
    docker compose --file docker-compose.yml config --quiet
elif have docker-compose; then
    docker-compose --file docker-compose.yml config --quiet
else
    say "compose: NOT validated: neither 'docker compose' nor docker-compose is installed"
    exit 0
fi
say "compose: docker-compose.yml is valid"
