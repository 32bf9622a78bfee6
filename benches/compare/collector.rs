//! How long Java's garbage collector stops a process, by the JDK's `jstat`. Where that does not answer, the run of a
//! contender that asked fails.

use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::failure::{Context as _, Outcome};

/// The collector's pauses since a process of Java started. Subtract two for those in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pauses {
    /// How many there were.
    pub count: u64,
    /// What they took, in seconds.
    pub paused_s: f64,
    /// How long the process has run, in seconds.
    pub run_s: f64,
}

impl Pauses {
    /// Those of a process.
    pub fn of(pid: u32) -> Outcome<Pauses> {
        // In another language than C a comma may stand in the figures.
        let asked = Command::new("jstat").args(["-gc", "-t", &pid.to_string()]).env("LC_ALL", "C").output();
        let output = asked.context("jstat, which is part of a JDK")?;
        let table = String::from_utf8_lossy(&output.stdout);
        Pauses::read(&table).context(format!("jstat said: {table}{}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Those since `before`.
    pub fn since(&self, before: &Pauses) -> Pauses {
        Pauses {
            count: self.count.saturating_sub(before.count),
            paused_s: self.paused_s - before.paused_s,
            run_s: self.run_s - before.run_s,
        }
    }

    /// Those of several spans of time.
    pub fn sum(all: impl IntoIterator<Item = Pauses>) -> Pauses {
        all.into_iter().fold(Pauses::default(), |sum, one| Pauses {
            count: sum.count + one.count,
            paused_s: sum.paused_s + one.paused_s,
            run_s: sum.run_s + one.run_s,
        })
    }

    /// Reads a line of names and a line of figures; those of events that the collector does not have are dashes.
    fn read(table: &str) -> Option<Pauses> {
        let mut lines = table.lines();
        let (names, figures) = (lines.next()?, lines.next()?);
        let columns: Vec<_> = names.split_whitespace().zip(figures.split_whitespace()).collect();
        let of = |wanted| columns.iter().find(|(name, _)| *name == wanted)?.1.parse::<f64>().ok();
        // Young and full collections, and the pauses of concurrent ones.
        let counts = [of("YGC")?, of("FGC").unwrap_or(0.0), of("CGC").unwrap_or(0.0)];
        Some(Pauses { count: counts.iter().sum::<f64>() as u64, paused_s: of("GCT")?, run_s: of("Timestamp")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_of_all_kinds_are_counted() {
        let names = "Timestamp     S0C     S1C    YGC     YGCT     FGC    FGCT     CGC    CGCT       GCT   ";
        let all =
            format!("{names}\n     60.5     0.0  4096.0     31     0.400     1     0.113     4     0.012     0.525\n");
        let seen = Pauses::read(&all);
        assert_eq!(seen, Some(Pauses { count: 36, paused_s: 0.525, run_s: 60.5 }));
        let two =
            format!("{names}\n     60.5     0.0  4096.0     31     0.400     1     0.113     -         -     0.513\n");
        assert_eq!(Pauses::read(&two), Some(Pauses { count: 32, paused_s: 0.513, run_s: 60.5 }));
        assert_eq!(Pauses::read("4711 not found\n"), None);
    }

    #[test]
    fn pauses_in_between_are_the_difference() {
        let (before, after) =
            (Pauses { count: 3, paused_s: 0.25, run_s: 10.0 }, Pauses { count: 7, paused_s: 0.75, run_s: 30.0 });
        let between = Pauses { count: 4, paused_s: 0.5, run_s: 20.0 };
        assert_eq!(after.since(&before), between);
        assert_eq!(Pauses::sum([before, between]), after);
    }
}
