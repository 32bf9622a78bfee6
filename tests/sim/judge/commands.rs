//! Commands, compared with what the tasks have made of them (invariant 14): every partition acknowledges each command
//! once, in the transaction that notes it, and no call goes on that somebody has settled.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::input::CONTROL;
use crate::kafka::Partition;

use super::runs::{Run, contains};
use super::{Case, Ruling, coverage};

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

/// Checks what a partition has made of all commands, by its transactions; adds what was decided.
pub fn check(case: &Case<'_>, number: i32, runs: &[Run<'_>], decided: &mut Decided, ruling: &mut Ruling) {
    let topic = Partition::new(CONTROL, 0);
    let spoken = Spoken::read(case);
    for Command { offset, id, key } in &spoken.commands {
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
            "already" | "unknown" => continue,
            other => ruling.report(14, &topic, first.offset, "an outcome of a command that is understood", other),
        }
        let Some(noted) = noted else { continue };
        // What was known of the identity then.
        let mut writes = runs[..noted].iter().flat_map(|run| &run.written);
        let last = writes.rfind(|(_, record)| record.key.as_deref() == Some(key));
        let Some(reserved) = last.and_then(|(_, record)| reserved_by(record.value.as_deref()?)) else { continue };
        let settles = |run: &Run<'_>| {
            contains(&run.position.processed, reserved) || contains(&run.position.calls.beyond, reserved)
        };
        if runs.iter().position(settles).is_some_and(|at| at > noted) {
            let input = Partition::new(case.rules.input, number);
            let expected = format!("the command at {offset} to wait for the call that is reserved for this record");
            ruling.report(14, &input, reserved, expected, first.outcome.clone());
        }
    }
}

/// The offset of the record that has reserved its call in an entry, by the layout in `src/format/remembered.rs`.
fn reserved_by(entry: &[u8]) -> Option<i64> {
    let mut rest = entry.strip_prefix(&[2])?;
    let mut take = |count: usize| {
        let (taken, after) = rest.split_at_checked(count)?;
        rest = after;
        Some(taken)
    };
    let parts = take(1)?[0];
    if parts & 2 == 0 {
        return None;
    }
    let length = |bytes: &[u8]| bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    if parts & 1 != 0 {
        let entry = length(take(4)?);
        take(entry)?;
        // How; of what was given up, since when; the place; the fingerprint; the result.
        if take(1)?[0] == 4 {
            take(8)?;
        }
        for bytes in [24, 20] {
            if take(1)?[0] == 1 {
                take(bytes)?;
            }
        }
        match take(1)?[0] {
            1 => {
                take(2)?;
                let body = length(take(4)?);
                take(body)?;
            }
            2 => drop(take(42)?),
            3 => {
                let reason = length(take(2)?);
                take(reason)?;
            }
            _ => {}
        }
    }
    let entry = length(take(4)?);
    take(entry + 16)?;
    Some(i64::from_be_bytes(take(8)?.try_into().ok()?))
}
