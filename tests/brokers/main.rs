//! ratchet on brokers that lack what Apache Kafka offers, or refuse what they offer: franz-go's kfake hides requests and
//! lets requests fail. The built binary runs on each profile by each data path.
//!
//! No cell is ready and silent: each either forwards all records, or is refused by name within ten seconds, or is not
//! ready and names the reason. Services that companies use instead of Apache Kafka are among the profiles as far as their
//! documentation says what they lack (docs/brokers.md).
//!
//! `make brokers` builds the broker (`kfake`, Go) and runs it; `RATCHET_TEST_KFAKE` names the program.
#![allow(
    clippy::disallowed_methods,
    reason = "the tests observe a running system from outside: they have a clock and may wait"
)]

mod cell;
mod profiles;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use cell::{Cell, DataPath};
use profiles::PROFILES;

/// How many cells run side by side.
const CELLS_AT_ONCE: usize = 8;

#[test]
fn no_broker_leaves_an_instance_ready_and_silent() {
    let only = std::env::var("RATCHET_TEST_PROFILE").unwrap_or_default();
    let profiles = PROFILES.iter().filter(|profile| profile.name.contains(&only));
    let cells: Vec<Cell> = profiles
        .flat_map(|profile| {
            let paths = [Some(DataPath::Auto), Some(DataPath::Librdkafka), profile.on_wire.map(|_| DataPath::Wire)];
            paths.into_iter().flatten().map(move |path| Cell { profile, path })
        })
        .collect();
    assert!(!cells.is_empty(), "no profile has a name with {only:?}");
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..CELLS_AT_ONCE {
            scope.spawn(|| {
                while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match cell.run() {
                        Ok(seen) => println!("{cell}: {seen}"),
                        Err(wrong) => {
                            println!("{cell}: WRONG: {wrong}");
                            failed.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{cell}: {wrong}"));
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(failed.is_empty(), "{} of {} cells:\n{}", failed.len(), cells.len(), failed.join("\n"));
}
