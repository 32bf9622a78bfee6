//! Clients and brokers that exchange bytes in memory: no sockets, no threads, a clock that is moved by hand.

mod chaos;
mod cluster;
mod connecting;
mod greeting;
mod leaders;
mod requests;
mod throttles;
pub mod world;
