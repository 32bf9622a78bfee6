//! Seeds of the fetcher, and the mistakes that they have to see.

use super::super::client::mistakes::Mistake;
use super::super::kafka::{Log, Packing, Record};
use super::super::noticing::{self, Noticed};
use super::super::seeds;
use super::*;

/// How many seeds are run, unless more are wanted.
const SEEDS: u64 = 100;

#[test]
fn committed_records_are_handed_on_in_order_each_once() {
    let mut met = Met::default();
    let (seeds, reach_all) = seeds(SEEDS);
    for seed in seeds {
        let one = Reading::new(seed).run().unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        met.records += one.records;
        met.cuts += one.cuts;
        met.elections += one.elections;
        met.truncated += one.truncated;
        met.out_of_range += one.out_of_range;
        met.unknown_epochs += one.unknown_epochs;
        met.compactions += one.compactions;
        met.restarts += one.restarts;
        met.clients += one.clients;
        met.unnoticed += one.unnoticed;
        met.throttles += one.throttles;
    }
    println!("{met:?}");
    let reached = [
        met.records,
        met.cuts,
        met.elections,
        met.truncated,
        met.out_of_range,
        met.compactions,
        met.restarts,
        met.clients,
        met.throttles,
    ];
    // Few losses are such that nobody can notice them: the others must be.
    let is_few = met.unnoticed * 20 <= met.truncated;
    assert!(!reach_all || is_few, "too many losses count as unnoticeable: {met:?}");
    assert!(!reach_all || reached.iter().all(|count| *count > 0), "not all situations were reached: {met:?}");
}

#[test]
fn whatever_a_broker_answers_nothing_panics() {
    let mut ended = 0;
    let (seeds, reach_all) = seeds(SEEDS);
    for seed in seeds {
        let mut reading = Reading::new(seed);
        // Most responses are whole, so that something comes of them.
        reading.net.links.weather.garbles_once_in = [1_000, 20_000][seed as usize % 2];
        // What is handed on may be wrong, as not all of it has a checksum.
        ended += usize::from(reading.run().is_err());
    }
    assert!(!reach_all || ended > 0);
}

#[test]
fn every_mistake_is_seen() {
    for mistake in Mistake::FETCHER {
        notice(*mistake);
    }
}

/// Plays seeds with a mistake until the judge notices it.
pub fn notice(mistake: Mistake) -> Noticed {
    noticing::notice(mistake, "", |seed| Reading::new(seed).run().map(drop))
}

/// What the judge goes by where a loss was not noticed.
#[test]
fn leaders_tell_of_a_loss_unless_what_tells_of_it_is_gone() {
    let write = |log: &mut Log, count| log.append_batch(None, Packing::None, vec![Record::default(); count]);
    let empty = || {
        let mut log = Log::default();
        log.lags = true;
        log
    };
    let mut log = empty();
    write(&mut log, 5);
    write(&mut log, 5);
    log.truncate(5);
    log.begin_epoch(1);
    assert!(!log.could_hide(0, 10, 1));
    // Nothing was written in epoch 1: the next one begins at the same place.
    log.forget_unused_epochs();
    log.begin_epoch(2);
    assert!(!log.could_hide(0, 10, 1));
    write(&mut log, 7);
    log.replicate(12);
    log.thin(12, || false, || false);
    log.forget_unused_epochs();
    log.begin_epoch(3);
    assert!(log.could_hide(0, 10, 1) && log.could_hide(0, 12, 3));
    assert!(!log.could_hide(0, 13, 3));
    // A later loss shows again; the former leader may have been asked before.
    log.truncate(5);
    log.begin_epoch(4);
    assert!(!log.could_hide(0, 10, 4) && log.could_hide(0, 10, 3));
    // Deleting what tells of it does the same as cleaning.
    let mut log = empty();
    write(&mut log, 4);
    log.truncate(0);
    log.begin_epoch(1);
    write(&mut log, 4);
    log.replicate(4);
    assert!(!log.could_hide(0, 4, 1));
    log.delete_before(4).unwrap();
    assert!(log.could_hide(0, 4, 1));
}
