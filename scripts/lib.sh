# Shared by the other scripts here; sourced, not run.
# shellcheck shell=bash

# All messages go to standard error.
say() { printf '%s\n' "$*" >&2; }
fail() {
    say "error: $*"
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# The path of a server's program. They are often not on PATH: Debian keeps PostgreSQL's in a folder for each version, of
# which the last one counts. Returns 1 if it is nowhere.
server_program() { # PROGRAM FOLDER...
    local program=$1 folder found=
    shift
    command -v "$program" && return 0
    for folder in "$@"; do
        [[ -x $folder/$program ]] && found=$folder/$program
    done
    [[ -n $found ]] && printf '%s\n' "$found"
}
have_server() { server_program "$@" >/dev/null; }

# The path of Go, which its own installer does not put on PATH. Returns 1 if it is nowhere.
go_program() { server_program go /usr/local/go/bin; }

# Runs a command as root: directly, or with sudo if it asks for no password. Returns 1 if neither is possible.
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

# Whether a version is the wanted one or later.
version_at_least() { # HAVE WANTED
    [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]
}
