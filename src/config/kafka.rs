//! Properties for librdkafka: which are passed on, which are ratchet's own, and which are secret.

use std::collections::BTreeMap;

use crate::yaml::Text;

/// Properties for librdkafka, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KafkaProperties {
    /// For consumers and producers.
    pub common: BTreeMap<String, Text>,
    /// For consumers only, over [`KafkaProperties::common`].
    pub consumer: BTreeMap<String, Text>,
    /// For producers only, over [`KafkaProperties::common`].
    pub producer: BTreeMap<String, Text>,
}

impl KafkaProperties {
    /// What a consumer gets. Secrets stand in it as they are: not for showing.
    pub fn for_consumer(&self) -> BTreeMap<String, String> {
        revealed(&self.common, &self.consumer)
    }

    /// What a producer gets. Secrets stand in it as they are: not for showing.
    pub fn for_producer(&self) -> BTreeMap<String, String> {
        revealed(&self.common, &self.producer)
    }

    /// The brokers' addresses. They are no secret, wherever they came from.
    pub fn addresses(&self) -> String {
        let mut given = self.for_consumer();
        ["metadata.broker.list", "bootstrap.servers"].iter().find_map(|name| given.remove(*name)).unwrap_or_default()
    }

    /// How the brokers are spoken to: a word of librdkafka's, in capitals. No secret either.
    pub fn protocol(&self) -> String {
        self.for_consumer().remove("security.protocol").unwrap_or_else(|| "PLAINTEXT".to_owned()).to_uppercase()
    }

    /// What a client gets that is neither. Secrets stand in it as they are: not for showing.
    pub fn for_admin(&self) -> BTreeMap<String, String> {
        revealed(&self.common, &BTreeMap::new())
    }
}

/// The texts themselves, the special ones over the common ones.
fn revealed(common: &BTreeMap<String, Text>, special: &BTreeMap<String, Text>) -> BTreeMap<String, String> {
    common.iter().chain(special).map(|(name, text)| (name.clone(), text.reveal().to_owned())).collect()
}

/// Why there is no choice of the group protocol. With KIP-848's, a transaction's offsets are checked against the
/// member's epoch, which the client takes from each heartbeat's answer, not from a rebalance that the engine has
/// answered; session and heartbeats are settings of the brokers (45 s and 5 s, and by default no less), so that neither
/// how long a dead owner's partitions stand still nor how fast a rebalance goes could be kept as promised.
const CLASSIC: &str = "the hand-over of partitions, and the fencing of their former owners, rest on the classic \
                       protocol, which every broker speaks, those of Kafka 4 too; what `consumer` (KIP-848) would \
                       make of them is not proven";

/// Properties that ratchet sets itself, and why nobody else may.
const OWNED: &[(&str, &str)] = &[
    ("group.id", "the group is `ratchet.<name>`, by the topology's name"),
    (
        "group.instance.id",
        "the lanes of one process are members of their own; members of one id would fence each other",
    ),
    ("group.protocol", CLASSIC),
    ("group.remote.assignor", CLASSIC),
    ("group.protocol.type", CLASSIC),
    ("partition.assignment.strategy", "the hand-over of partitions rests on cooperative-sticky"),
    ("transactional.id", "it is new at each start and for each lane, so that no two producers share one"),
    ("enable.auto.commit", "offsets are committed with the transaction that they belong to"),
    ("auto.commit.enable", "offsets are committed with the transaction that they belong to"),
    (
        "auto.commit.interval.ms",
        "offsets are committed with the transaction that they belong to; see `commit.interval`",
    ),
    ("enable.auto.offset.store", "offsets are committed with the transaction that they belong to"),
    ("offset.store.method", "offsets are committed with the transaction that they belong to"),
    ("auto.offset.reset", "`input.start` in the topology says where a new group begins, and nothing else may jump"),
    ("isolation.level", "what is not committed must not be read"),
    ("enable.idempotence", "exactly once rests on it"),
    ("enable.gapless.guarantee", "a record that cannot be sent is left out by `on_unsendable`"),
    ("acks", "exactly once rests on `all`"),
    ("request.required.acks", "exactly once rests on `all`"),
    ("enable.partition.eof", "the end of a partition is not told by it where transactions are"),
    ("delivery.report.only.error", "successful deliveries are counted too"),
    ("allow.auto.create.topics", "`topics.create` says what is created"),
    ("partitioner", "a record goes to the partition that it came from"),
];

/// Why a property cannot be set, if it cannot.
pub fn owned_reason(property: &str) -> Option<&'static str> {
    OWNED.iter().find(|(name, _)| *name == property).map(|(_, reason)| *reason)
}

/// Whether a property of this name holds a secret, whatever stands in it.
pub fn is_secret(property: &str) -> bool {
    ["password", "passphrase", "secret", "key.pem"].iter().any(|word| property.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_side_wins_over_the_common_properties() {
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
    fn secrets_are_known_by_their_names() {
        for name in [
            "sasl.password",
            "ssl.key.password",
            "ssl.keystore.password",
            "ssl.key.pem",
            "sasl.oauthbearer.client.secret",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["sasl.username", "ssl.ca.pem", "ssl.key.location", "sasl.oauthbearer.token.endpoint.url"] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
