//! Named points at which a drill can kill or freeze the process, or make a thread panic.
//!
//! `RATCHET_CRASH_AT=POINT:COUNT` kills the process with SIGKILL when it passes POINT for the COUNT-th time, as a power
//! cut would: nothing is flushed. `POINT:COUNT:freeze` stops it there with SIGSTOP, until it receives SIGCONT.
//! `POINT:COUNT:panic` panics there, `POINT:COUNT:panics` every time from the COUNT-th on.
//! `RATCHET_CRASH_ON=TOPIC:PARTITION:OFFSET` panics whenever the record at that offset is about to be judged. The demo
//! and the recovery tests use these; without the variables a point costs one load and one branch.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a process that freezes after its sends waits for its other threads to deliver the records to the broker.
const BEFORE_FREEZING: Duration = Duration::from_secs(1);

/// Where a drill can kill or freeze the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A gate has left marks; none of the records that they are about has been sent.
    AfterGate,
    /// The sink has committed; nothing has been sent to Kafka.
    AfterSink,
    /// A transaction's records are sent, including changelog and position; it is not committed.
    AfterSends,
    /// Kafka has committed; the store has not been written.
    AfterCommit,
    /// The permits of calls are committed; none of these calls has been sent.
    AfterReservation,
    /// A call is about to be handed to the driver.
    BeforeSubmit,
    /// A call's attempt has ended; its outcome is not written.
    AfterAnswer,
    /// The outcome of a handler's step is committed; the handler has not continued.
    AfterStep,
    /// A command is carried out and acknowledged in a transaction that is not committed.
    AfterCommand,
    /// The transaction that acknowledged a command is committed, and the store is written.
    AfterAcknowledgement,
    /// Changelog records were read for a store that is being restored.
    DuringRestore,
    /// Some of the records that a restore has read are in the store.
    DuringLoad,
    /// During the store's write: another thread strikes as it starts.
    DuringStoreWrite,
    /// A store that cannot be built upon was set aside, and no store has replaced it.
    StoreSetAside,
    /// The rebuilt store is complete, on disk too; the one set aside still exists.
    BeforeAsideRemoved,
    /// A task is refused: the rebuilt store is gone, and the one set aside is not back in its place.
    BeforePutBack,
    /// A part of a changelog was rewritten.
    DuringRebuild,
}

impl Point {
    /// All points.
    pub const ALL: [Self; 17] = [
        Self::AfterGate,
        Self::AfterSink,
        Self::AfterSends,
        Self::AfterCommit,
        Self::AfterReservation,
        Self::BeforeSubmit,
        Self::AfterAnswer,
        Self::AfterStep,
        Self::AfterCommand,
        Self::AfterAcknowledgement,
        Self::DuringRestore,
        Self::DuringLoad,
        Self::DuringStoreWrite,
        Self::StoreSetAside,
        Self::BeforeAsideRemoved,
        Self::BeforePutBack,
        Self::DuringRebuild,
    ];

    /// Its name in `RATCHET_CRASH_AT`.
    pub fn name(self) -> &'static str {
        match self {
            Self::AfterGate => "after_gate",
            Self::AfterSink => "after_sink",
            Self::AfterSends => "after_sends",
            Self::AfterCommit => "after_commit",
            Self::AfterReservation => "after_reservation",
            Self::BeforeSubmit => "before_submit",
            Self::AfterAnswer => "after_answer",
            Self::AfterStep => "after_step",
            Self::AfterCommand => "after_command",
            Self::AfterAcknowledgement => "after_acknowledgement",
            Self::DuringRestore => "during_restore",
            Self::DuringLoad => "during_load",
            Self::DuringStoreWrite => "during_store_write",
            Self::StoreSetAside => "store_set_aside",
            Self::BeforeAsideRemoved => "before_aside_removed",
            Self::BeforePutBack => "before_put_back",
            Self::DuringRebuild => "during_rebuild",
        }
    }
}

/// What happens at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strike {
    Kill,
    Freeze,
    /// Panics once.
    Panic,
    /// Panics this time and every later time.
    Panics,
}

/// An armed drill.
struct Plan {
    point: Point,
    remaining: AtomicU64,
    strike: Strike,
}

/// A record that makes its thread panic.
#[derive(Debug, PartialEq, Eq)]
struct Poison {
    topic: String,
    partition: i32,
    offset: i64,
}

/// A parsed drill: it strikes when the point is reached for the `count`-th time.
#[derive(Debug, PartialEq, Eq)]
struct Drill {
    point: Point,
    count: u64,
    strike: Strike,
}

static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
static POISON: OnceLock<Poison> = OnceLock::new();

fn parse(text: &str) -> Result<Drill, String> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let point = Point::ALL.into_iter().find(|point| point.name() == name);
    let count = parts.next().map_or(Some(1), |count| count.parse().ok().filter(|&count| count > 0));
    let strike = match (parts.next(), parts.next()) {
        (None, None) => Some(Strike::Kill),
        (Some("freeze"), None) => Some(Strike::Freeze),
        (Some("panic"), None) => Some(Strike::Panic),
        (Some("panics"), None) => Some(Strike::Panics),
        _ => None,
    };
    match (point, count, strike) {
        (Some(point), Some(count), Some(strike)) => Ok(Drill { point, count, strike }),
        _ => {
            let names: Vec<_> = Point::ALL.iter().map(|point| point.name()).collect();
            Err(format!(
                "RATCHET_CRASH_AT is {text:?}: write POINT:COUNT, or POINT:COUNT:freeze, POINT:COUNT:panic, POINT:COUNT:panics, with \
                 POINT one of {}",
                names.join(", ")
            ))
        }
    }
}

