#!/usr/bin/env bash
# Runs a command and says how many seconds it took: step.sh NAME COMMAND... With a file in $STEPS, the step is added to
# it; `step.sh --table` prints that, with the parts of a step below it.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

if [[ ${1:-} == --table ]]; then
    sort -n "$STEPS" | awk -F '\t' '{ printf "%6d s  %*s%s\n", $3, 4 * $2, "", $4 }' >&2
    exit 0
fi

name=$1 depth=${STEP_DEPTH:-0}
shift
say "step: $name"
began=$(date +%s.%N) status=0 note=
STEP_DEPTH=$((depth + 1)) "$@" || status=$?
took=$(awk -v began="$began" -v ended="$(date +%s.%N)" 'BEGIN { printf "%.0f", ended - began }')
[[ $status == 0 ]] || note=" (failed)"
say "step: $name: $took s$note"
[[ -z ${STEPS:-} ]] || printf '%s\t%s\t%s\t%s\n' "$began" "$depth" "$took" "$name$note" >>"$STEPS"
exit "$status"
