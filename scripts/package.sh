#!/usr/bin/env bash
# Packs the built program with its completions, configuration, topologies, docs, units and chart into
# dist/ratchet-VERSION-TARGET.tar.gz, with a SHA-256 next to it. The same sources give the same archive,
# except for the program in it: names are sorted, owners are root, times are the last commit's.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

metadata=$(cargo metadata --format-version 1 --no-deps --locked --offline)
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" <<<"$metadata" | head -n 1; }
target_dir=$(field target_directory)
version=$(cargo pkgid --offline | sed 's/.*[#@]//')
target=$(rustc -vV | sed -n 's/^host: //p')
name=ratchet-$version-$target
program=$target_dir/release/ratchet
[[ -x $program ]] || fail "$program does not exist
help: make build"

staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT
root=$staging/$name
mkdir -p "$root/completions"
install -m 755 "$program" "$root/ratchet"
for shell in bash zsh fish; do
    "$program" completions "$shell" >"$root/completions/ratchet.$shell"
done
cp -R README.md CHANGELOG.md LICENSE docs config topologies deploy "$root/"

mkdir -p dist
archive=dist/$name.tar.gz
commit_time=$(git log -1 --format=%ct 2>/dev/null || echo 0)
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$commit_time" -C "$staging" -cf - "$name" | gzip -n >"$archive"
(cd dist && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
say "package: $archive ($(du -h "$archive" | cut -f 1))"
