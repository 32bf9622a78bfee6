#!/usr/bin/env bash
# Builds a contender if necessary, and becomes it: the started process turns into Java or Python.
# Environment variables say what it does: see README.md in this folder.
set -euo pipefail
# shellcheck source=benches/peers/lib.sh
source "$(dirname "$0")/lib.sh"

[[ $# -eq 1 ]] || fail "usage: $0 kafka-streams|quix"
build "$1"
case $1 in
    kafka-streams)
        # All of the JVM's flags. PEER_JVM replaces the collector.
        read -ra collector <<<"${PEER_JVM:--XX:+UseParallelGC}"
        exec java "${collector[@]}" -Xmx1g -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
            -cp "$built/kafka-streams/classes:$built/kafka-streams/libs/*" ratchet.peer.Main
        ;;
    quix)
        export PYTHONDONTWRITEBYTECODE=1
        exec "$built/quix/bin/python" "$peers/quix/main.py"
        ;;
esac
