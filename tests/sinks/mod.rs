//! ratchet between a real Apache Kafka and a real PostgreSQL: the built binary is run from outside, killed, frozen and
//! robbed of answers, and then the database's tables are compared with those of a sequential program.

mod effects;
mod forged;
mod frozen;
mod instances;
mod online;
mod refused;
mod replaced;
mod shop;
mod trouble;
