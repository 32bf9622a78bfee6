//! How the process ends: without the exit handlers that C libraries have registered.
//!
//! OpenSSL's would take away what threads of librdkafka still use: a client that is destroyed goes on for a moment on
//! threads of its own, and the process would end by SIGSEGV. RocksDB's and librdkafka's wait for their threads.

use std::io::{self, Write};

/// Ends the process with what it has written to standard output.
pub fn end(code: u8) -> ! {
    // Fails only where nobody reads any more.
    let _ = io::stdout().flush();
    at_once(code)
}

/// Ends the process, whatever its threads are about.
pub fn at_once(code: u8) -> ! {
    // SAFETY: `_exit` takes any number, touches no memory of this process and does not return.
    unsafe { libc::_exit(code.into()) }
}
