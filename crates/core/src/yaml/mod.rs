//! Reads YAML with places: used for topologies and the configuration.
//!
//! - [`tree`]: parses text into a small tree that keeps each scalar's text, its place, and whether it was quoted
//! - [`text`]: a string that may be secret, and the substitutions `${env:NAME}`, `${env:NAME:-default}`, `${file:PATH}`
//! - [`read`]: reads the tree's nodes as the expected types; all mistakes are collected, and none ends the reading
//! - [`keys`]: the keys that a mapping may hold, as a table
//! - [`schema`]: the JSON Schema of a file, from those tables
//! - [`secrets`]: where passwords are in addresses
//! - [`units`]: durations, sizes, numbers
//! - [`mod@write`]: writes a tree as text again
//! - [`report`]: a mistake with its place and what to write instead, and all of them together
//!
//! Scalars stay text until a type is asked for, so that no integer is ever rounded. No text makes anything here panic;
//! depth, size and aliases are bounded.

use std::io;
use std::path::Path;

pub mod keys;
pub mod read;
pub mod report;
pub mod schema;
pub mod secrets;
pub mod text;
pub mod tree;
pub mod units;
pub mod write;

pub use read::{Explained, Field, Fields, Placed, Reader, Shape};
pub use report::{Diagnostics, File, Mistake, Place, Report};
pub use text::Text;
pub use tree::{Node, Value};

/// Access to the outside: injected, so that loading is a function of its arguments.
pub trait Environment {
    /// The environment variable `name`; `None` if it is not set or not UTF-8.
    fn variable(&self, name: &str) -> Option<String>;

    /// All environment variables that are UTF-8, in any order.
    fn variables(&self) -> Vec<(String, String)>;

    /// The bytes of the file at `path`; relative paths start at the working folder.
    fn read_file(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The bytes of a file that `${file:PATH}` stands for.
    fn read_substituted(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.read_file(path)
    }

    /// How many cores this process may use.
    fn cores(&self) -> usize;

    /// Whether what is loaded is to be connected to. If not, an address whose variable is not set, or whose file is not
    /// there, is no mistake.
    fn connects(&self) -> bool {
        true
    }
}

/// The environment of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process;

impl Environment for Process {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn variables(&self) -> Vec<(String, String)> {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn cores(&self) -> usize {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    }
}

/// The environment of this process, for what connects to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offline;

impl Environment for Offline {
    fn variable(&self, name: &str) -> Option<String> {
        Process.variable(name)
    }

    fn variables(&self) -> Vec<(String, String)> {
        Process.variables()
    }

    fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        Process.read_file(path)
    }

    fn cores(&self) -> usize {
        Process.cores()
    }

    fn connects(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