fn parse_poison(text: &str) -> Result<Poison, String> {
    let mut parts = text.rsplitn(3, ':');
    let (offset, partition) = (parts.next().and_then(|n| n.parse().ok()), parts.next().and_then(|n| n.parse().ok()));
    match (parts.next(), partition, offset) {
        (Some(topic), Some(partition), Some(offset)) => Ok(Poison { topic: topic.to_owned(), partition, offset }),
        _ => Err(format!("RATCHET_CRASH_ON is {text:?}: write TOPIC:PARTITION:OFFSET")),
    }
}

/// Reads `RATCHET_CRASH_AT` and `RATCHET_CRASH_ON`; to be called once, at the start.
pub fn arm(crash_at: Option<&str>, crash_on: Option<&str>) -> Result<(), String> {
    if let Some(poison) = crash_on.map(parse_poison).transpose()? {
        let Poison { topic, partition, offset } = &poison;
        tracing::warn!("a panic drill is armed for {topic}:{partition}:{offset}");
        let _ = POISON.set(poison);
    }
    let plan = crash_at.map(parse).transpose()?;
    let plan = plan.map(|Drill { point, count, strike }| Plan { point, remaining: AtomicU64::new(count), strike });
    if let Some(plan) = &plan {
        tracing::warn!(point = plan.point.name(), "a crash drill is armed");
    }
    // A second call has no effect: the first call in the process counts.
    let _ = PLAN.set(plan);
    Ok(())
}

/// Passes `point`, unless a drill strikes here. During a store's write another thread kills the process, and the
/// write continues until then.
#[expect(clippy::disallowed_methods, reason = "a drill stops the whole process: the choice of clock does not matter")]
pub fn point(point: Point) {
    let Some(Some(plan)) = PLAN.get() else { return };
    if plan.point != point || !plan.is_due() {
        return;
    }
    let signal_number = match plan.strike {
        Strike::Kill => {
            tracing::warn!(point = point.name(), "crash drill: killing this process");
            libc::SIGKILL
        }
        Strike::Freeze => {
            tracing::warn!(point = point.name(), "crash drill: freezing this process");
            libc::SIGSTOP
        }
        Strike::Panic | Strike::Panics => raise_panic(point.name()),
    };
    match (point, plan.strike) {
        (Point::DuringStoreWrite, _) => drop(std::thread::spawn(move || signal(signal_number))),
        (Point::AfterSends, Strike::Freeze) => {
            std::thread::sleep(BEFORE_FREEZING);
            signal(signal_number);
        }
        _ => signal(signal_number),
    }
}

impl Plan {
    /// Counts a pass. Returns whether the drill strikes this time.
    fn is_due(&self) -> bool {
        let remaining =
            self.remaining.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |remaining| remaining.checked_sub(1));
        remaining == Ok(1) || remaining.is_err() && self.strike == Strike::Panics
    }
}

/// Passes a record, unless a drill makes it panic.
#[inline]
pub fn record(topic: &str, partition: i32, offset: i64) {
    let is_poisoned =
        |poison: &Poison| (poison.topic.as_str(), poison.partition, poison.offset) == (topic, partition, offset);
    if POISON.get().is_some_and(is_poisoned) {
        raise_panic("a record");
    }
}

#[expect(clippy::panic, reason = "that is the drill")]
fn raise_panic(location: &str) -> ! {
    panic!("panic drill at {location}");
}

/// Sends this thread a signal that affects the whole process. A signal that is sent to the process may reach another
/// thread first, and this thread would continue meanwhile.
fn signal(signal_number: libc::c_int) {
    // SAFETY: `raise` takes and returns plain numbers.
    unsafe { libc::raise(signal_number) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drill_is_parsed_into_point_count_and_strike() {
        assert_eq!(parse("after_sends:3"), Ok(Drill { point: Point::AfterSends, count: 3, strike: Strike::Kill }));
        assert_eq!(parse("during_restore"), Ok(Drill { point: Point::DuringRestore, count: 1, strike: Strike::Kill }));
        assert_eq!(
            parse("after_sends:5:freeze"),
            Ok(Drill { point: Point::AfterSends, count: 5, strike: Strike::Freeze })
        );
        assert_eq!(
            parse("after_sends:5:panic"),
            Ok(Drill { point: Point::AfterSends, count: 5, strike: Strike::Panic })
        );
        assert_eq!(
            parse("after_sends:5:panics"),
            Ok(Drill { point: Point::AfterSends, count: 5, strike: Strike::Panics })
        );
        for invalid in
            ["", "nowhere:1", "after_sends:0", "after_sends:x", "after_sends:1:melt", "after_sends:1:freeze:2"]
        {
            assert!(parse(invalid).unwrap_err().contains("after_commit"), "{invalid}");
        }
    }

    #[test]
    fn panic_drill_names_its_record_by_topic_partition_and_offset() {
        assert_eq!(
            parse_poison("shop.orders:2:17"),
            Ok(Poison { topic: "shop.orders".to_owned(), partition: 2, offset: 17 })
        );
        for invalid in ["", "orders", "orders:2", "orders:x:17", "orders:2:x"] {
            assert!(parse_poison(invalid).unwrap_err().contains("TOPIC:PARTITION:OFFSET"), "{invalid}");
        }
    }

    #[test]
    fn drill_strikes_once_or_every_time_from_then_on() {
        let strikes = |strike, count| {
            let plan = Plan { point: Point::AfterSends, remaining: AtomicU64::new(count), strike };
            [0; 4].map(|_| plan.is_due())
        };
        assert_eq!(strikes(Strike::Panic, 2), [false, true, false, false]);
        assert_eq!(strikes(Strike::Panics, 2), [false, true, true, true]);
    }
}
