#!/usr/bin/env bash
# Runs a command and says how many seconds it took, and how busy the machine's processors were meanwhile: step.sh NAME
# COMMAND... With a file in $STEPS, the step is added to it; `step.sh --table` prints that, with the parts of a step below
# it.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

if [[ ${1:-} == --table ]]; then
    sort -n "$STEPS" | awk -F '\t' '{ printf "%6d s %5s  %*s%s\n", $3, $5, 4 * $2, "", $4 }' >&2
    exit 0
fi

# Ticks of all processors since the start of the machine: in all, and idle. Zeros where the system does not count them so.
ticks() {
    awk '$1 == "cpu" { for (i = 2; i <= 9; i++) all += $i; idle = $5 + $6 } END { print all + 0, idle + 0 }' /proc/stat 2>/dev/null ||
        echo 0 0
}

name=$1 depth=${STEP_DEPTH:-0}
shift
say "step: $name"
began=$(date +%s.%N) status=0 note=
read -r all_before idle_before < <(ticks)
STEP_DEPTH=$((depth + 1)) "$@" || status=$?
took=$(awk -v began="$began" -v ended="$(date +%s.%N)" 'BEGIN { printf "%.0f", ended - began }')
read -r all idle < <(ticks)
all=$((all - all_before)) idle=$((idle - idle_before))
busy=$((all > 0 ? 100 * (all - idle) / all : 0))%
[[ $status == 0 ]] || note=" (failed)"
say "step: $name: $took s, $busy busy$note"
[[ -z ${STEPS:-} ]] || printf '%s\t%s\t%s\t%s\t%s\n' "$began" "$depth" "$took" "$name$note" "$busy" >>"$STEPS"
exit "$status"
