//! `ratchet proxy` from outside: the built program on free ports, a real service behind it, real clients before it.

mod bounds;
mod broken;
mod browsers;
mod by_hand;
mod callers;
pub mod client;
mod clients;
mod crashes;
mod crowd;
mod frozen;
mod full;
mod grpc;
mod hidden;
mod load;
mod outcomes;
mod passing;
pub mod service;
mod settings;
mod shares;
mod shop;
mod stopping;
mod stores;
mod switching;
mod syncs;
mod tls;
mod troubled;
mod windows;
