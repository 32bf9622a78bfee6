//! Commands that somebody gives to the tasks; and records that come again just as a task carries one out about their
//! identity, as when a sender asks for what somebody settles meanwhile.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::input::{CONTROL, INPUT, THINGS};
use crate::judge::{bytes, coverage};
use crate::kafka::{Isolation, Partition, Record};
use crate::random::Random;

use super::Run;

/// How many commands in a thousand are met by a record of their identity.
const MET: u64 = 700;

/// The commands that are to be met by a record.
#[derive(Default)]
pub(super) struct Meetings {
    /// The partition and the name of each one's thing, by their ids.
    things: BTreeMap<String, (i32, String)>,
    /// The end of the control topic when it was last looked at.
    seen_to: i64,
}

impl Run<'_> {
    /// Somebody settles a thing of some partition by hand, if there is a topic to say so; `drawn` says which, and how.
    pub(super) fn command(&mut self, drawn: u64) {
        let mut random = Random::new(drawn);
        let number = random.below(self.profile.partitions as u64) as i32;
        let id = format!("{number}-{}", random.below(THINGS));
        let identity: String =
            bytes::identity_key(&[Value::from(id.as_str())]).iter().map(|byte| format!("{byte:02x}")).collect();
        let by_hand = ["done", "retry", "drop"][random.below(3) as usize];
        let mut state = self.world.lock();
        let Some(topic) = state.broker.topics.get(CONTROL) else { return };
        let (topic_id, at) = (topic.id, state.broker.wall_ms());
        let value = format!(
            r#"{{"format":1,"topic_id":"{topic_id:032x}","at":{at},"command":"settle","identity":"{identity}","as":"{by_hand}"}}"#
        );
        let key = format!("{:016x}{:016x}", drawn, random.next());
        if random.permille(MET) {
            self.meetings.things.insert(key.clone(), (number, id));
        }
        let [key, value] = [key, value].map(|part| Some(part.as_bytes().into()));
        let record = Record { timestamp: Some(at), key, value, ..Record::default() };
        let log = state.broker.topics.log_mut(&Partition::new(CONTROL, 0)).expect("it has one partition");
        log.append([record]);
        state.reach(coverage::COMMANDED);
    }

    /// Sends the last record of a thing once more where its task has just acknowledged a command about it, in a transaction
    /// that is still open.
    pub(super) fn meet(&mut self) {
        if self.meetings.things.is_empty() {
            return;
        }
        let mut state = self.world.lock();
        let Some(log) = state.broker.topics.log(&Partition::new(CONTROL, 0)) else { return };
        let Meetings { things, seen_to } = &mut self.meetings;
        let mut met = Vec::new();
        let read = log.read(*seen_to, Isolation::Uncommitted, usize::MAX, |_, record| {
            let key = record.key.as_deref().and_then(|key| std::str::from_utf8(key).ok());
            let Some((id, task)) = key.and_then(|key| key.split_once(' ')) else { return };
            let acknowledges = |(number, _): &&(i32, String)| task.ends_with(&format!(":{number}"));
            met.extend(things.get(id).filter(acknowledges).cloned());
        });
        *seen_to = read.unwrap_or_else(|_| log.end());
        for (number, id) in met {
            let Some(log) = state.broker.topics.log_mut(&Partition::new(INPUT, number)) else { continue };
            let named = format!(r#""id":"{id}","#);
            let mut last = None;
            log.examine(log.start(), |_, _, record, is_aborted| {
                let value = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default());
                if !is_aborted && value.contains(&named) {
                    last = Some(record.clone());
                }
            });
            let Some(record) = last else { continue };
            let at = log.append([record]);
            state.note("written", format_args!("{number}:{at} again, of {id}"));
            state.reach(coverage::MET_BY_RECORD);
        }
    }
}
