# Shared by the scripts beside it; sourced, not run.
# shellcheck shell=bash

# Where people look for what went wrong: everything goes to standard error.
say() { printf '%s\n' "$*" >&2; }
fail() {
    say "error: $*"
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# Runs a command as root: as it is, or by a sudo that asks for no password. Answers 1 where neither is had.
as_root() {
    if [[ $(id -u) -eq 0 ]]; then
        "$@"
    elif have sudo && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}
may_be_root() { as_root true; }

# The version in `what VERSION (...)`, as numbers that `version_at_least` compares.
version_at_least() { # HAVE WANTED
    [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]
}
