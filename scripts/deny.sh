#!/usr/bin/env bash
# Checks the dependencies by deny.toml: licences, sources and versions always; security advisories
# where their database can be had. Which of them were checked is said at the end.
# Installs cargo-deny if it is missing; --install-only does nothing else.
# ADVISORIES=required makes an unreachable database an error, for a place that must not miss one.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

# Builds with the toolchain of rust-toolchain.toml.
version=0.20.2
fetch_timeout_s=120

if ! cargo deny --version >/dev/null 2>&1; then
    say "installing cargo-deny $version"
    # In a folder of its own: it is no part of this project's build.
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
    no_database "advisories by the copy in $databases, which could not be brought up to date"
else
    no_database "NOT advisories: their database cannot be reached from here"
fi
