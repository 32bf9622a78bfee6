#!/usr/bin/env bash
# Compiles ratchet's own crates for tests (RUSTC_WORKSPACE_WRAPPER): without optimizing across the parts of a crate, which
# takes longer than all else. Cargo has no setting of this for some crates only, and dependencies must stay as they are.
exec "$@" -C lto=off
