//! A Redis of a turn's own, what it uses, and what it calls itself. Nothing of it is left once it is dropped.

use crate::failure::{Context as _, Outcome};
use crate::redis_server::Server;
use crate::usage::Usage;

/// A running server, empty at first.
pub struct Redis {
    server: Server,
    pid: u32,
    version: String,
}

impl Redis {
    /// Starts one with these settings, which keeps nothing on disk unless they say so.
    pub fn start(settings: &[&str]) -> Outcome<Redis> {
        let server = Server::start(settings);
        let info: String = server.ask("INFO server");
        let told = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let pid = told("process_id").and_then(|pid| pid.trim().parse().ok()).context("Redis names no process")?;
        let version = format!("Redis {}", told("redis_version").unwrap_or_default().trim());
        Ok(Redis { server, pid, version })
    }

    /// Its address.
    pub fn url(&self) -> String {
        self.server.url("")
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The resources that it has used.
    pub fn usage(&self) -> Usage {
        Usage::of(self.pid)
    }

    /// `Redis 7.0.15`
    pub fn version(&self) -> &str {
        &self.version
    }
}
