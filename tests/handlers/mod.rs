//! Handlers between a real Apache Kafka, a real provider and a real PostgreSQL: the programs in `examples` are run from
//! outside and killed, and then what the provider and the database have done is counted.

mod blocking;
mod crashes;
mod embedded;
mod frozen;
mod journal;
mod leaving;
mod saga;
mod sessions;
mod settled;
mod work;
