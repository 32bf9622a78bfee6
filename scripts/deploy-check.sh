#!/usr/bin/env bash
# Checks what is in deploy/, without a cluster and without systemd running:
#
# - the units, with systemd-analyze: they are valid, and no more open than they may be
# - the chart, with helm: it lints; what tests/deploy/*/values.yaml renders to is rendered.yaml and notes.txt beside
#   them; that, and what the example in docs/operations.md renders to, is valid by the schemas of the oldest and the
#   newest Kubernetes, with kubeconform; and each of tests/deploy/refused/*.yaml is refused with the words in its first
#   line
#
# RATCHET_GOLDEN=write writes the renders instead of comparing them. What it needs of others is built from Go modules,
# and fetched as a Python package, once, into the target folder.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

helm_version=v3.22.0
kubeconform_version=v0.8.0
# It carries the JSON schemas of Kubernetes.
schemas_version=1.37.0
schemas_sha256=85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9
# The first is the chart's `kubeVersion`.
kubernetes_versions=(1.25.0 1.37.0)
# In tenths; 100 is wide open.
exposure_max=12

chart=deploy/helm/ratchet
cases=tests/deploy
tools=${CARGO_TARGET_DIR:-target}/deploy-tools
mkdir -p "$tools"
tools=$(cd "$tools" && pwd -P)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Builds a program, unless it is there. Prints its path.
built() { # MODULE/PATH VERSION
    local name=${1##*/} go
    local folder=$tools/$name-$2
    local program=$folder/$name
    if [[ ! -x $program ]]; then
        go=$(go_program) || fail "go is not on the path
help: make setup-deploy"
        say "deploy: building $name $2"
        GOBIN=$folder "$go" install "$1@$2" 2> >(grep -v '^go: downloading' >&2)
    fi
    printf '%s\n' "$program"
}

# Fetches the schemas, unless they are there: as they come they name an address to be read from, here each its neighbour.
fetch_schemas() {
    [[ ! -e $tools/schemas-$schemas_version/complete ]] || return 0
    say "deploy: fetching the schemas of Kubernetes"
    printf 'kubernetes-validate==%s --hash=sha256:%s\n' "$schemas_version" "$schemas_sha256" >"$scratch/packages"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
        --dest "$scratch/fetched" --requirement "$scratch/packages" >&2
    python3 - "$scratch"/fetched/*.whl "$tools/schemas-$schemas_version" "${kubernetes_versions[@]}" <<'PYTHON'
import json, pathlib, re, sys, zipfile

wheel, folder, *versions = sys.argv[1:]
with zipfile.ZipFile(wheel) as files:
    for name in files.namelist():
        found = re.search(r"/v([0-9.]+)-local-strict/([^/]+\.json)$", name)
        if found and found[1] in versions:
            schema = json.loads(files.read(name).decode().replace('"/api/_definitions.json', '"_definitions.json'))
            schema.pop("$id", None)
            path = pathlib.Path(folder, found[1], found[2])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(schema))
for version in versions:
    assert pathlib.Path(folder, version, "statefulset-apps-v1.json").exists(), version
pathlib.Path(folder, "complete").touch()
PYTHON
}

check_units() {
    local unit name
    have systemd-analyze || fail "systemd-analyze is not on the path
help: make setup-deploy"
    # The program need not be installed here.
    printf '#!/bin/sh\n' >"$scratch/ratchet"
    chmod +x "$scratch/ratchet"
    for unit in deploy/systemd/*.service; do
        name=$(basename "$unit")
        grep -q '^ExecStart=/usr/local/bin/ratchet ' "$unit" || fail "$unit does not start /usr/local/bin/ratchet"
        sed "s|^ExecStart=/usr/local/bin/ratchet |ExecStart=$scratch/ratchet |" "$unit" >"$scratch/$name"
        systemd-analyze verify --man=no --recursive-errors=no "$scratch/$name" >&2 || fail "$unit is not valid"
        systemd-analyze security --no-pager --offline=true --threshold="$exposure_max" "$PWD/$unit" \
            >"$scratch/exposure" 2>&1 || {
            grep '^✗' "$scratch/exposure" >&2 || cat "$scratch/exposure" >&2
            fail "$unit is more open than $exposure_max tenths"
        }
    done
}

# The version stands in two files, and no tool compares them.
check_version() {
    local program
    program=$(sed -n '/^\[package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
    [[ -n $program ]] || fail "Cargo.toml has no version"
    grep -qx "appVersion: \"$program\"" "$chart/Chart.yaml" || fail "the appVersion of $chart/Chart.yaml is not $program"
    grep -qx "kubeVersion: \">=${kubernetes_versions[0]}-0\"" "$chart/Chart.yaml" ||
        fail "the kubeVersion of $chart/Chart.yaml is not ${kubernetes_versions[0]}"
}

render() { # VALUES VERSION
    "$helm" template shop "$chart" --namespace shops --values "$1" --kube-version "$2"
}

# What is said after an installation: of a chart with the notes as a manifest, since helm shows them to clusters only.
render_notes() { # VALUES
    if [[ ! -d $scratch/notes ]]; then
        cp -R "$chart" "$scratch/notes"
        { printf 'notes: |\n  {{- include "ratchet.notes" . | nindent 2 }}\n{{- define "ratchet.notes" }}\n'
          cat "$chart/templates/NOTES.txt"
          printf '\n{{- end }}\n'; } >"$scratch/notes/templates/notes.yaml"
        rm "$scratch/notes/templates/NOTES.txt"
    fi
    "$helm" template shop "$scratch/notes" --namespace shops --values "$1" --kube-version "${kubernetes_versions[1]}" \
        --show-only templates/notes.yaml | sed '1,/^notes: |/d; s/^  //'
}

compare() { # GOLDEN RENDERED
    if [[ ${RATCHET_GOLDEN:-} == write ]]; then
        cp "$2" "$1"
    elif ! diff -u "$1" "$2" >&2; then
        fail "$1 is not what the chart renders
help: if it should be: RATCHET_GOLDEN=write make deploy-check"
    fi
}

# Renders for each version, into $scratch/VERSION.yaml, and checks that it is valid there.
check_values() { # VALUES
    local version
    "$helm" lint --strict --quiet "$chart" --values "$1" --kube-version "${kubernetes_versions[1]}" >&2
    for version in "${kubernetes_versions[@]}"; do
        render "$1" "$version" >"$scratch/$version.yaml"
        "$kubeconform" -strict -kubernetes-version "$version" \
            -schema-location "$tools/schemas-$schemas_version/$version/{{ .ResourceKind }}{{ .KindSuffix }}.json" \
            -schema-location "$cases/schemas/{{ .ResourceKind }}{{ .KindSuffix }}.json" \
            "$scratch/$version.yaml" >&2 || fail "$1 is not valid for Kubernetes $version"
    done
}

check_case() { # FOLDER
    local version
    check_values "$1/values.yaml"
    for version in "${kubernetes_versions[@]}"; do
        compare "$1/rendered.yaml" "$scratch/$version.yaml"
    done
    render_notes "$1/values.yaml" >"$scratch/notes.txt"
    compare "$1/notes.txt" "$scratch/notes.txt"
}

# The example in the docs.
check_example() {
    awk '/^## / { here = /On Kubernetes$/ } here && /^```/ { inside = /yaml$/; next } inside' \
        docs/operations.md >"$scratch/example.yaml"
    [[ -s $scratch/example.yaml ]] || fail "docs/operations.md has no example of values"
    check_values "$scratch/example.yaml"
}

check_refused() { # VALUES
    local words said
    words=$(sed -n '1s/^# refused: //p' "$1")
    [[ -n $words ]] || fail "the first line of $1 does not say why it is refused"
    if said=$(render "$1" "${kubernetes_versions[1]}" 2>&1 >/dev/null); then
        fail "$1 is not refused: $words"
    fi
    [[ $said == *"$words"* ]] || fail "$1 is not refused because of this: $words
$said"
}

check_units
check_version
helm=$(built helm.sh/helm/v3/cmd/helm "$helm_version")
kubeconform=$(built github.com/yannh/kubeconform/cmd/kubeconform "$kubeconform_version")
fetch_schemas
cases_count=0
for values in "$cases"/*/values.yaml; do
    check_case "$(dirname "$values")"
    cases_count=$((cases_count + 1))
done
check_example
refused_count=0
for values in "$cases"/refused/*.yaml; do
    check_refused "$values"
    refused_count=$((refused_count + 1))
done
say "deploy: the units are valid; the chart renders $cases_count sets of values, for Kubernetes ${kubernetes_versions[*]}, and refuses $refused_count"
