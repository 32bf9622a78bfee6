//! One line for each scenario on the console; everything else that scenarios, the judge and panics print goes to a
//! file, which is shown if the scenario fails.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

use crate::kafka::run_folder;

/// How many lines of a failed scenario's file are shown.
const LINES_SHOWN: usize = 80;

/// Standard output and standard error during a scenario. Restored when dropped.
pub struct Console {
    /// The original standard output.
    output: File,
    /// The original standard error.
    error: OwnedFd,
    log: PathBuf,
}

impl Console {
    /// Redirects everything printed to the scenario's file.
    pub fn begin(name: &str) -> Console {
        let log = run_folder().join(format!("{name}.log"));
        let file = File::create(&log).expect("the run's folder is writable");
        let _ = io::stdout().flush();
        let (output, error) = (copy_of(libc::STDOUT_FILENO), copy_of(libc::STDERR_FILENO));
        lead(libc::STDOUT_FILENO, &file);
        lead(libc::STDERR_FILENO, &file);
        Console { output: File::from(output), error, log }
    }

    /// Prints to the console.
    pub fn say(&mut self, text: &str) {
        // A closed console does not end the run.
        let _ = self.output.write_all(text.as_bytes());
    }

    /// Shows the end of what the scenario has printed.
    pub fn show(&mut self) {
        let _ = io::stdout().flush();
        let said = fs::read(&self.log).expect("it was just written");
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = said.lines().collect();
        let shown = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n    ");
        self.say(&format!("    {shown}\n    all of it: {}\n", self.log.display()));
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = io::stdout().flush();
        lead(libc::STDOUT_FILENO, &self.output);
        lead(libc::STDERR_FILENO, &self.error);
    }
}

fn copy_of(number: i32) -> OwnedFd {
    // SAFETY: a plain system call, which fails if the number is not open; a process under test inherits no copy.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    assert!(copy >= 0, "no copy of descriptor {number}: {}", io::Error::last_os_error());
    // SAFETY: it was just opened, and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(copy) }
}

fn lead(number: i32, to: &impl AsRawFd) {
    // SAFETY: a plain system call on two open descriptors.
    let done = unsafe { libc::dup2(to.as_raw_fd(), number) };
    assert!(done >= 0, "descriptor {number} cannot be redirected: {}", io::Error::last_os_error());
}
