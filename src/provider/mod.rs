//! Providers that records call: [`http`], by requests, and [`handler`], by functions of the user's, step by step.
//!
//! Their interface is [`crate::effect::provider`]; what becomes of a call is decided by [`crate::effect::call`].
//!
//! - `lane` passes requests to the thread that makes a lane's calls; `job` is a request on that thread, with the lock
//!   that makes its withdrawal certain. `thread` starts requests in order, limited in number and in rate (`rate`).

pub mod handler;
pub mod http;
mod job;
mod lane;
mod rate;
mod thread;
