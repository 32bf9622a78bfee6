//! Effects outside of Kafka, each once, though everything dies at the worst moment: rows in PostgreSQL, then calls to a
//! provider, then the steps of a function in Rust.
//!
//! `make demo-effects` runs it, with a PostgreSQL that is gone afterwards; the topics are those of the embedded cluster.
//! The operator is `ratchet run` itself, or the example `payment`, as a child process. All numbers shown are read from the topics, the tables and
//! the provider's books. It fails if anybody was charged twice, or not at all.
#![allow(clippy::disallowed_methods, reason = "the demo observes a process from outside: it has a clock and waits")]

use std::error::Error;

mod booked;
mod charged;
mod provider;
mod site;
mod stepped;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() {
    println!("FIRST, A TOPOLOGY THAT ENDS IN POSTGRESQL\n");
    let told = booked::tell().and_then(|()| {
        println!("\n\nSECOND, A TOPOLOGY THAT CALLS A PROVIDER\n");
        charged::tell()?;
        println!("\n\nTHIRD, A FUNCTION IN RUST, STEP BY STEP\n");
        stepped::tell()
    });
    if let Err(error) = told {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
