//! Processes that cannot outlive the test binary, and the folder of a run.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::install;

/// For what takes milliseconds, unless a thread waits for its disk.
const STOP_MAX: Duration = Duration::from_secs(60);
/// Of /proc/PID/status: stopped by a signal; and that, a zombie, dead.
const STOPPED: char = 'T';
const STOPPED_OR_ENDED: [char; 3] = [STOPPED, 'Z', 'X'];

/// Starts `command`. The kernel kills the process when this one ends, however it ends.
///
/// The death signal is tied to the *thread* that starts a process, and a test's thread ends with its test: so a single
/// thread that lives as long as this process starts them all.
pub fn spawn(command: Command) -> std::io::Result<Child> {
    type Request = (Command, Sender<std::io::Result<Child>>);
    static KEEPER: OnceLock<Sender<Request>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (sender, requests) = channel::<Request>();
        thread::spawn(move || {
            for (mut command, reply) in requests {
                let _ = reply.send(spawn_tied(&mut command));
            }
        });
        sender
    });
    let (reply, replies) = channel();
    keeper.send((command, reply)).expect("the keeper runs as long as the process");
    replies.recv().expect("the keeper replies to every request")
}

fn spawn_tied(command: &mut Command) -> std::io::Result<Child> {
    let parent = std::process::id();
    // SAFETY: between fork and exec only async-signal-safe calls are made, and nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // The parent may have died before the signal was set up.
            if libc::getppid() as u32 != parent {
                libc::_exit(1);
            }
            Ok(())
        });
    }
    command.spawn()
}

/// Sends `signal` to a process started by this one, which has not been waited for: so its number is still its own.
pub fn signal(child: &Child, signal: i32) {
    signal_by_number(child.id() as i32, signal).unwrap_or_else(|e| panic!("signal {signal} to {}: {e}", child.id()));
}

/// Sends `signal` to a process. After SIGSTOP it has stopped when this returns: the kernel only notes the signal, and on
/// a busy machine the process' threads go on for a while.
///
/// # Errors
/// It is gone, for one.
pub fn signal_by_number(process: i32, signal: i32) -> std::io::Result<()> {
    // SAFETY: plain system call.
    if unsafe { libc::kill(process, signal) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let start = Instant::now();
    while signal == libc::SIGSTOP && states(process).any(|state| !STOPPED_OR_ENDED.contains(&state)) {
        assert!(start.elapsed() < STOP_MAX, "{process} has not stopped in {STOP_MAX:?}");
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Whether a process has stopped, with all of its threads, and has not ended.
pub fn is_stopped(process: i32) -> bool {
    states(process).any(|state| state == STOPPED) && states(process).all(|state| STOPPED_OR_ENDED.contains(&state))
}

/// The state of each thread of a process, by its letter; none if it is gone.
fn states(process: i32) -> impl Iterator<Item = char> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let statuses = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    statuses.filter_map(|status| status.lines().find_map(|line| line.strip_prefix("State:\t"))?.chars().next())
}

/// This run's folder: the brokers' data and logs and whatever the tests put there. It is kept for inspection until the
/// next run starts.
pub fn run_folder() -> &'static Path {
    static FOLDER: OnceLock<(PathBuf, File)> = OnceLock::new();
    let (folder, _lock) = FOLDER.get_or_init(|| {
        let runs = install::folder().join("runs");
        fs::create_dir_all(&runs).unwrap_or_else(|e| panic!("cannot create {}: {e}", runs.display()));
        // No run may look between another's creation of its folder and of its lock.
        let gate = File::create(runs.join("gate.lock")).expect("the target folder is writable");
        gate.lock().expect("the target folder's file system has locks");
        remove_finished(&runs);
        let folder = runs.join(std::process::id().to_string());
        fs::create_dir_all(&folder).expect("the target folder is writable");
        let lock = File::create(folder.join("lock")).expect("the target folder is writable");
        lock.lock().expect("the target folder's file system has locks");
        (folder, lock)
    });
    folder
}

fn remove_finished(runs: &Path) {
    for entry in fs::read_dir(runs).expect("it was just created").flatten() {
        let Ok(lock) = File::open(entry.path().join("lock")) else { continue };
        if lock.try_lock().is_ok() {
            // A test may have made something in it unreadable on purpose; then it stays.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
