#!/usr/bin/env bash
# Checks the shell scripts: with bash, and with shellcheck if it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

scripts=(.ci/run)
while IFS= read -r script; do
    scripts+=("$script")
done < <(find scripts tests benches -name '*.sh' -not -path '*/target/*' 2>/dev/null | sort)

for script in "${scripts[@]}"; do
    bash -n "$script"
done
if have shellcheck; then
    shellcheck --external-sources "${scripts[@]}"
    say "shell: checked ${#scripts[@]} scripts"
else
    say "shell: ${#scripts[@]} scripts parse; NOT checked further: shellcheck is not installed"
fi
