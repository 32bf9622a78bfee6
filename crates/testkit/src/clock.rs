//! A host's wall clock, which may be wrong: how far off it is for a process is read from a file. See `clock.c`, which
//! the C compiler turns into a library that is preloaded.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::job::Job;

/// A wall clock. It can be set while processes use it.
pub struct WallClock {
    library: PathBuf,
    file: PathBuf,
}

impl WallClock {
    /// A clock that is off by this many milliseconds.
    pub fn off_by(job: &Job, ms: i64) -> Self {
        let (library, file) = (job.path("clock.so"), job.path("clock"));
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library);
        let compiled = compiler.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/clock.c")).status();
        assert!(compiled.expect("there is a C compiler").success(), "the clock was not compiled");
        let clock = Self { library, file };
        clock.set(ms);
        clock
    }

    /// Sets it this many milliseconds off the right time. Written in place: processes have it mapped.
    pub fn set(&self, ms: i64) {
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().create(true).write(true).truncate(false).open(&self.file);
        file.and_then(|file| file.write_all_at(&ms.to_ne_bytes(), 0)).expect("the job's folder is writable");
    }

    /// The environment variables that make a process use it.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let text = |path: &PathBuf| path.to_str().expect("a path of the tests' own").to_owned();
        vec![("LD_PRELOAD", text(&self.library)), ("WRONG_CLOCK", text(&self.file))]
    }
}
