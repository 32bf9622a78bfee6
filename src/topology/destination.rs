//! Where a topology's surviving records go: to an output in Kafka, or into a sink outside of Kafka.

use super::Sink;

/// Where surviving records go: exactly one of the two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To a topic, as they are.
    Output(Output),
    /// To a sink, as what they cause there.
    Sink(Box<Sink>),
}

/// The output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The topic; `{topic}` stands for the input topic.
    pub topic: String,
    /// What to do if it holds other records.
    pub existing: Existing,
}

impl Output {
    /// An output that must not hold other records.
    pub fn to(topic: impl Into<String>) -> Self {
        Self { topic: topic.into(), existing: Existing::Refuse }
    }
}

/// What to do with an output that holds other records: from before the topology started, or from another topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Refuse it: the topology might write records that are already there.
    Refuse,
    /// Append the topology's records to them.
    Append,
}

impl Existing {
    /// Both of them.
    pub const ALL: &[Existing] = &[Existing::Refuse, Existing::Append];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Append => "append",
        }
    }
}
