//! Reports disks that do not respond: a thread that waits for a disk cannot report that itself.

use std::time::Duration;

use crate::observe::Health;
use crate::state::{self, Stall};

/// The interval between log lines about a disk that still does not respond.
const LOG_INTERVAL: Duration = Duration::from_secs(30);
/// The disk counts as responding once no call has stalled for this long: the next call may take just as long.
const CALM_MIN: Duration = Duration::from_secs(15);

/// The state of the disks.
#[derive(Default)]
pub struct Disks {
    /// When a call was last seen to stall, and when that was last logged; `None` while disks respond.
    stalled: Option<(Duration, Duration)>,
}

impl Disks {
    /// Checks whether a disk call has been running for a long time; `now` is monotonic time.
    pub fn check(&mut self, health: &Health, now: Duration) {
        self.record(state::longest_stall(), health, now);
    }

    fn record(&mut self, stall: Option<Stall>, health: &Health, now: Duration) {
        match (stall, &mut self.stalled) {
            (None, None) => {}
            (None, Some((seen_at, _))) => {
                if now.saturating_sub(*seen_at) >= CALM_MIN {
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
            (Some(stall), Some((seen_at, logged_at))) => {
                *seen_at = now;
                if now.saturating_sub(*logged_at) >= LOG_INTERVAL {
                    *logged_at = now;
                    log(&stall);
                }
            }
        }
    }
}

fn log(stall: &Stall) {
    tracing::warn!(
        folder = %stall.path.display(),
        doing = stall.operation,
        waited_s = stall.duration.as_secs(),
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
        let mut record = |at: u64, stalls: bool| {
            let stall = Stall { path: PathBuf::from("store"), operation: "flush", duration: Duration::from_secs(6) };
            disks.record(stalls.then_some(stall), &health, Duration::from_secs(at));
            health.ready().iter().all(|check| check.ok)
        };
        assert!(record(100, false));
        // One call after another stalls: in between, no call has been running for long.
        for at in (106..200).step_by(6) {
            assert!(!record(at, true) && !record(at + 1, false));
        }
        assert!(!record(210, false) && record(220, false));
        assert!(!record(221, true), "the disk stalls again");
    }
}
