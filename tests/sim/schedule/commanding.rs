//! Commands that somebody gives to the tasks.

use serde_json::Value;

use crate::input::{CONTROL, THINGS};
use crate::judge::{bytes, coverage};
use crate::kafka::{Partition, Record};
use crate::random::Random;

use super::Run;

impl Run<'_> {
    /// Somebody settles a thing of some partition by hand, if there is a topic to say so; `drawn` says which, and how.
    pub(super) fn command(&self, drawn: u64) {
        let mut random = Random::new(drawn);
        let id = format!("{}-{}", random.below(self.profile.partitions as u64), random.below(THINGS));
        let identity: String =
            bytes::identity_key(&[Value::from(id)]).iter().map(|byte| format!("{byte:02x}")).collect();
        let by_hand = ["done", "retry", "drop"][random.below(3) as usize];
        let mut state = self.world.lock();
        let Some(topic) = state.broker.topics.get(CONTROL) else { return };
        let (topic_id, at) = (topic.id, state.broker.wall_ms());
        let value = format!(
            r#"{{"format":1,"topic_id":"{topic_id:032x}","at":{at},"command":"settle","identity":"{identity}","as":"{by_hand}"}}"#
        );
        let key = format!("{:016x}{:016x}", drawn, random.next());
        let [key, value] = [key, value].map(|part| Some(part.as_bytes().into()));
        let record = Record { timestamp: Some(at), key, value, ..Record::default() };
        let log = state.broker.topics.log_mut(&Partition::new(CONTROL, 0)).expect("it has one partition");
        log.append([record]);
        state.reach(coverage::COMMANDED);
    }
}
