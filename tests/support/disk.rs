//! A stalling disk for one process: each write to its state folder, and each sync, takes as long as a file says. See
//! `disk.c`, which the C compiler turns into a library that is preloaded.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::job::Job;

/// A slow disk. Its pause can be set while processes use it.
pub struct SlowDisk {
    library: PathBuf,
    file: PathBuf,
    folder: PathBuf,
}

impl SlowDisk {
    /// A disk for everything below `folder`, at first without a pause.
    pub fn of(job: &Job, folder: &Path) -> Self {
        let (library, file) = (job.path("disk.so"), job.path("disk"));
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library);
        let compiled = compiler.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/disk.c")).status();
        assert!(compiled.expect("there is a C compiler").success(), "the disk was not compiled");
        let disk = Self { library, file, folder: folder.to_owned() };
        disk.set(Duration::ZERO);
        disk
    }

    /// Makes each write take this long from now on. Written in place: processes have it mapped.
    pub fn set(&self, pause: Duration) {
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().create(true).write(true).truncate(false).open(&self.file);
        let ms = pause.as_millis() as i64;
        file.and_then(|file| file.write_all_at(&ms.to_ne_bytes(), 0)).expect("the job's folder is writable");
    }

    /// The environment variables that make a process use it.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let text = |path: &PathBuf| path.to_str().expect("a path of the tests' own").to_owned();
        vec![("LD_PRELOAD", text(&self.library)), ("SLOW_DISK", text(&self.file)), ("SLOW_FOLDER", text(&self.folder))]
    }
}
