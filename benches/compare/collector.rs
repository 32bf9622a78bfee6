//! How long Java's garbage collector stops a process, by the JDK's `jstat`.

use std::process::Command;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// What the collector's pauses came to while a process was watched.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Pauses {
    /// How many there were.
    pub count: u64,
    /// What they took, in seconds.
    pub paused_s: f64,
    /// For how long the process was watched, in seconds.
    pub watched_s: f64,
}

impl Pauses {
    /// Of several watches.
    pub fn sum(all: impl IntoIterator<Item = Pauses>) -> Pauses {
        all.into_iter().fold(Pauses::default(), |sum, one| Pauses {
            count: sum.count + one.count,
            paused_s: sum.paused_s + one.paused_s,
            watched_s: sum.watched_s + one.watched_s,
        })
    }
}

/// A process that is being watched.
pub struct Watch {
    pid: u32,
    began: Instant,
    before: Counters,
}

impl Watch {
    /// Begins to watch a process of Java; `None` where there is no `jstat`, which is part of a JDK only.
    pub fn start(pid: u32) -> Option<Watch> {
        let before = Counters::of(pid)?;
        Some(Watch { pid, began: Instant::now(), before })
    }

    /// The pauses since the start.
    pub fn end(self) -> Option<Pauses> {
        let watched_s = self.began.elapsed().as_secs_f64();
        let now = Counters::of(self.pid)?;
        Some(Pauses {
            count: now.count.saturating_sub(self.before.count),
            paused_s: (now.paused_s - self.before.paused_s).max(0.0),
            watched_s,
        })
    }
}

/// The pauses since the process started.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counters {
    count: u64,
    paused_s: f64,
}

impl Counters {
    fn of(pid: u32) -> Option<Counters> {
        // In another language than C a comma may stand in the figures.
        let output = Command::new("jstat").args(["-gc", &pid.to_string()]).env("LC_ALL", "C").output().ok()?;
        Counters::read(&String::from_utf8_lossy(&output.stdout))
    }

    /// Reads a line of names and a line of figures; those of events that the collector does not have are dashes.
    fn read(table: &str) -> Option<Counters> {
        let mut lines = table.lines();
        let (names, figures) = (lines.next()?, lines.next()?);
        let columns: Vec<_> = names.split_whitespace().zip(figures.split_whitespace()).collect();
        let of = |wanted| columns.iter().find(|(name, _)| *name == wanted)?.1.parse::<f64>().ok();
        // Young and full collections, and the pauses of concurrent ones.
        let counts = [of("YGC")?, of("FGC").unwrap_or(0.0), of("CGC").unwrap_or(0.0)];
        Some(Counters { count: counts.iter().sum::<f64>() as u64, paused_s: of("GCT")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_of_all_kinds_are_counted() {
        let names = "    S0C         S1C      YGC     YGCT     FGC    FGCT     CGC    CGCT       GCT   ";
        let some =
            format!("{names}\n     0.0      4096.0     31     0.400     1     0.113     4     0.012     0.525\n");
        assert_eq!(Counters::read(&some), Some(Counters { count: 36, paused_s: 0.525 }));
        let parallel =
            format!("{names}\n     0.0      4096.0     31     0.400     1     0.113     -         -     0.513\n");
        assert_eq!(Counters::read(&parallel), Some(Counters { count: 32, paused_s: 0.513 }));
        assert_eq!(Counters::read("4711 not found\n"), None);
    }
}
