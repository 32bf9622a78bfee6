//! A cache of the writer's slots: a slot is the writer's number for a partition that it writes to. While records go to
//! the same topic, a look-up does not hash the topic's name.

use hashbrown::HashMap;

use super::super::super::wire::writer::Slot;

/// Partitions from this number on are not cached; the writer has slots for them all the same.
const PARTITIONS_MAX: usize = 1 << 16;

/// The cached slots.
#[derive(Debug, Default)]
pub(super) struct Slots {
    topics: Vec<Topic>,
    /// Indexes into `topics`, by name.
    topic_indexes: HashMap<Box<str>, usize, ahash::RandomState>,
    /// The index of the topic that was looked up last.
    last: usize,
}

#[derive(Debug)]
struct Topic {
    name: Box<str>,
    /// By partition; `None` if the slot is not cached.
    slots: Vec<Option<Slot>>,
}

impl Slots {
    /// The slot of a partition, if it is cached.
    #[inline]
    pub fn get(&mut self, topic: &str, partition: i32) -> Option<Slot> {
        let known = match self.topics.get(self.last) {
            Some(known) if *known.name == *topic => known,
            _ => {
                self.last = *self.topic_indexes.get(topic)?;
                self.topics.get(self.last)?
            }
        };
        *known.slots.get(usize::try_from(partition).ok()?)?
    }

    /// Caches the slot of a partition.
    pub fn insert(&mut self, topic: &str, partition: i32, slot: Slot) {
        let Some(partition) = usize::try_from(partition).ok().filter(|partition| *partition < PARTITIONS_MAX) else {
            return;
        };
        let topic_index = self.topic_indexes.get(topic).copied().unwrap_or_else(|| {
            self.topic_indexes.insert(topic.into(), self.topics.len());
            self.topics.push(Topic { name: topic.into(), slots: Vec::new() });
            self.topics.len() - 1
        });
        let Some(known) = self.topics.get_mut(topic_index) else { return };
        if known.slots.len() <= partition {
            known.slots.resize(partition + 1, None);
        }
        if let Some(known) = known.slots.get_mut(partition) {
            *known = Some(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::super::super::wire::writer::Writer;
    use super::*;

    #[test]
    fn partitions_of_several_topics_have_their_own_slots() {
        let (mut writer, mut slots) = (Writer::new("id", Arc::default()).unwrap(), Slots::default());
        let all = [("a", 0), ("b", 0), ("a", 3), ("", 1), ("b", 2)];
        for (topic, partition) in all {
            assert_eq!(slots.get(topic, partition), None);
            slots.insert(topic, partition, writer.slot(topic, partition));
        }
        for (topic, partition) in all.into_iter().chain(all.into_iter().rev()) {
            assert_eq!(slots.get(topic, partition), Some(writer.slot(topic, partition)));
        }
        for (topic, partition) in [("a", 1), ("a", 4), ("a", -1), ("c", 0)] {
            assert_eq!(slots.get(topic, partition), None);
        }
    }

    #[test]
    fn partitions_with_high_numbers_take_no_memory() {
        let (mut writer, mut slots) = (Writer::new("id", Arc::default()).unwrap(), Slots::default());
        for partition in [i32::MAX, i32::MIN, PARTITIONS_MAX as i32] {
            slots.insert("a", partition, writer.slot("a", partition));
            assert_eq!(slots.get("a", partition), None);
        }
        assert!(slots.topics.is_empty());
    }
}
