#!/usr/bin/env bash
# Checks that no test is left out: `make test-all` runs every test target that Cargo knows, `make test` or a recipe of
# its own runs each, and every file in tests is part of a target.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

metadata=$(cargo metadata --format-version 1 --no-deps --locked)
# Objects without objects in them are targets; the fields of each stand in this order.
targets() { # KIND
    grep -oE '\{"kind":\["'"$1"'"\][^{}]*\}' <<<"$metadata" | sed -E 's/.*"name":"([^"]*)".*"test":(true|false).*/\1 \2/'
}

all=$(make --dry-run --no-print-directory test-all SETUP_INSTALL=no)
left_out=()
while read -r name _; do
    grep -qE -- "--test $name( |\$)" <<<"$all" || left_out+=("test target $name")
done < <(targets test)
while read -r name is_tested; do
    [[ $is_tested == false ]] || grep -qE -- "--example $name( |\$)" <<<"$all" || left_out+=("example $name")
done < <(targets example)
while read -r name; do
    grep -qE -- "--package $name( |\$)" <<<"$all" || left_out+=("package $name")
done < <(grep -oE '"name":"[^"]*","version"' <<<"$metadata" | cut -d'"' -f4 | grep -vx ratchet)
for option in --lib --bins --doc; do
    grep -qE -- "$option( |\$)" <<<"$all" || left_out+=("cargo test $option")
done

# A module is named by the file beside or above it, or by its path.
while read -r file; do
    place=$(basename "$file") folder=$(dirname "$file")
    [[ $place != main.rs ]] || continue
    name=${place%.rs}
    if [[ $place == mod.rs ]]; then
        name=$(basename "$folder") folder=$(dirname "$folder")
        place=$name/mod.rs
    fi
    grep -qsE "^ *(pub(\([a-z]+\))? )?mod $name;" "$folder"/{main,mod}.rs "$folder.rs" ||
        grep -rqE "#\[path = \"([^\"]*/)?$place\"\]" --include="*.rs" tests src crates benches ||
        left_out+=("file $file")
done < <(git ls-files --cached --others --exclude-standard 'tests/*.rs')

if [[ ${#left_out[@]} != 0 ]]; then
    say "make test-all does not run:"
    printf '  %s\n' "${left_out[@]}" >&2
    fail "add each to a recipe that test-all has, see CONTRIBUTING.md"
fi
say "tiers: make test-all runs all $(targets test | wc -l) test targets"
