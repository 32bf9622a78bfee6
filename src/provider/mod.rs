//! The drivers for providers: [`http`] sends requests, and [`handler`] runs the user's functions, step by step.
//!
//! Their interface is [`crate::effect::provider`]; [`crate::effect::call`] decides what happens to a call.
//!
//! - `lane` passes requests to the thread that makes a lane's calls; `job` is a request on that thread, with the lock
//!   that makes its withdrawal certain. `thread` starts requests in order, limited in number and in rate (`rate`).

pub mod handler;
pub mod http;
mod job;
mod lane;
mod rate;
mod thread;
