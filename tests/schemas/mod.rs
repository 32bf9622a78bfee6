//! ratchet between a real Apache Kafka and a real schema registry: records that Confluent's serializers have written,
//! which fixtures keep, and a registry that is down, comes up and goes away. The built binary is run from outside.

mod apicurio;
mod outages;
mod payments;
mod serializers;
