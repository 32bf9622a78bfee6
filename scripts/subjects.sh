#!/usr/bin/env bash
# Checks the subjects of the commits since the rule was introduced: `area: do this`, at most 72 characters, in the
# imperative (CONTRIBUTING.md). Only the first word is checked: no article, no `-s`, `-ed` or `-ing` form of a verb.
set -euo pipefail
cd "$(dirname "$0")/.."

# The last commit that need not follow it.
since=2e2831c
if ! git merge-base --is-ancestor "$since" HEAD 2>/dev/null; then
    echo "subjects: NOT checked: $since is not part of this history"
    exit 0
fi
git log --no-merges --format='%h %s' "$since..HEAD" | awk '
    { hash = $1; subject = substr($0, length($1) + 2); why = "" }
    length(subject) > 72 { why = "has " length(subject) " characters, more than 72; " }
    { verb = subject; sub(/^[a-z][a-z0-9-]*: /, "", verb); sub(/[ ,].*/, "", verb) }
    verb !~ /^[a-z][a-z-]*$/ { why = why "starts with \"" verb "\" instead of a verb" }
    verb ~ /^(a|an|the|what|whatever|who|where|when|that|there|it|no|not|all|each|one|only|more|of|in|for|whether)$/ ||
    (verb ~ /(ing|ed)$/ && verb !~ /^(bring|ping|ring|string|embed|exceed|feed|heed|need|proceed|seed|shed|speed|succeed)$/) || (verb ~ /s$/ && verb !~ /(ss|focus|bias|alias)$/) {
        why = why "starts with \"" verb "\": use the imperative, as in `add`, `fix`"
    }
    why { print "subjects: " hash " \"" subject "\" " why; bad = 1 }
    { count++ }
    END { if (!bad) print "subjects: " count + 0 " commits follow the rule"; exit bad }'
