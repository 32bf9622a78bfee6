//! ratchet between a real Apache Kafka and a real Redis: the built binary is run from outside, and it and the server are
//! killed, frozen and refused, and then what came out is counted.

mod crashes;
mod gated;
mod refused;
mod suppressed;
mod unavailable;
