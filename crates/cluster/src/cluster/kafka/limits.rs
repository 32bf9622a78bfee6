//! Limits of time that the producers of both data paths keep.

use std::time::Duration;

/// How long opening a producer may take: the broker first aborts what a predecessor left open.
pub(super) const INIT_DEADLINE: Duration = Duration::from_secs(30);
/// How long a lane that goes on while a transaction is committed waits at a time.
pub(super) const MEANWHILE_STEP: Duration = Duration::from_millis(1);
