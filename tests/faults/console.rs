//! One line a scenario for those who wait, and everything else that is said, by the scenarios, the judge and panics,
//! into a file of the scenario's own, which is shown where it failed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

use crate::kafka::run_folder;

/// How much of a failed scenario's file is shown.
const LINES_SHOWN: usize = 80;

/// Standard output and standard error while a scenario is played. Dropped, they are what they were.
pub struct Console {
    /// Where standard output led.
    output: File,
    /// Where standard error led.
    error: OwnedFd,
    log: PathBuf,
}

impl Console {
    /// From now on all that is printed goes to the scenario's file.
    pub fn begin(name: &str) -> Console {
        let log = run_folder().join(format!("{name}.log"));
        let file = File::create(&log).expect("the run's folder is writable");
        let _ = io::stdout().flush();
        let (output, error) = (copy_of(libc::STDOUT_FILENO), copy_of(libc::STDERR_FILENO));
        lead(libc::STDOUT_FILENO, &file);
        lead(libc::STDERR_FILENO, &file);
        Console { output: File::from(output), error, log }
    }

    /// Prints to those who wait.
    pub fn say(&mut self, text: &str) {
        // Who does not listen any more does not end the run.
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
    // SAFETY: a plain system call, which fails where the number is not open; a process under test keeps no copy.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    assert!(copy >= 0, "no copy of descriptor {number}: {}", io::Error::last_os_error());
    // SAFETY: it was just opened, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(copy) }
}

fn lead(number: i32, to: &impl AsRawFd) {
    // SAFETY: a plain system call on two descriptors that are open.
    let done = unsafe { libc::dup2(to.as_raw_fd(), number) };
    assert!(done >= 0, "descriptor {number} cannot be led elsewhere: {}", io::Error::last_os_error());
}
