//! The drivers for providers: [`http`] sends requests, and [`handler`] runs the user's functions, step by step.
//!
//! Their interface is [`crate::effect::provider`]; [`crate::effect::call`] decides what happens to a call.
//!
//! - A lane is a thread that processes records. `lane` passes its requests to another thread, which makes the calls;
//!   `job` is a request on that thread, with the lock by which either the thread takes it or the lane withdraws it.
//!   `thread` starts requests in order, limited in number and in rate (`rate`).

pub mod handler;
pub mod http;
mod job;
mod lane;
mod rate;
mod thread;
