//! The settings while they are being read; some are derived from others.

use std::path::PathBuf;

use super::worker::Config;

/// The settings while they are being read.
pub struct Draft {
    /// The settings, without those that are derived from others.
    pub config: Config,
    /// Whether the cluster is the embedded one; `None` after a mistake in `cluster`.
    pub embedded: Option<bool>,
    /// `embedded.dir`.
    pub embedded_dir: PathBuf,
    /// `embedded.partitions`.
    pub embedded_partitions: i32,
    /// `unpacked`; `None` to derive it from the memory.
    pub unpacked_bytes: Option<u64>,
}
