#!/usr/bin/env bash
# Fuzzes the parsers of foreign bytes: each target in fuzz/ for $FUZZ_SECONDS (default 30), with the captures in
# tests/ and the topologies as seeds. Findings stay in fuzz/artifacts; make each a test. FUZZ_TARGETS runs only the
# named targets. With RUSTUP_TOOLCHAIN=nightly, FUZZ_SANITIZER=address checks every memory access as well.
# The target `lanes` takes hostile records through whole lanes on the embedded cluster. It needs RocksDB, so it is
# a test of the crate itself: from a seed that it prints, not guided by coverage.
# Installs cargo-fuzz if it is missing; --install-only does nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

version=0.13.1
line_bytes_max=8192

if ! cargo fuzz --version >/dev/null 2>&1; then
    say "installing cargo-fuzz $version"
    # In its own target folder: it is not part of this project's build. With the pinned compiler: nightly ones do not
    # compile the versions in its lock file.
    env -u CARGO_TARGET_DIR -u CARGO_BUILD_TARGET_DIR -u RUSTUP_TOOLCHAIN cargo install --locked --version "$version" cargo-fuzz
fi
[[ ${1:-} != --install-only ]] || exit 0

seeds=$(mktemp -d)
trap 'rm -rf "$seeds"' EXIT
mkdir -p "$seeds"/{paths,versions,envelopes,yaml,persisted,batches,records,responses,raised,schemas}

# Each line is a seed of its own, so that a seed is one record.
find tests/corpus/files tests/data topologies/samples -type f 2>/dev/null | sort | while read -r file; do
    awk -v to="$seeds/envelopes/$(tr / - <<<"$file")" -v most="$line_bytes_max" \
        '/^\{/ && length($0) <= most { out = to "-" NR; print > out; close(out) }' "$file"
done
find topologies src/topology -name '*.yaml' -type f | sort | while read -r file; do
    cp "$file" "$seeds/yaml/$(tr / - <<<"$file")"
done
grep -rhoE '\b(key|value|header|meta)\.[A-Za-z0-9_."]+' topologies src/topology --include='*.yaml' | sort -u | head -200 |
    awk -v to="$seeds/paths/" '{ out = to NR; printf "%s", $0 > out; close(out) }'
