//! Reports disks that do not respond: a thread that waits for one cannot say so itself.

use std::time::Duration;

use crate::observe::Health;
use crate::state::{self, Stall};

/// How often a disk that still does not respond is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(30);
/// How long no call may have stalled before the disk counts as responding: the next call may take just as long.
const CALM_MIN: Duration = Duration::from_secs(15);

/// What is known about the disks.
#[derive(Default)]
pub struct Disks {
    /// When a call was last seen to stall, and when that was last logged; `None` while disks respond.
    stalled: Option<(Duration, Duration)>,
}

impl Disks {
    /// Checks whether a disk call has been running for long; `now` is monotonic time.
    pub fn check(&mut self, health: &Health, now: Duration) {
        self.note(state::longest_stall(), health, now);
    }

    fn note(&mut self, stall: Option<Stall>, health: &Health, now: Duration) {
        match (stall, &mut self.stalled) {
            (None, None) => {}
            (None, Some((seen, _))) => {
                if now.saturating_sub(*seen) >= CALM_MIN {
                    self.stalled = None;
                    health.disk_stalls(false);
                    tracing::info!("the disk answers again");
                }
            }
            (Some(stall), None) => {
                self.stalled = Some((now, now));
                health.disk_stalls(true);
                log(&stall);
            }
            (Some(stall), Some((seen, logged))) => {
                *seen = now;
                if now.saturating_sub(*logged) >= LOG_INTERVAL {
                    *logged = now;
                    log(&stall);
                }
            }
        }
    }
}

fn log(stall: &Stall) {
    tracing::warn!(
        folder = %stall.path.display(),
        doing = stall.what,
        waited_s = stall.lasts.as_secs(),
        "a disk does not answer: a lane waits for it, with all of its tasks; once that has lasted for \
         max.poll.interval.ms, its partitions go to others"
    );
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn disk_responds_again_once_no_call_has_stalled_for_a_while() {
        let (mut disks, health) = (Disks::default(), Health::new());
        health.lane_joined("payments", 0, true);
        let mut note = |at: u64, stalls: bool| {
            let stall = Stall { path: PathBuf::from("store"), what: "flush", lasts: Duration::from_secs(6) };
            disks.note(stalls.then_some(stall), &health, Duration::from_secs(at));
            health.ready().iter().all(|check| check.ok)
        };
        assert!(note(100, false));
        // One call after another: in between, none has been running for long.
        for at in (106..200).step_by(6) {
            assert!(!note(at, true) && !note(at + 1, false));
        }
        assert!(!note(210, false) && note(220, false));
        assert!(!note(221, true), "and stalls again");
    }
}
