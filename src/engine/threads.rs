//! Starts the process's threads.

use std::thread::JoinHandle;
use std::time::Duration;

use super::error::Error;

/// How often the supervisor checks its lanes.
pub(super) const SUPERVISE_INTERVAL: Duration = Duration::from_millis(20);

/// Starts a named thread, if the system allows it.
pub(super) fn spawn<T: Send + 'static>(
    name: String,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    std::thread::Builder::new()
        .name(name.clone())
        .spawn(body)
        .map_err(|error| Error::Thread { name, reason: error.to_string() })
}
