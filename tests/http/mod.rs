//! The driver for providers that speak HTTP, against a real one: what each answer and each failure is, at each moment;
//! that no more goes than may, in order; that what is taken back never arrives.

mod bodies;
mod caller;
mod classes;
mod connecting;
mod lanes;
mod messages;
mod proxies;
mod raw;
mod speed;
mod two;
mod wire;
mod withdrawn;
