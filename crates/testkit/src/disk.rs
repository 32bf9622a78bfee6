//! A bad disk for one process and its children: each write below a folder, and each sync there, takes as long as a file
//! says, no file there can grow, or no sync ends or succeeds. See `disk.c`, which the C compiler turns into a library that is preloaded.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A disk that can be slow or full. It can be set while processes use it.
pub struct Disk {
    library: PathBuf,
    file: PathBuf,
    folder: PathBuf,
}

impl Disk {
    /// A disk for everything below `folder`, at first a good one. Its own files are in `own`.
    pub fn of(own: &Path, folder: &Path) -> Self {
        let (library, file) = (own.join("disk.so"), own.join("disk"));
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library);
        let compiled = compiler.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/disk.c")).status();
        assert!(compiled.expect("there is a C compiler").success(), "the disk was not compiled");
        let disk = Self { library, file, folder: folder.to_owned() };
        disk.pause(Duration::ZERO);
        disk.fill(false);
        disk.hold_syncs(false);
        disk.fail_syncs(false);
        disk
    }

    /// Makes each write take this long from now on.
    pub fn pause(&self, pause: Duration) {
        self.set(0, pause.as_millis() as i64);
    }

    /// Whether it is full from now on.
    pub fn fill(&self, is_full: bool) {
        self.set(8, i64::from(is_full));
    }

    /// Whether no sync ends from now on, until this is taken back.
    pub fn hold_syncs(&self, holds: bool) {
        self.set(16, i64::from(holds));
    }

    /// Whether each sync fails from now on.
    pub fn fail_syncs(&self, fails: bool) {
        self.set(24, if fails { i64::from(libc::EIO) } else { 0 });
    }

    /// Has each sync fail from now on because there is no room.
    pub fn refuse_syncs(&self) {
        self.set(24, i64::from(libc::ENOSPC));
    }

    /// Written in place: processes have it mapped.
    fn set(&self, at: u64, value: i64) {
        let file = fs::OpenOptions::new().create(true).write(true).truncate(false).open(&self.file);
        file.and_then(|file| file.write_all_at(&value.to_ne_bytes(), at)).expect("the disk's own folder is writable");
    }

    /// The environment variables that make a process use it.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let text = |path: &PathBuf| path.to_str().expect("a path of the tests' own").to_owned();
        vec![("LD_PRELOAD", text(&self.library)), ("BAD_DISK", text(&self.file)), ("BAD_FOLDER", text(&self.folder))]
    }
}
