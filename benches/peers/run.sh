#!/usr/bin/env bash
# Builds a contender where that was not done yet, and becomes it: the process that was started is Java
# or Python. What it does is said by the environment: see README.md beside it.
set -euo pipefail
# shellcheck source=benches/peers/lib.sh
source "$(dirname "$0")/lib.sh"

[[ $# -eq 1 ]] || fail "usage: $0 kafka-streams|quix"
build "$1"
case $1 in
    kafka-streams)
        # The JVM's flags, all of them. PEER_JVM takes the place of the collector.
        read -ra collector <<<"${PEER_JVM:--XX:+UseParallelGC}"
        exec java "${collector[@]}" -Xmx1g -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
            -cp "$built/kafka-streams/classes:$built/kafka-streams/libs/*" ratchet.peer.Main
        ;;
    quix)
        export PYTHONDONTWRITEBYTECODE=1
        exec "$built/quix/bin/python" "$peers/quix/main.py"
        ;;
esac
