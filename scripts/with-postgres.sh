#!/usr/bin/env bash
# Runs a command with a PostgreSQL of its own, whose address is in DATABASE_URL: in a temporary folder, reached by a
# socket there, and gone when the command ends.
#
#   scripts/with-postgres.sh COMMAND [ARGUMENT...]
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

# PostgreSQL refuses to run as root.
as_server=()
if [[ $(id -u) -eq 0 ]]; then
    as_server=(setpriv --reuid=postgres --regid=postgres --clear-groups --)
fi

[[ $# -gt 0 ]] || fail "write the command to run: scripts/with-postgres.sh COMMAND"
for program in initdb postgres; do
    have_server "$program" /usr/lib/postgresql/*/bin || fail "$program is not found
help: install PostgreSQL, on Debian and Ubuntu the package postgresql"
done
initdb=$(server_program initdb /usr/lib/postgresql/*/bin)
postgres=$(server_program postgres /usr/lib/postgresql/*/bin)
# They are meant for other servers.
unset "${!PG@}"
folder=$(mktemp -d "${TMPDIR:-/tmp}/ratchet-postgres-XXXXXX")
server=
stop() {
    if [[ -n $server ]]; then
        kill -QUIT "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$folder"
}
trap stop EXIT
if [[ $(id -u) -eq 0 ]]; then
    chown postgres: "$folder"
fi

"${as_server[@]}" "$initdb" -D "$folder/data" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$folder/initdb.log" 2>&1 ||
    fail "initdb failed: $(cat "$folder/initdb.log")"
"${as_server[@]}" "$postgres" -D "$folder/data" -k "$folder" -c listen_addresses= >"$folder/server.log" 2>&1 &
server=$!
for attempt in {1..600}; do
    psql -X -q -h "$folder" -U postgres -c 'select 1' >/dev/null 2>&1 && break
    kill -0 "$server" 2>/dev/null || fail "PostgreSQL did not start: $(cat "$folder/server.log")"
    [[ $attempt -lt 600 ]] || fail "PostgreSQL has not answered for a minute: $(cat "$folder/server.log")"
    sleep 0.1
done
DATABASE_URL="postgresql:///postgres?host=$folder&user=postgres" "$@"
