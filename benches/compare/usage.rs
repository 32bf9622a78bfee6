//! The resource usage of a process, with all its threads and children, read from /proc.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// What a process and its descendants have used since they started. Subtract two for the usage in between.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// User and system time; its resolution is 10 ms.
    pub cpu: Duration,
    /// Peak resident memory, summed over the processes.
    pub peak_bytes: u64,
    /// Resident memory now.
    pub resident_bytes: u64,
    /// Bytes written to disk, below the page cache.
    pub written_bytes: u64,
}

impl Usage {
    /// The usage of a process and its descendants; all zero if it is gone.
    pub fn of(pid: u32) -> Usage {
        let mut sum = Usage::default();
        for pid in family(pid) {
            let one = Usage::alone(pid);
            sum.cpu += one.cpu;
            sum.peak_bytes += one.peak_bytes;
            sum.resident_bytes += one.resident_bytes;
            sum.written_bytes += one.written_bytes;
        }
        sum
    }

    /// The usage of a process without its descendants.
    pub fn alone(pid: u32) -> Usage {
        let status = table(pid, "status");
        let kilobytes = |name: &str| {
            let text = status.get(name).map_or("", String::as_str);
            text.trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024
        };
        Usage {
            cpu: cpu(pid).unwrap_or_default(),
            peak_bytes: kilobytes("VmHWM"),
            resident_bytes: kilobytes("VmRSS"),
            written_bytes: table(pid, "io").get("write_bytes").and_then(|text| text.parse().ok()).unwrap_or(0),
        }
    }

    /// The CPU time since `before`.
    pub fn cpu_since(&self, before: &Usage) -> Duration {
        self.cpu.saturating_sub(before.cpu)
    }

    /// The bytes written to the disk since `before`.
    pub fn written_since(&self, before: &Usage) -> u64 {
        self.written_bytes.saturating_sub(before.written_bytes)
    }
}

/// User and system time of a process, and of its children that have ended and were waited for.
fn cpu(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything; utime is the 14th field, the first one after the name the 3rd.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    // SAFETY: a plain call of the C library.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Some(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// A file of `name: value` lines.
fn table(pid: u32, file: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let line = |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    text.lines().filter_map(line).collect()
}

/// A process and all its descendants.
fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let mut at = 0;
    while let Some(&parent) = family.get(at) {
        let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            family.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        at += 1;
    }
    family
}
