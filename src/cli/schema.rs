//! `ratchet schema`: writes the JSON Schema by which editors complete and check topologies.

use std::io::{self, Write};

use super::Failure;
use crate::topology::schema;

const EXAMPLES: &str = "\
Examples:
  ratchet schema > topology.schema.json

  # then, as a topology's first line, for editors with a YAML language server
  # yaml-language-server: $schema=topology.schema.json";

/// Options of `ratchet schema`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {}

/// Writes the JSON Schema of topologies to standard output.
pub fn run(_args: &Args) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(schema::text().as_bytes()).and_then(|()| stdout.flush()).map_err(|error| Failure::output(&error))
}
