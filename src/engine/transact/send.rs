//! Sends changelog records and redos. A redo is all that a transaction writes to Kafka for one task, as a sink has
//! stored it. A record's ticket returns in its delivery report: `number` is the task's id, and `report` asks for a
//! report of success, too.

use crate::cluster::{self, Message, Producer, Ticket};
use crate::engine::share::TaskId;
use crate::format::{POSITION_KEY, Redo, RedoRecord};
use crate::record::{Headers, TopicPartition};
use crate::state::Overlay;

/// Sends a task's changelog records; the offset of the first is reported ([`crate::engine::changelog_loss`]).
pub(super) fn changelog<P: Producer>(
    producer: &mut P,
    id: TaskId,
    changelog: &TopicPartition,
    overlay: &Overlay,
) -> Result<(), cluster::Error> {
    let mut entries = overlay.iter();
    let Some((key, value)) = entries.next() else { return Ok(()) };
    let first = Message {
        topic: &changelog.topic,
        partition: changelog.partition,
        key: Some(key),
        value,
        headers: Headers::default(),
        timestamp: None,
    };
    producer.send(Ticket { number: id, report: true }, &first)?;
    producer.send_all(id, changelog, entries)
}

/// Sends the records of a task's redo. The offsets of its first changelog record and of the position record are
/// reported, as in every transaction.
pub(super) fn redo<P: Producer>(
    producer: &mut P,
    id: TaskId,
    changelog: &TopicPartition,
    redo: Redo<'_>,
) -> Result<(), cluster::Error> {
    let mut is_first = true;
    for record in redo.records() {
        let (message, report) = match record {
            RedoRecord::Changelog { key, value } => {
                let report = std::mem::take(&mut is_first) || key == POSITION_KEY;
                let (topic, partition) = (&*changelog.topic, changelog.partition);
                let (headers, timestamp) = (Headers::default(), None);
                (Message { topic, partition, key: Some(key), value, headers, timestamp }, report)
            }
            RedoRecord::Topic { topic, partition, timestamp, headers, key, value } => {
                (Message { topic, partition, key, value, headers, timestamp }, false)
            }
        };
        producer.send(Ticket { number: id, report }, &message)?;
    }
    Ok(())
}
