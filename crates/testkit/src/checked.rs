//! `ratchet check --online` of a job, as a person runs it.

use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::built;
use crate::job::Job;

/// The result of a check.
pub struct Checked {
    status: ExitStatus,
    said: String,
    took: Duration,
}

/// How long the client waits for a response that does not come.
const RESPONSE_WAIT: Duration = Duration::from_secs(15);

/// Without the whitespace and bars that wrap lines for people, even within a name.
fn unwrapped(said: &str) -> String {
    said.chars().filter(|c| !c.is_whitespace() && *c != '│').collect()
}

impl Checked {
    #[track_caller]
    pub fn says(&self, code: i32, words: &[&str]) -> &Self {
        assert_eq!(self.status.code(), Some(code), "{}: {}", self.status, self.said);
        for word in words {
            assert!(unwrapped(&self.said).contains(&unwrapped(word)), "no {word:?} in {}", self.said);
        }
        self
    }

    #[track_caller]
    pub fn without_waiting(&self) -> &Self {
        assert!(self.took < RESPONSE_WAIT, "it took {:?}: {}", self.took, self.said);
        self
    }

    #[track_caller]
    pub fn says_nothing_of(&self, word: &str) {
        assert!(!unwrapped(&self.said).contains(&unwrapped(word)), "{}", self.said);
    }
}

pub fn check_online(job: &Job) -> Checked {
    let config = job.write_config("check", &job.path("state-check"));
    let mut command = Command::new(built::ratchet());
    command.arg("check").arg(job.write_topology()).arg("--config").arg(config).arg("--online");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RATCHET_")) {
        command.env_remove(name);
    }
    let begun = Instant::now();
    let output = command.env("KAFKA_PASSWORD", "limited-secret").output().expect("the binary is there");
    assert!(output.stdout.is_empty(), "standard output is for data");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Checked { status: output.status, said, took: begun.elapsed() }
}
