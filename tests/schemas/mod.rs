//! ratchet with a real Apache Kafka and a real schema registry: records that Confluent's and Apicurio's serializers have
//! written, kept as fixtures, and a registry that is down at the start or goes down during the run. The built binary is run
//! from outside.

mod apicurio;
mod outages;
mod payments;
mod serializers;
