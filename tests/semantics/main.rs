//! What records mean, from a topology's YAML to verdicts, without Kafka and without a disk: what other systems' tests
//! expect, what public captures hold, what holds for any stream, and what the docs show.

mod calls;
mod canal;
mod cases;
mod commit_order;
mod conformance;
mod corpus;
mod docs;
mod envelopes;
mod expanded;
mod inferred;
mod logical;
mod mariadb;
mod presets;
mod properties;
mod reads;
mod real;
mod redelivery;
mod task;
mod ties;
