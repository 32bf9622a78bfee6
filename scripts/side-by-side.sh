#!/usr/bin/env bash
# Runs shell commands at the same time, each an argument, and prints what each has printed once it has ended. Fails if
# one of them fails, after all have ended.
set -uo pipefail
cd "$(dirname "$0")/.."

logs=$(mktemp -d)
processes=()
stop() {
    local process
    for process in "${processes[@]}"; do kill "$process" 2>/dev/null; done
    rm -rf "$logs"
}
trap stop EXIT
trap 'exit 130' INT TERM

count=0
for command in "$@"; do
    bash -euo pipefail -c "$command" </dev/null >"$logs/$count" 2>&1 &
    processes+=($!)
    count=$((count + 1))
done
failed=0
for at in "${!processes[@]}"; do
    wait "${processes[at]}" || failed=1
    cat "$logs/$at"
done
exit "$failed"
