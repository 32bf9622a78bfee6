//! The built program through its command line: what a person types, what it prints to which stream, and its exit code.
//! Needs nothing but this machine.

mod callers;
mod calls;
mod captures;
mod cases;
mod check;
mod demo;
mod deploy;
mod exit;
mod help;
mod hints;
mod infer;
mod job;
mod messages;
mod online;
mod refusals;
mod replay;
mod run;
mod schemas;
mod secrets;
mod sink;
mod terminal;
mod test;
mod times;
mod unreached;
mod warnings;

use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use ratchet_testkit::{screen, secrets as planted, until};
use tempfile::TempDir;

/// A topology that has no mistakes and no warnings.
const PAYMENTS: &str = "\
name: payments
input: {topics: [payments]}
identity: [value.order_id, value.operation]
version: {of: value.version, as: integer}
output: {topic: payments.unique}
partitioned_by_identity: true
";

/// A folder with files, in which the program runs.
struct Room {
    folder: TempDir,
}

impl Room {
    /// A room with [`PAYMENTS`] as `payments.yaml`.
    fn new() -> Self {
        let room = Self { folder: tempfile::tempdir().unwrap() };
        room.write("payments.yaml", PAYMENTS);
        room
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The program with these words, split at spaces, in this room.
    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratchet"));
        command.current_dir(self.path()).args(words.split_whitespace());
        command
    }

    /// Runs the program with these words.
    fn run(&self, words: &str) -> Ran {
        Ran::from(self.command(words).output().unwrap())
    }

    /// The same with this on standard input.
    fn run_with(&self, words: &str, input: impl Into<Vec<u8>>) -> Ran {
        Ran::from(self.command(words).write_stdin(input).output().unwrap())
    }
}

/// The result of a run.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Without the whitespace and bars that wrap lines for people, even within a name.
fn unwrapped(said: &str) -> String {
    said.chars().filter(|c| !c.is_whitespace() && *c != '│').collect()
}

impl Ran {
    /// Asserts this exit code.
    #[track_caller]
    fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Asserts that all of this is on standard error, whatever the line breaks.
    #[track_caller]
    fn said(self, needles: &[&str]) -> Self {
        let stderr = unwrapped(&self.stderr);
        for needle in needles {
            assert!(stderr.contains(&unwrapped(needle)), "{needle:?} is missing in\n{}", self.stderr);
        }
        self
    }

    /// Asserts that these words are not on standard error.
    #[track_caller]
    fn never_said(self, words: &str) -> Self {
        assert!(!unwrapped(&self.stderr).contains(&unwrapped(words)), "{words:?} is in\n{}", self.stderr);
        self
    }

    /// Asserts exactly these lines on standard output.
    #[track_caller]
    fn wrote(self, lines: &[&str]) -> Self {
        assert_eq!(self.stdout.lines().collect::<Vec<_>>(), lines, "{}", self.stderr);
        self
    }

    /// Asserts that standard error is empty.
    #[track_caller]
    fn quietly(self) -> Self {
        assert_eq!(self.stderr, "");
        self
    }
}
