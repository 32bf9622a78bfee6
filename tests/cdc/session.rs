//! A session with a database, through its own command line client: SQL in, lines out.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::kafka;
use crate::until::DEADLINE;

/// An open session. Ends when dropped.
pub struct Session {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
    errors: PathBuf,
    runs: u64,
}

impl Session {
    /// Starts a client that reads SQL from its standard input, prints bare lines at once, and ends at the first
    /// error. Its errors go to a file of this name.
    pub fn open(mut command: Command, name: &str) -> Session {
        let errors = kafka::run_folder().join(format!("{name}.log"));
        let file = File::create(&errors).expect("the run's folder is writable");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        let mut child = kafka::spawn(command).unwrap_or_else(|e| panic!("cannot start {name}: {e}"));
        let input = child.stdin.take().expect("it was piped");
        let lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
        let (sender, output) = channel();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Session { child, input, output, errors, runs: 0 }
    }

    /// Runs statements, each ended by a semicolon, and returns the lines that they print.
    #[track_caller]
    pub fn run(&mut self, sql: &str) -> Vec<String> {
        self.begin(sql);
        self.finish(sql)
    }

    /// Sends statements. [`Session::finish`] has to be called next.
    pub fn begin(&mut self, sql: &str) {
        self.runs += 1;
        // If this fails, the client has ended, and no line comes.
        let _ = writeln!(self.input, "{sql}\nselect '{}';", self.end()).and_then(|()| self.input.flush());
    }

    /// Waits for the lines that the last statements print.
    #[track_caller]
    pub fn finish(&mut self, sql: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.output.recv_timeout(DEADLINE) {
                Ok(line) if line == self.end() => return lines,
                Ok(line) => lines.push(line),
                Err(_) => {
                    let errors = std::fs::read_to_string(&self.errors).unwrap_or_default();
                    panic!("no end of {sql}\n{errors}")
                }
            }
        }
    }

    fn end(&self) -> String {
        format!("end of run {}", self.runs)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
