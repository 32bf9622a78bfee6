#!/usr/bin/env bash
# Checks the dependencies against deny.toml: licences, sources and versions always; security advisories
# if their database can be reached. The last line says what was checked.
# Installs cargo-deny if it is missing; --install-only does nothing else.
# ADVISORIES=required makes an unreachable database an error.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

# Must build with the toolchain in rust-toolchain.toml.
version=0.20.2
fetch_timeout_s=120

if ! cargo deny --version >/dev/null 2>&1; then
    say "installing cargo-deny $version"
    # In its own target folder: it is not part of this project's build.
    env -u CARGO_TARGET_DIR -u CARGO_BUILD_TARGET_DIR cargo install --locked --version "$version" cargo-deny
fi
[[ ${1:-} != --install-only ]] || exit 0

check() { cargo deny --locked "$@"; }

check check --hide-inclusion-graph bans licenses sources

no_database() { # WHAT
    [[ ${ADVISORIES:-} != required ]] || fail "the advisory database cannot be reached, and ADVISORIES=required"
    say "deny: checked bans, licenses, sources; $1"
}

databases=${CARGO_HOME:-$HOME/.cargo}/advisory-dbs
if GIT_TERMINAL_PROMPT=0 timeout "$fetch_timeout_s" cargo deny fetch db </dev/null >/dev/null 2>&1; then
    check --offline check advisories
    say "deny: checked bans, licenses, sources, advisories"
elif [[ -n $(find "$databases" -mindepth 2 -maxdepth 2 -name crates -print -quit 2>/dev/null) ]]; then
    check --offline check advisories
    no_database "advisories against the copy in $databases, which could not be updated"
else
    no_database "NOT advisories: their database cannot be reached from here"
fi
