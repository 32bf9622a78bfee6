#!/usr/bin/env bash
# Builds the container image $IMAGE from the Dockerfile.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

image=${IMAGE:-ratchet:local}
have docker || fail "docker is not installed
help: any builder that reads a Dockerfile will do, for instance 'podman build -t $image .'"
docker info >/dev/null 2>&1 || fail "docker is installed, but no container engine responds
help: start one, or use another builder, for instance 'podman build -t $image .'"
# The Dockerfile keeps compiled dependencies in cache mounts, which only BuildKit supports.
DOCKER_BUILDKIT=1 docker build --tag "$image" .
say "image: $image"
