//! The wall clock of one host, which may be wrong: the process is given one that a file says by how much it is off. See
//! `clock.c`, which the C compiler makes a library of that is loaded before all others.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::job::Job;

/// A wall clock. Processes that have it keep to it, whenever it is set.
pub struct WallClock {
    library: PathBuf,
    file: PathBuf,
}

impl WallClock {
    /// One that is off by so many milliseconds.
    pub fn off_by(job: &Job, ms: i64) -> Self {
        let (library, file) = (job.path("clock.so"), job.path("clock"));
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library);
        let made = compiler.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/clock.c")).status();
        assert!(made.expect("there is a C compiler").success(), "the clock is not compiled");
        let clock = Self { library, file };
        clock.set(ms);
        clock
    }

    /// Sets it: so many milliseconds from the right time. Written in place: processes have it mapped.
    pub fn set(&self, ms: i64) {
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().create(true).write(true).truncate(false).open(&self.file);
        file.and_then(|file| file.write_all_at(&ms.to_ne_bytes(), 0)).expect("the job's folder is writable");
    }

    /// The variables that give it to a process.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let text = |path: &PathBuf| path.to_str().expect("a path of the tests' own").to_owned();
        vec![("LD_PRELOAD", text(&self.library)), ("WRONG_CLOCK", text(&self.file))]
    }
}
