//! A disk that stalls, for one process: each write to its state folder, and each call that brings one to the disk, takes as
//! long as a file says. See `disk.c`, which the C compiler makes a library of that is loaded before all others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::job::Job;

/// A slow disk. Processes that have it keep to it, whenever it is set.
pub struct SlowDisk {
    library: PathBuf,
    file: PathBuf,
    folder: PathBuf,
}

impl SlowDisk {
    /// One that is as quick as ever, for what is below `folder`.
    pub fn of(job: &Job, folder: &Path) -> Self {
        let (library, file) = (job.path("disk.so"), job.path("disk"));
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library);
        let made = compiler.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/disk.c")).status();
        assert!(made.expect("there is a C compiler").success(), "the disk is not compiled");
        let disk = Self { library, file, folder: folder.to_owned() };
        disk.set(Duration::ZERO);
        disk
    }

    /// Lets each write take so long from now on. Written in place: processes have it mapped.
    pub fn set(&self, pause: Duration) {
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().create(true).write(true).truncate(false).open(&self.file);
        let ms = pause.as_millis() as i64;
        file.and_then(|file| file.write_all_at(&ms.to_ne_bytes(), 0)).expect("the job's folder is writable");
    }

    /// The variables that give it to a process.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let text = |path: &PathBuf| path.to_str().expect("a path of the tests' own").to_owned();
        vec![("LD_PRELOAD", text(&self.library)), ("SLOW_DISK", text(&self.file)), ("SLOW_FOLDER", text(&self.folder))]
    }
}
