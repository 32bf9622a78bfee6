//! Topologies: from YAML to what the engine runs, in two steps, reporting all mistakes at once.
//!
//! 1. `spec` reads the text into a raw spec in which each value has its place; keys, types and words are checked.
//! 2. `compile` turns the spec into a [`Topology`] with everything resolved; what the values mean together is checked.
//!
//! Sinks, gates and tests (`cases`) have folders of their own, each with its keys, its spec and its part of the
//! compiler; the other blocks are in `keys`, `spec` and `compile` themselves.
//!
//! The second step runs on whatever the first could read, so that one run reports everything. A topology is known by
//! its name: group, changelogs and transactional ids derive from it.
//!
//! **Failure**: [`Diagnostics`]: each mistake with its file, line and column and what to write instead.
//!
//! | key | value | default |
//! |---|---|---|
//! | `name` | `[a-z0-9-]{1,60}` | required |
//! | `preset` | a fragment of these keys that replaces those left out ([`presets`]) | none |
//! | `input.topics` | a list of topics | required, or a pattern |
//! | `input.pattern`, `input.exclude` | regular expressions for topics, including those created later | none |
//! | `input.key_format`, `input.value_format` | `bytes`, `json`, `connect_json`, `avro`, `protobuf`, `json_schema` or `auto` | `bytes`, `json` |
//! | `input.start` | `earliest` or `latest`: where a new group starts | `earliest` |
//! | `identity` | a part or a list of parts ([`crate::dedup::IdentityPart`]) | required |
//! | `version` | a part or a list of parts ([`crate::dedup::VersionPart`]) | none |
//! | `epoch` | what scopes versions, a part or a list of parts ([`crate::dedup::EpochPart`]) | none |
//! | `kinds` | how to tell a record's kind of change ([`crate::dedup::Kinds`]) | none |
//! | `retention` | a duration or `forever` | `7d`, with a version `forever` |
//! | `refresh` | `on_forward` or `on_duplicate`: when that time starts over | `on_forward` |
//! | `future_max` | how far a timestamp may be ahead of the wall clock | `1h`, or a tenth of the retention if less |
//! | `output.topic` | a topic; `{topic}` stands for the input topic | required, or a sink |
//! | `output.existing` | `refuse` or `append`: what to do if the output already holds records when the topology starts | `refuse` |
//! | `sink.postgres` | what records cause in a database ([`sink`]) | required, or an output |
//! | `sink.http` | what records make a provider do ([`sink::http`]) | required, or an output |
//! | `gate.redis` | who is asked whether an identity was passed on elsewhere ([`gate`]) | none |
//! | `dead_letter.topic` | a topic | `<name>.dead_letter` |
//! | `audit.topic` | a topic | none |
//! | `on_invalid`, `on_missing`, `on_late`, `on_unsendable` | an action | `dead_letter` |
//! | `on_null_value` | an action, `follow_delete` or `delete` | `dead_letter` |
//! | `on_equal` | an action, only with a version | `drop` |
//! | `on_missing_version` | an action, only with a version | `forward`, with a `sink.http` `dead_letter` |
//! | `on_epoch_change` | an action, only with an epoch | `forward` |
//! | `on_duplicate` | `drop`, or `result` with a `sink.http` | `drop` |
//! | `partitioned_by_identity` | `true`: each identity is always in one partition | `false` |
//! | `tests` | records with the expected verdicts ([`cases`]) | none |
//!
//! An action is `forward`, `drop`, `dead_letter` or `fail`.

pub mod cases;
mod compile;
mod compiled;
pub mod destination;
mod expand;
pub mod gate;
mod input;
mod keys;
mod load;
mod names;
pub mod presets;
pub mod schema;
pub mod sink;
mod spec;

pub use cases::TestCase;
pub use compiled::Topology;
pub use destination::{Destination, Existing, Output};
pub use gate::Gate;
pub use input::{Input, Pattern, Start};
pub use load::{Loaded, load, load_all, load_run};
pub use presets::Preset;
pub use sink::Sink;

pub use crate::yaml::{Diagnostics, Environment, Mistake, Offline, Process, Report};

#[cfg(test)]
pub(crate) mod tables;
#[cfg(test)]
pub(crate) mod tests;
