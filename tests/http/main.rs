//! The driver for providers that speak HTTP, against a real one: what each answer and each failure is, at each moment;
//! that no more goes than may, in order; that what is taken back never arrives.
#![allow(clippy::disallowed_methods, reason = "a real provider runs by the real clock")]

mod bodies;
mod caller;
mod classes;
mod connecting;
mod lanes;
mod messages;
#[path = "../provider/mod.rs"]
mod provider;
mod proxies;
mod raw;
mod speed;
mod two;
mod wire;
mod withdrawn;
