//! Commands, compared with what the tasks have made of them (invariant 14): every partition acknowledges each command
//! once, in the transaction that notes it; no call goes on that somebody has settled; and what comes afterwards goes by
//! what was decided.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::input::CONTROL;
use crate::kafka::Partition;

use super::called::{reserved_in, settled_in};
use super::runs::{Run, contains};
use super::{Case, Ruling, bytes, coverage};

/// What was decided by hand, by identity.
pub type Decided = BTreeMap<Vec<u8>, Decision>;

/// What was decided about an identity.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decision {
    /// How often it was settled.
    pub settled: usize,
    /// How often it was forgotten.
    pub forgotten: usize,
}

/// A command that has changed what is remembered of an identity.
pub struct Change<'a> {
    /// The number of the transaction that it was carried out in.
    run: usize,
    /// The identity's key in the changelog.
    key: Vec<u8>,
    /// What records are judged against from then on; `None` if all was forgotten.
    settled: Option<&'a [u8]>,
}

/// A record that was judged.
pub struct Judged {
    pub offset: i64,
    /// The key of its identity in the changelog.
    pub key: Vec<u8>,
    pub version: Option<i128>,
    /// Whether the record ended with a call, its own or one that it continued.
    pub has_called: bool,
    /// Whether it was perhaps not read.
    pub is_gone: bool,
}

/// A command.
struct Command {
    offset: i64,
    id: String,
    /// The identity's key in the changelog.
    key: Vec<u8>,
}

/// An acknowledgement.
struct Acknowledged {
    offset: i64,
    producer: Option<i64>,
    outcome: String,
}

/// Commands in order, and their acknowledgements by id and partition.
#[derive(Default)]
struct Spoken {
    commands: Vec<Command>,
    acknowledged: BTreeMap<(String, i32), Vec<Acknowledged>>,
}

impl Spoken {
    fn read(case: &Case<'_>) -> Self {
        let mut spoken = Self::default();
        for seen in case.committed(&Partition::new(CONTROL, 0)) {
            let text = |part: Option<&[u8]>| String::from_utf8(part.unwrap_or_default().to_vec()).unwrap_or_default();
            let (key, value) = (text(seen.record.key.as_deref()), text(seen.record.value.as_deref()));
            let Ok(value) = serde_json::from_str::<Value>(&value) else { continue };
            let field = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
            match key.split_once(' ') {
                None => {
                    let digits = field("identity");
                    let byte =
                        |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("the schedule writes hex");
                    let key_of = (0..digits.len()).step_by(2).map(byte).collect();
                    spoken.commands.push(Command { offset: seen.offset, id: key, key: key_of });
                }
                Some((id, task)) => {
                    let partition = task.rsplit_once(':').and_then(|(_, number)| number.parse().ok());
                    let one = Acknowledged { offset: seen.offset, producer: seen.producer, outcome: field("outcome") };
                    spoken.acknowledged.entry((id.to_owned(), partition.unwrap_or(-1))).or_default().push(one);
                }
            }
        }
        spoken
    }
}

/// The commands that a partition has not acknowledged.
pub fn lags(case: &Case<'_>) -> Vec<(Partition, String, String)> {
    let spoken = Spoken::read(case);
    let mut lags = Vec::new();
    for command in &spoken.commands {
        for number in 0..case.partitions {
            if !spoken.acknowledged.contains_key(&(command.id.clone(), number)) {
                let expected = format!("the command at {} acknowledged", command.offset);
                lags.push((Partition::new(case.rules.input, number), expected, "nothing".to_owned()));
            }
        }
    }
    lags
}

