# Shared by build.sh and run.sh; sourced, not run.
# shellcheck shell=bash

peers=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/lib.sh
source "$peers/../../scripts/lib.sh"

# All build results go there, nothing into the checkout.
target=${CARGO_TARGET_DIR:-$peers/../../target}
built=$(realpath -m "$target")/bench/peers

# The hashes of a contender's sources; if the last build had the same, nothing is done.
stamp_of() { # FOLDER
    (cd "$1" && find . -type f -not -path '*/__pycache__/*' -print0 | sort -z | xargs -0 sha256sum)
}

build_kafka_streams() {
    have java || fail "the Kafka Streams contender needs Java 17 or later
help: make setup"
    have mvn || fail "the Kafka Streams contender needs Maven
help: make setup"
    local output=$built/kafka-streams
    say "building the Kafka Streams contender into $output"
    rm -rf "$output"
    mkdir -p "$output"
    local maven=(mvn -q -B process-classes "-Dbench.output=$output" -f "$peers/kafka-streams/pom.xml")
    # Without the network if Maven has everything.
    "${maven[@]}" -o >"$output/build.log" 2>&1 || "${maven[@]}" >&2
}

build_quix() {
    have python3 || fail "the Quix Streams contender needs Python 3.9 or later, with venv and pip"
    local output=$built/quix
    say "installing the Quix Streams contender into $output"
    rm -rf "$output"
    python3 -m venv "$output" >&2
    "$output/bin/pip" install --quiet --disable-pip-version-check -r "$peers/quix/requirements.txt" >&2
    "$output/bin/python" -m compileall -q "$output/lib" >/dev/null || true
}

# Builds a contender that is missing or was built from other sources.
build() { # NAME
    local name=$1 stamp
    case $name in
        kafka-streams | quix) ;;
        *) fail "no such contender: $name (kafka-streams, quix)" ;;
    esac
    mkdir -p "$built"
    # Instances that start at the same time build once.
    exec 9>"$built/$name.lock"
    flock 9
    stamp=$(stamp_of "$peers/$name")
    if [[ $(cat "$built/$name.stamp" 2>/dev/null || true) != "$stamp" ]]; then
        rm -f "$built/$name.stamp"
        "build_${name//-/_}"
        printf '%s\n' "$stamp" >"$built/$name.stamp"
    fi
    exec 9>&-
}
