//! Ends the process without running the exit handlers that C libraries have registered.
//!
//! OpenSSL's would free what librdkafka's threads still use: a destroyed client's threads run on for a moment, and the
//! process would end by SIGSEGV. RocksDB's and librdkafka's wait for their threads.

use std::io::{self, Write};

/// Flushes standard output and ends the process.
pub fn end(code: u8) -> ! {
    // Fails only if standard output is closed.
    let _ = io::stdout().flush();
    at_once(code)
}

/// Ends the process, whatever its threads are doing.
pub fn at_once(code: u8) -> ! {
    // SAFETY: `_exit` takes any number, touches no memory of this process and does not return.
    unsafe { libc::_exit(code.into()) }
}
