//! An administrator's way to cut off a compacted topic: brokers reject DeleteRecords unless the policy has `delete`.

use rdkafka::admin::{AlterConfig, ConfigEntry, ConfigSource, ResourceSpecifier};
use rdkafka::{Offset, TopicPartitionList};

use super::{Kafka, admin_options};
use crate::until::{DEADLINE, within};

const POLICY: &str = "cleanup.policy";

impl Kafka {
    /// Removes the records of a compacted topic below these offsets, partition by partition. Afterwards the topic is
    /// compacted again; its other settings are lost.
    pub fn delete_compacted_records(&self, topic: &str, offsets: &[i64]) {
        self.set_policy(topic, "compact,delete");
        for (partition, &offset) in (0..).zip(offsets) {
            let what = format!("{topic}:{partition} to be cut off below {offset}");
            within(DEADLINE, &what, || self.try_delete_records(topic, partition, offset).then_some(()));
        }
        self.set_policy(topic, "compact");
    }

    /// Sets a topic's cleanup policy, and waits until the broker reports it.
    pub fn set_policy(&self, topic: &str, policy: &str) {
        self.set_setting(topic, POLICY, policy);
    }

    /// Sets a topic's setting, and waits until the broker reports it. Its other settings are lost.
    pub fn set_setting(&self, topic: &str, name: &str, value: &str) {
        self.set_settings(topic, &[(name, value)]);
    }

    /// The same with several.
    pub fn set_settings(&self, topic: &str, settings: &[(&str, &str)]) {
        let wanted = AlterConfig::new(ResourceSpecifier::Topic(topic));
        let wanted = settings.iter().fold(wanted, |wanted, (name, value)| wanted.set(name, value));
        let altered =
            self.tokio.block_on(self.admin.alter_configs([&wanted], &admin_options())).expect("alter_configs");
        assert!(altered.iter().all(Result::is_ok), "{altered:?}");
        for (name, value) in settings {
            within(DEADLINE, &format!("{topic} to have {name}={value}"), || {
                (self.setting(topic, name).as_deref() == Some(*value)).then_some(())
            });
        }
    }

    /// The current value of a topic's setting.
    pub fn setting(&self, topic: &str, name: &str) -> Option<String> {
        self.entry(topic, name)?.value
    }

    /// Whether the setting is the topic's own, not the brokers'.
    pub fn is_set(&self, topic: &str, name: &str) -> bool {
        self.entry(topic, name).is_some_and(|entry| entry.source == ConfigSource::DynamicTopic)
    }

    fn entry(&self, topic: &str, name: &str) -> Option<ConfigEntry> {
        let wanted = ResourceSpecifier::Topic(topic);
        let results = self.tokio.block_on(self.admin.describe_configs([&wanted], &admin_options())).ok()?;
        results.into_iter().next()?.ok()?.entries.into_iter().find(|entry| entry.name == name)
    }

    fn try_delete_records(&self, topic: &str, partition: i32, offset: i64) -> bool {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(offset)).expect("an offset");
        let result = self.tokio.block_on(self.admin.delete_records(&list, &admin_options()));
        result.is_ok_and(|result| result.elements().iter().all(|element| element.error().is_ok()))
    }
}
