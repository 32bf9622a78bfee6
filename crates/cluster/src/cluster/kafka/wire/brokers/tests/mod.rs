//! Clients and brokers in a world of bytes: no sockets, no threads, a clock that is moved by hand.

mod chaos;
mod cluster;
mod connecting;
mod greeting;
mod leaders;
mod requests;
mod throttles;
pub mod world;
