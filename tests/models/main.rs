//! Goal: the commit protocol of `sink: postgres`, the protocol of calls to the outside, and that of a handler's steps
//! hold, whatever fails and whenever, in every world that is small enough to be searched whole.
//!
//! - `search`: visits every state of a world, breadth first, and finds the shortest way to what is wrong
//! - `postgres`: one task, and the instances that own it in turn; `lane`: two tasks in one lane's transaction
//! - `calls`: reserve, act, settle: one task, its owners, and a provider
//! - `steps`: a handler that does several things in turn: journal, mark, act, undo
//! - `worlds`: which worlds hold, and how large they are
//! - `mistakes`: what the protocol could do wrong; each mistake has to be found
//!
//! The models are the protocol's text as code. They share nothing with the engine, which the simulation tests.
//! `RATCHET_MODELS=large` also searches worlds of millions of states.

mod calls;
mod lane;
mod mistakes;
mod postgres;
mod search;
mod steps;
mod worlds;

use search::Outcome;

/// Says how large a search was.
fn report(name: &str, found: &Outcome) {
    let (states, steps, seconds) = (found.states, found.steps, found.took.as_secs_f32());
    let length = found.wrong.as_ref().map(|wrong| format!(", a trace of {}", wrong.trace.len())).unwrap_or_default();
    println!("{name}: {states} states, {steps} steps, {seconds:.1} s{length}");
}
