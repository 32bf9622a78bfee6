//! Time limits of the producers of both data paths.

use std::time::Duration;

/// How long opening a producer may take: the broker first aborts the transaction that a predecessor left open.
pub(super) const INIT_DEADLINE: Duration = Duration::from_secs(30);
/// How long a lane that continues its work during a commit waits at a time.
pub(super) const MEANWHILE_STEP: Duration = Duration::from_millis(1);
