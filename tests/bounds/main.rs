//! ratchet under hostile input, on the embedded cluster: whole lanes, and the built program's folders. What needs a
//! real broker is in `tests/kafka`.
#![allow(
    clippy::disallowed_methods,
    reason = "the tests observe a running engine from outside: they have a clock and may wait"
)]

#[path = "../support/random.rs"]
mod random;

mod folders;
mod hostile;
mod lanes;
