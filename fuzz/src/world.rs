//! Topologies from text that is in memory, and records from the fuzzer's bytes.

use std::io;
use std::path::Path;

use crate::record::{Headers, Record};
use crate::topology::{self, Diagnostics, Environment, Loaded};

/// A world of one file: the topology.
struct OneFile<'a>(&'a [u8]);

impl Environment for OneFile<'_> {
    fn variable(&self, _name: &str) -> Option<String> {
        None
    }

    fn variables(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn cores(&self) -> usize {
        1
    }

    fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        if path == Path::new("t.yaml") { Ok(self.0.to_vec()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

/// Reads a topology from its text.
pub fn load(text: &[u8]) -> Result<Loaded, Diagnostics> {
    topology::load(Path::new("t.yaml"), &OneFile(text))
}

/// A record at `offset` with these bytes.
pub fn record<'a>(offset: i64, key: Option<&'a [u8]>, value: Option<&'a [u8]>) -> Record<'a> {
    Record {
        topic: "t",
        partition: 0,
        offset,
        timestamp: Some(1_577_836_800_000 + offset),
        key,
        value,
        headers: Headers::default(),
    }
}
