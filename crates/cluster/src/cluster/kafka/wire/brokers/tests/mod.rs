//! Clients and brokers that exchange bytes in memory: no sockets, no threads, and a clock that the test advances.

mod chaos;
mod cluster;
mod connecting;
mod greeting;
mod leaders;
mod requests;
mod throttles;
pub mod world;