# Each starts with a byte for its kind: an entry, a position record, a store's meta, an offset's text; then an entry and
# a position record with calls, which the fixtures do not have.
persisted() { # KIND NAME HEX...
    local kind=$1 name=$2 hex
    hex=$(printf '%s' "${@:3}")
    printf '%b' "$(sed 's/../\\x&/g' <<<"$(printf '%02x' "$kind")$hex")" >"$seeds/persisted/$name-$(cksum <<<"$hex" | cut -d' ' -f1)"
}
kind=0
for name in entries positions store-metas offsets; do
    cat tests/fixtures/*/"$name".jsonl | grep -oE '^\{"bytes":"[0-9a-f]+"' | grep -oE '[0-9a-f]{4,}' | while read -r hex; do
        persisted "$kind" "$name" "$hex"
    done
    kind=$((kind + 1))
done
persisted 4 calls \
    0203000000180137000000050000000000000001000200000002616276310400000000000000050105050505050505050505 \
    05050505050500000000000000090103030303030303030303030303030303030303030100c8000000027b7d000000180137 \
    0000000500000000000000010002000000026162763205050505050505050505050505050505000000000000000900000000 \
    00000007000000020300000206636861726765010000000378797a046d61696c00
persisted 5 calls \
    020708070707070707070707070707070707070601720909090909090909090909090909090901000a0a0001010101010101 \
    0101010101010101010101010101010101010101010101010101040000020e101218013c0801010101010101010101010101 \
    0101010108

# These start with a byte for their kind too: headers, two records, two messages from before Kafka 0.11, frames and
# blocks.
batch=0
for bytes in '\x00\x04\x04id\x02v\x02n\x01' '\x01\x0c\0\0\0\x01\x01\0\x0c\0\0\0\x01\x01\0' \
    '\x01\0\0\0\0\0\0\0\x01\0\0\0\x0e\0\0\0\0\0\0\0\0\0\0\0\0\0\0' '\x02\x1f\x8b\x08\0\0\0\0\0\0\0\0\x01\0\0' \
    '\x02\x04\x22\x4d\x18\x64\x40\xa7\x05\0\0\0\x01\x02\x03\x04\x05\0\0\0\0' '\x02\0\0\0\x04\x80\x01\0\0'; do
    batch=$((batch + 1))
    printf '%b' "$bytes" >"$seeds/batches/$batch"
done

# Batches and markers that Java's client has written, after a byte for the kind; and a response to Fetch and one to
# Produce, after a byte for the version.
tr -d ' \n\\' <crates/cluster/src/cluster/kafka/wire/records/tests/golden.rs | grep -oE '"[0-9a-f]{70,}"' | tr -d '"' | while read -r hex; do
    printf '%b' "$(sed 's/../\\x&/g' <<<"00$hex")" >"$seeds/records/$(cksum <<<"$hex" | cut -d' ' -f1)"
done
response=0
for hex in 00000000000000000000000000000100016f00000001000000000000000000000000000a000000000000000a0000000000000000 \
    0800000001000161000000010000000000000000000000000005ffffffffffffffff000000000000000000000000ffff00000000 \
    0b02026102000000000000000000000000000005ffffffffffffffff0000000000000000010000000000000000; do
    response=$((response + 1))
    printf '%b' "$(sed 's/../\\x&/g' <<<"$hex")" >"$seeds/responses/$response"
done

# Integers for `at_least`, as the connectors write them.
grep -rhoE '\[\\?"[0-9]+\\?"(, ?\\?"[0-9]+\\?")*\]' tests/corpus/files 2>/dev/null | tr -d '\\' | sort -u | head -100 |
    awk -v to="$seeds/raised/" '{ out = to NR; printf "\0\0\0\0\0\0\0\0%s", $0 > out; close(out) }'

# Schemas, each after a byte for its language, and before what serializers have written by it: the records without the five
# bytes of an id.
written=tests/schemas/written
schema() { # KIND FILE SCHEMA FORMAT
    grep -E "^\{\"format\": \"$4\", \"schema\": $3, \"id\"" "$written/records.jsonl" | grep -oE '"value": "[^"]+"' | cut -d'"' -f4 |
        while read -r base64; do
            { printf '%b' "\x0$1" && cat "$written/$2" && printf '\xff' && base64 -d <<<"$base64" | tail -c +6; } \
                >"$seeds/schemas/$4-$3-$(cksum <<<"$base64" | cut -d' ' -f1)"
        done
}
for number in 1 2; do
    schema 0 "payment-$number.avsc" "$number" avro
    schema 1 "payment_$number.proto" "$number" protobuf
    schema 2 "payment-$number.json" "$number" json_schema
done

for target in ${FUZZ_TARGETS:-paths versions envelopes yaml persisted batches records responses raised schemas lanes}; do
    if [[ $target == lanes ]]; then
        say "fuzz: lanes for ${FUZZ_SECONDS:-30} s"
        RATCHET_TEST_FUZZ_SECONDS=${FUZZ_SECONDS:-30} cargo test --release --locked --test services -- --nocapture bounds::lanes:: ||
            fail "lanes found something: set RATCHET_TEST_SEED, printed above, to repeat it"
        continue
    fi
    say "fuzz: $target for ${FUZZ_SECONDS:-30} s, from $(find "$seeds/$target" -type f | wc -l) seeds"
    mkdir -p "fuzz/corpus/$target"
    # The only unsafe block in these rooms (SSE2) involves no pointer, so the pinned stable compiler will do, without a
    # sanitizer.
    if ! cargo fuzz run --sanitizer "${FUZZ_SANITIZER:-none}" "$target" "fuzz/corpus/$target" "$seeds/$target" -- \
        -max_total_time="${FUZZ_SECONDS:-30}" -max_len="$line_bytes_max" -timeout=10 -rss_limit_mb=4096 \
        >"$seeds/log" 2>&1; then
        tail -n 60 "$seeds/log" >&2
        fail "$target found something: see fuzz/artifacts/$target"
    fi
    say "fuzz: $(grep '^Done ' "$seeds/log")"
done
say "fuzz: nothing found"
