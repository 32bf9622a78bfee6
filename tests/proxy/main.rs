//! `ratchet proxy` from outside: the built program on free ports, a real service behind it, real clients before it.
#![allow(
    clippy::disallowed_methods,
    reason = "the tests observe a running program from outside: they have a clock and may wait"
)]

#[path = "../provider/authority.rs"]
mod authority;
mod bounds;
mod client;
mod clients;
mod crashes;
mod crowd;
mod outcomes;
mod passing;
mod program;
mod service;
mod settings;
mod stopping;
mod switching;
mod tls;
