//! The test's own database server: its programs, its user, its folder.
//!
//! Database servers refuse to run as root. If the test is root, they run as their package's user, in a folder that this
//! user can reach: below the system's temporary folder, and removed when the server is dropped.

use std::ffi::CString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use tempfile::TempDir;

use crate::kafka;
use crate::until::within;

/// How long a server may take to respond on a busy machine.
const START_WAIT: Duration = Duration::from_secs(60);

/// A server's user and folder.
pub struct Home {
    folder: TempDir,
    /// User and group; `None` if the test is not root.
    user: Option<(u32, u32)>,
}

impl Home {
    /// A folder, whose name begins with `prefix`, for a server that runs as the first of these users that exists.
    pub fn new(prefix: &str, users: &[&str]) -> Home {
        let folder = tempfile::Builder::new().prefix(prefix).tempdir().expect("a temporary folder");
        // SAFETY: a plain system call without arguments.
        let user = (unsafe { libc::geteuid() } == 0)
            .then(|| users.iter().find_map(|name| look_up(name)).unwrap_or_else(|| panic!("none of {users:?} exists")));
        if let Some((user, group)) = user {
            std::os::unix::fs::chown(folder.path(), Some(user), Some(group)).expect("root may give a folder away");
        }
        Home { folder, user }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A command that runs as the server's user, in the server's folder.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder()).stdin(Stdio::null());
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }

    /// Runs a command that prepares the folder.
    pub fn prepare(&self, mut command: Command) {
        let done = command.output().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        assert!(
            done.status.success(),
            "{command:?}: {}{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        );
    }
}

fn look_up(name: &str) -> Option<(u32, u32)> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _gate = ONE_AT_A_TIME.lock().expect("nobody panics with it");
    let name = CString::new(name).expect("names have no zero byte");
    // SAFETY: the result, which the next call overwrites, is read before the gate opens.
    unsafe { libc::getpwnam(name.as_ptr()).as_ref() }.map(|entry| (entry.pw_uid, entry.pw_gid))
}

/// A running server. Killed when dropped; its folder is removed with its home.
pub struct Server {
    child: Child,
}

impl Server {
    /// Starts it and waits until `responds` returns true.
    pub fn start(name: &str, mut command: Command, mut responds: impl FnMut() -> bool) -> Server {
        let log = kafka::run_folder().join(format!("{name}.log"));
        let file = File::create(&log).expect("the run's folder is writable");
        command.stdout(file.try_clone().expect("an open file")).stderr(file);
        let mut child = kafka::spawn(command).unwrap_or_else(|e| panic!("cannot start {name}: {e}"));
        within(START_WAIT, &format!("{name} to respond, see {}", log.display()), || {
            let ended = child.try_wait().expect("it is our child");
            assert!(ended.is_none(), "{name} ended: {ended:?}, see {}", log.display());
            responds().then_some(())
        });
        Server { child }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of a program: on `PATH`, or in one of these folders, which may contain a star.
///
/// # Panics
/// With what to install, if it is not found.
pub fn program(name: &str, folders: &[&str], package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    for folder in folders {
        match folder.split_once("/*") {
            None => places.push(folder.into()),
            Some((parent, rest)) => {
                let found = std::fs::read_dir(parent).into_iter().flatten().flatten();
                places.extend(found.map(|entry| entry.path().join(rest.trim_start_matches('/'))));
            }
        }
    }
    let found = places.iter().map(|place| place.join(name)).find(|place| place.is_file());
    found.unwrap_or_else(|| panic!("these tests need {name}: `scripts/setup.sh cdc` installs it ({package})"))
}
