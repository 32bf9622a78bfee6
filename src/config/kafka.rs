//! Properties for librdkafka: which are passed on, which ratchet sets itself, and which are secret.

use std::collections::BTreeMap;

use crate::yaml::Text;

/// The setting that names the brokers.
pub const BROKERS: &str = "kafka.bootstrap.servers";

/// Properties for librdkafka, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KafkaProperties {
    /// For consumers and producers.
    pub common: BTreeMap<String, Text>,
    /// For consumers only, overriding [`KafkaProperties::common`].
    pub consumer: BTreeMap<String, Text>,
    /// For producers only, overriding [`KafkaProperties::common`].
    pub producer: BTreeMap<String, Text>,
}

impl KafkaProperties {
    /// A consumer's properties, with secrets in clear text: never show them.
    pub fn for_consumer(&self) -> BTreeMap<String, String> {
        revealed(&self.common, &self.consumer)
    }

    /// A producer's properties, with secrets in clear text: never show them.
    pub fn for_producer(&self) -> BTreeMap<String, String> {
        revealed(&self.common, &self.producer)
    }

    /// The brokers' addresses. They are not secret, wherever they come from.
    pub fn addresses(&self) -> String {
        let mut given = self.for_consumer();
        ["metadata.broker.list", "bootstrap.servers"].iter().find_map(|name| given.remove(*name)).unwrap_or_default()
    }

    /// The security protocol by librdkafka's name, in capitals. Not secret either.
    pub fn protocol(&self) -> String {
        self.for_consumer().remove("security.protocol").unwrap_or_else(|| "PLAINTEXT".to_owned()).to_uppercase()
    }

    /// The properties of any other client, with secrets in clear text: never show them.
    pub fn for_admin(&self) -> BTreeMap<String, String> {
        revealed(&self.common, &BTreeMap::new())
    }
}

/// The values in clear text, the special ones overriding the common ones.
fn revealed(common: &BTreeMap<String, Text>, special: &BTreeMap<String, Text>) -> BTreeMap<String, String> {
    common.iter().chain(special).map(|(name, text)| (name.clone(), text.reveal().to_owned())).collect()
}

/// Why the group protocol cannot be chosen. With KIP-848's, a transaction's offsets are checked against the member's
/// epoch, which the client takes from each heartbeat's response, not from a rebalance that the engine has acknowledged.
/// Session timeout and heartbeat interval are settings of the brokers (45 s and 5 s, and by default no less), so
/// ratchet could not keep its promises on how long a dead owner's partitions stand still and how fast a rebalance is.
const CLASSIC: &str = "the hand-over of partitions, and the fencing of their former owners, rely on the classic \
                       protocol, which every broker speaks, those of Kafka 4 too; they are not proven with \
                       `consumer` (KIP-848)";

/// Properties that ratchet sets itself, and why users cannot.
const OWNED: &[(&str, &str)] = &[
    ("group.id", "the group is `ratchet.<name>`, by the topology's name"),
    (
        "group.instance.id",
        "each lane of a process is a member of its own; members with the same id would fence each other",
    ),
    ("group.protocol", CLASSIC),
    ("group.remote.assignor", CLASSIC),
    ("group.protocol.type", CLASSIC),
    ("partition.assignment.strategy", "the hand-over of partitions relies on cooperative-sticky"),
    ("transactional.id", "it is new at each start and for each lane, so that no two producers share one"),
    ("enable.auto.commit", "offsets are committed with the transaction that they belong to"),
    ("auto.commit.enable", "offsets are committed with the transaction that they belong to"),
    (
        "auto.commit.interval.ms",
        "offsets are committed with the transaction that they belong to; see `commit.interval`",
    ),
    ("enable.auto.offset.store", "offsets are committed with the transaction that they belong to"),
    ("offset.store.method", "offsets are committed with the transaction that they belong to"),
    ("auto.offset.reset", "`input.start` in the topology says where a new group starts, and no other group may jump"),
    ("isolation.level", "uncommitted records must not be read"),
    ("enable.idempotence", "exactly once relies on it"),
    ("enable.gapless.guarantee", "a record that cannot be sent is left out by `on_unsendable`"),
    ("acks", "exactly once relies on `all`"),
    ("request.required.acks", "exactly once relies on `all`"),
    ("enable.partition.eof", "with transactions it does not show the end of a partition"),
    ("delivery.report.only.error", "successful deliveries are counted too"),
    ("allow.auto.create.topics", "`topics.create` says what is created"),
    ("partitioner", "a record goes to the partition that it came from"),
];

/// Why a property cannot be set; `None` if it can.
pub fn owned_reason(property: &str) -> Option<&'static str> {
    OWNED.iter().find(|(name, _)| *name == property).map(|(_, reason)| *reason)
}

/// Whether a property's name says that it holds a secret.
pub fn is_secret(property: &str) -> bool {
    ["password", "passphrase", "secret", "key.pem", "jaas"].iter().any(|word| property.contains(word))
}

/// Whether a property's value may hold a secret: the known secrets, and properties whose free text may contain one.
pub fn may_be_secret(property: &str) -> bool {
    let words = ["pem", "token", "config", "extensions", "assertion", "user.info", "headers"];
    is_secret(property) || words.iter().any(|word| property.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumer_and_producer_properties_override_the_common_ones() {
        let map = |name: &str, text: &str| BTreeMap::from([(name.to_owned(), Text::plain(text))]);
        let properties = KafkaProperties {
            common: map("client.id", "a"),
            consumer: map("client.id", "b"),
            producer: map("linger.ms", "5"),
        };
        assert_eq!(properties.for_consumer(), BTreeMap::from([("client.id".to_owned(), "b".to_owned())]));
        assert_eq!(properties.for_admin()["client.id"], "a");
        assert_eq!(properties.for_producer().len(), 2);
    }

    #[test]
    fn secrets_are_recognised_by_their_names() {
        for name in [
            "sasl.password",
            "ssl.key.password",
            "ssl.keystore.password",
            "ssl.key.pem",
            "sasl.oauthbearer.client.secret",
            "sasl.jaas.config",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["sasl.username", "ssl.ca.pem", "ssl.key.location", "sasl.oauthbearer.token.endpoint.url"] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