/// Checks what a partition has made of all commands, by its transactions; adds what was decided. Returns what they have
/// changed, in order.
pub fn check<'a>(
    case: &Case<'_>,
    number: i32,
    runs: &'a [Run<'a>],
    decided: &mut Decided,
    ruling: &mut Ruling,
) -> Vec<Change<'a>> {
    let mut changes = Vec::new();
    let topic = Partition::new(CONTROL, 0);
    let spoken = Spoken::read(case);
    for command in &spoken.commands {
        let Command { offset, id, key } = command;
        let all = spoken.acknowledged.get(&(id.clone(), number)).map_or(&[][..], Vec::as_slice);
        let Some(first) = all.first() else { continue };
        if let Some(again) = all.get(1) {
            let expected = format!("the command at {offset} acknowledged once by {number}");
            ruling.report(14, &topic, again.offset, expected, format!("again: {}", again.outcome));
        }
        let has_noted = |run: &Run<'_>| run.position.calls.control.is_some_and(|(_, next)| next > *offset);
        let noted = runs.iter().position(has_noted);
        let by = noted.map(|at| runs[at].producer);
        if by != Some(first.producer) {
            let expected = format!("the command at {offset} noted by {number} in the same transaction");
            ruling.report(
                14,
                &topic,
                first.offset,
                expected,
                format!("acknowledged by {:?}, noted by {by:?}", first.producer),
            );
        }
        let of_identity = decided.entry(key.clone()).or_default();
        match first.outcome.as_str() {
            "settled" => {
                of_identity.settled += 1;
                ruling.see(coverage::SETTLED_BY_HAND);
            }
            "forgotten" => {
                of_identity.forgotten += 1;
                ruling.see(coverage::FORGOTTEN_BY_HAND);
            }
            // Of a handler's, nothing is forgotten.
            "already" | "unknown" | "steps_were_done" => continue,
            other => ruling.report(14, &topic, first.offset, "an outcome of a command that is understood", other),
        }
        let Some(noted) = noted else { continue };
        let mut written = runs[noted].written.iter().filter(|(_, record)| record.key.as_deref() == Some(key));
        let value = written.next_back().and_then(|(_, record)| record.value.as_deref());
        let is_settled = first.outcome == "settled";
        changes.push(Change {
            run: noted,
            key: key.clone(),
            settled: value.and_then(settled_in).filter(|_| is_settled),
        });
        check_waited(case, number, (runs, noted), (command, &first.outcome), ruling);
    }
    changes
}

/// A command has waited for the call that was reserved as its transaction, number `noted`, was written.
fn check_waited(
    case: &Case<'_>,
    number: i32,
    (runs, noted): (&[Run<'_>], usize),
    (Command { offset, key, .. }, outcome): (&Command, &str),
    ruling: &mut Ruling,
) {
    // What was known of the identity then.
    let mut writes = runs[..noted].iter().flat_map(|run| &run.written);
    let last = writes.rfind(|(_, record)| record.key.as_deref() == Some(key));
    let reserved = last.and_then(|(_, record)| reserved_in(record.value.as_deref()?));
    let Some(reserved) = reserved.map(|reserved| reserved.offset) else { return };
    // Nobody goes on with a record that has vanished.
    let is_gone = case.history.is_gone(number, reserved);
    if !is_gone && settled_by(runs, reserved).is_some_and(|at| at > noted) {
        let input = Partition::new(case.rules.input, number);
        let expected = format!("the command at {offset} to wait for the call that is reserved for this record");
        ruling.report(14, &input, reserved, expected, outcome);
    }
}

/// The number of the transaction that settles the record at this offset.
fn settled_by(runs: &[Run<'_>], offset: i64) -> Option<usize> {
    let settles =
        |run: &Run<'_>| contains(&run.position.processed, offset) || contains(&run.position.calls.beyond, offset);
    runs.iter().position(settles)
}

/// Checks that records which were settled after a command about their identity were judged by what it has left: whatever
/// is in a window and judged has a command wait. What was forgotten is new; what was settled by hand makes no call.
pub fn check_after(
    case: &Case<'_>,
    number: i32,
    (runs, changes): (&[Run<'_>], &[Change<'_>]),
    judged: &[Judged],
    ruling: &mut Ruling,
) {
    let input = Partition::new(case.rules.input, number);
    for (at, change) in changes.iter().enumerate() {
        let until = changes[at + 1..].iter().find(|later| later.key == change.key).map_or(runs.len(), |next| next.run);
        let own = judged.iter().filter(|judged| judged.key == change.key);
        let mut after =
            own.filter(|judged| settled_by(runs, judged.offset).is_some_and(|by| by > change.run && by <= until));
        let wrong = match change.settled {
            None => after.find(|judged| !judged.is_gone).filter(|judged| !judged.has_called),
            Some(entry) => after.find(|judged| {
                let is_same = judged.version.is_some_and(|version| entry.ends_with(&bytes::version(version)));
                is_same && judged.has_called
            }),
        };
        if let Some(Judged { offset, has_called, .. }) = wrong {
            let what =
                if *has_called { "no call of what was settled by hand" } else { "a call: it was forgotten by hand" };
            let at = runs[change.run].at;
            ruling.report(14, &input, *offset, format!("{what}, at {at} of the changelog"), format!("{has_called}"));
        }
    }
}
