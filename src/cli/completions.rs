//! `ratchet completions`: writes a script that completes ratchet's commands and options in a shell.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, Failure};

const EXAMPLES: &str = "\
Examples:
  # for this shell only
  source <(ratchet completions bash)

  # for every bash of this user
  ratchet completions bash > ~/.local/share/bash-completion/completions/ratchet

  # zsh: into a folder of $fpath
  ratchet completions zsh > ~/.zfunc/_ratchet

  # fish
  ratchet completions fish > ~/.config/fish/completions/ratchet.fish";

/// Options of `ratchet completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The shell to write completions for
    shell: Shell,
}

/// Writes the completions to standard output.
pub fn run(args: &Args) -> Result<(), Failure> {
    // into memory first: clap_complete panics if it cannot write, as to a closed pipe
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ratchet", &mut script);
    let mut stdout = io::stdout().lock();
    stdout.write_all(&script).and_then(|()| stdout.flush()).map_err(|error| Failure::output(&error))
}
