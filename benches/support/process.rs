//! What this process and its threads have used, for the benches that are no criterion's.

use std::mem::MaybeUninit;
use std::time::Duration;

/// A line of `/proc/self/status`, in MiB.
pub fn status_mib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel writes it");
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().expect("a number of kB") / 1024
}

/// The CPU time of all threads of this process.
pub fn cpu() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// The CPU time of this thread.
#[allow(dead_code, reason = "each bench uses its own part of the support")]
pub fn thread_cpu() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock(id: libc::clockid_t) -> Duration {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the call fills the struct, or says that it has not.
    let time = unsafe {
        assert_eq!(libc::clock_gettime(id, time.as_mut_ptr()), 0, "Linux has this clock");
        time.assume_init()
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
