//! The program under test.

use std::path::PathBuf;

/// `ratchet`, as cargo has built it for this test.
pub fn ratchet() -> PathBuf {
    std::env::var_os("CARGO_BIN_EXE_ratchet").expect("cargo names the program to integration tests").into()
}
