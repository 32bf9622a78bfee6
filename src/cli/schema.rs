//! `ratchet schema`: writes the JSON Schema by which editors complete and check topologies and proxies' files.

use std::io::{self, Write};

use super::Failure;
use crate::{proxy, topology};

const EXAMPLES: &str = "\
Examples:
  ratchet schema > topology.schema.json
  ratchet schema proxy > proxy.schema.json

  # then, as a topology's first line, for editors with a YAML language server
  # yaml-language-server: $schema=topology.schema.json";

/// Options of `ratchet schema`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Of which files
    #[arg(value_enum, default_value_t, value_name = "KIND")]
    kind: Kind,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Kind {
    #[default]
    Topology,
    Proxy,
}

/// Writes a JSON Schema to standard output.
pub fn run(args: &Args) -> Result<(), Failure> {
    let text = match args.kind {
        Kind::Topology => topology::schema::text(),
        Kind::Proxy => proxy::schema::text(),
    };
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| Failure::output(&error))
}
