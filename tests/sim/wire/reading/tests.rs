//! Seeds of the fetcher, and the mistakes that they have to see.

use super::super::client::mistakes::{Mistake, switch_on};
use super::super::{MISTAKE_SEEDS, seeds};
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
    ];
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
    for &mistake in Mistake::FETCHER {
        switch_on(Some(mistake));
        let seen = (0..MISTAKE_SEEDS).find_map(|seed| Some((seed, Reading::new(seed).run().err()?)));
        switch_on(None);
        let (seed, what) = seen.unwrap_or_else(|| panic!("{mistake:?} was not seen"));
        let what: String = what.chars().take(160).collect();
        println!("{mistake:?}: seed {seed}: {what}");
    }
}
