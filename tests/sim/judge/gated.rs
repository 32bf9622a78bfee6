//! What a gate drops: only what another partition has passed on, or has set aside because the output refuses it.

use std::collections::{BTreeMap, BTreeSet};

use crate::kafka::Partition;

use super::model::{self, Read, Verdict};
use super::partition::Forward;
use super::rules::Rules;
use super::{Case, Ruling, Seen, show};

/// A thing and its version.
type Thing = (Vec<u8>, Option<i128>);

/// What partitions have done with things.
#[derive(Default)]
pub struct Gated {
    /// Which partitions have passed it on.
    passed: BTreeMap<Thing, BTreeSet<i32>>,
    /// Which partitions have set it aside as unsendable.
    refused: BTreeMap<Thing, BTreeSet<i32>>,
    /// What a partition has dropped although its own model forwards it: its number, and the record.
    dropped: Vec<(i32, Thing, i64, String)>,
}

fn thing(rules: &Rules, seen: &Seen) -> Option<Thing> {
    let Read { identity, version, .. } = model::read(rules, &seen.record).ok()?;
    Some((identity, version))
}

impl Gated {
    /// A record got this verdict.
    pub fn see(&mut self, case: &Case<'_>, number: i32, source: &Seen, verdict: Verdict) {
        if verdict == Verdict::DeadLettered("unsendable")
            && let Some(thing) = thing(case.rules, source)
        {
            self.refused.entry(thing).or_default().insert(number);
        }
    }

    /// The output holds the forwarded records in order, except for those that were dropped.
    pub fn check<'a>(&mut self, case: &Case<'_>, number: i32, forwards: Vec<Forward<'a>>) -> Vec<Forward<'a>> {
        let written = case.committed(&Partition::new(case.rules.output, number));
        let mut written = written.iter().peekable();
        let mut kept = Vec::new();
        for forward in forwards {
            let is_there = written.next_if(|found| found.record == forward.source.record).is_some();
            match thing(case.rules, forward.source) {
                Some(thing) if is_there => drop(self.passed.entry(thing).or_default().insert(number)),
                // What has no version is not asked about.
                Some(thing) if thing.1.is_some() => {
                    self.dropped.push((number, thing, forward.source.offset, show(&forward.source.record)));
                    continue;
                }
                Some(_) | None => {}
            }
            kept.push(forward);
        }
        kept
    }

    /// What was dropped was passed on elsewhere, unless the gate has forgotten a mark and a stray has replaced it.
    pub fn end(self, case: &Case<'_>, ruling: &mut Ruling) {
        let Self { passed, refused, dropped } = self;
        // The partition whose question left the stray has dropped its own record because of the mark that was forgotten.
        let is_stray = |number: i32, offset: i64| case.history.gate_strays.contains(&(number, offset));
        let strays = dropped.iter().filter(|(number, _, offset, _)| is_stray(*number, *offset));
        let strays: BTreeSet<Thing> = strays.map(|(_, thing, ..)| thing.clone()).collect();
        for (number, thing, offset, record) in dropped {
            let elsewhere = |of: &BTreeMap<Thing, BTreeSet<i32>>| {
                of.get(&thing).is_some_and(|partitions| partitions.iter().any(|other| *other != number))
            };
            if elsewhere(&passed) {
                ruling.see(super::coverage::GATE_DROPPED);
            } else if !elsewhere(&refused) && (case.history.gate_kept_all || !strays.contains(&thing)) {
                let input = Partition::new(case.rules.input, number);
                ruling.report(15, &input, offset, format!("{record} passed on, here or elsewhere"), "nowhere");
            }
        }
        if case.rules.gate_keeps && case.history.gate_kept_all {
            for (thing, partitions) in passed.into_iter().filter(|((_, version), _)| version.is_some()) {
                if partitions.len() > 1 {
                    let output = Partition::new(case.rules.output, 0);
                    let expected = format!("{thing:?} passed on by one partition, while the gate forgets nothing");
                    ruling.report(15, &output, None, expected, format!("by {partitions:?}"));
                }
            }
        }
    }
}
