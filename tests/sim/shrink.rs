//! Makes a failing seed small: fewer records, instances, misfortunes and faults on the wire, as long as it fails in
//! the same way (delta debugging: halves are left out first, then ever smaller parts).
//!
//! Each try is a separate run, as deterministic as the first; their number is bounded.

use crate::cut::{Cut, Kept};
use crate::schedule::Outcome;

/// Maximum number of times a seed is played.
pub const TRIES: usize = 400;

/// The smallest failure found.
pub struct Shrunk {
    pub cut: Cut,
    pub outcome: Outcome,
    pub tries: usize,
}

/// A list of choices that can be shortened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Instances,
    Faults,
    Wire,
}

impl List {
    const ALL: [Self; 3] = [Self::Instances, Self::Faults, Self::Wire];

    fn of(self, cut: &mut Cut) -> &mut Kept {
        match self {
            Self::Instances => &mut cut.instances,
            Self::Faults => &mut cut.faults,
            Self::Wire => &mut cut.wire,
        }
    }
}

/// Shrinks a failure. `play` plays a part of its seed.
pub fn shrink(failed: &Outcome, play: impl FnMut(&Cut) -> Outcome) -> Shrunk {
    let choices = &failed.choices;
    // Naming everything gives the same run.
    let cut = Cut {
        faults: Kept::only(0..choices.misfortunes),
        wire: Kept::only(choices.wire.iter().copied()),
        instances: Kept::only(0..choices.instances),
        records: Some(choices.records),
    };
    let best = Shrunk { cut, outcome: failed.clone(), tries: 0 };
    let mut search = Search { play, symptom: symptom(&failed.wrong), best };
    loop {
        let before = search.best.cut.clone();
        search.fewer_records();
        List::ALL.into_iter().for_each(|list| search.shorten(list));
        if search.best.cut == before && !search.leave_out_two() {
            return search.best;
        }
    }
}

/// What has failed, without what differs between runs: numbers and quoted values.
pub fn symptom(wrong: &[String]) -> String {
    let first = wrong.first().map_or("", |first| first.split(';').next().unwrap_or_default());
    let unquoted: String = first.split('"').step_by(2).collect();
    unquoted.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

struct Search<P> {
    play: P,
    symptom: String,
    best: Shrunk,
}

impl<P: FnMut(&Cut) -> Outcome> Search<P> {
    fn is_over(&self) -> bool {
        self.best.tries >= TRIES
    }

    /// Plays a part; it becomes the best if it fails as the whole did.
    fn fails(&mut self, cut: Cut) -> bool {
        if self.is_over() {
            return false;
        }
        self.best.tries += 1;
        let outcome = (self.play)(&cut);
        let fails = !outcome.wrong.is_empty() && symptom(&outcome.wrong) == self.symptom;
        if fails {
            (self.best.cut, self.best.outcome) = (cut, outcome);
        }
        fails
    }

    fn fewer_records(&mut self) {
        let mut records = self.best.cut.records.unwrap_or_default();
        let mut step = records / 2;
        while step > 0 {
            let cut = Cut { records: Some(records - step), ..self.best.cut.clone() };
            if self.fails(cut) {
                records -= step
            } else {
                step /= 2
            }
            step = step.min(records / 2);
        }
    }

    fn numbers(&self, list: List) -> Vec<u64> {
        let Shrunk { cut, outcome, .. } = &self.best;
        match list {
            List::Instances => cut.instances.named(),
            List::Faults => cut.faults.named(),
            // Of those kept, the ones that a shorter run still reaches.
            List::Wire => outcome.choices.wire.clone(),
        }
    }

    fn with(&self, list: List, numbers: &[u64]) -> Cut {
        let (kept, mut cut) = (Kept::only(numbers.iter().copied()), self.best.cut.clone());
        *list.of(&mut cut) = kept;
        cut
    }

    fn shorten(&mut self, list: List) {
        let mut numbers = self.numbers(list);
        let mut part = numbers.len();
        while part > 0 {
            let mut at = 0;
            while at < numbers.len() {
                let mut fewer = numbers.clone();
                fewer.drain(at..(at + part).min(numbers.len()));
                // Without any instance nothing is read, which is a different failure.
                let makes_sense = list != List::Instances || !fewer.is_empty();
                let cut = self.with(list, &fewer);
                if makes_sense && self.fails(cut) {
                    numbers = fewer;
                } else {
                    at += part;
                }
            }
            part /= 2;
        }
    }

    /// Leaves out two choices at once, from any lists; `false` if no two can be left out. What follows a left-out
    /// choice is drawn differently, so a failure may disappear by chance; with another choice gone it may come back.
    fn leave_out_two(&mut self) -> bool {
        let all: Vec<(List, u64)> =
            List::ALL.into_iter().flat_map(|list| self.numbers(list).into_iter().map(move |one| (list, one))).collect();
        for (at, one) in all.iter().enumerate() {
            for other in &all[at + 1..] {
                let mut cut = self.best.cut.clone();
                for list in List::ALL {
                    let left = all.iter().filter(|left| left.0 == list && *left != one && *left != other);
                    *list.of(&mut cut) = Kept::only(left.map(|(_, number)| *number));
                }
                if !cut.instances.named().is_empty() && self.fails(cut) {
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    /// The event that a planted judge objects to.
    const RARE: &str = "killed while a transaction was open";

    /// Part of a seed, before a judge that objects to one event only.
    fn play(seed: u64, cut: &Cut) -> Outcome {
        let outcome = crate::play_cut(seed, Profile::wild, cut, false);
        let objection = outcome.reached.get(RARE).map(|times| format!("{times} times {RARE}"));
        Outcome { wrong: objection.into_iter().collect(), ..outcome }
    }

    #[test]
    fn a_planted_failure_is_shrunk() {
        let seeds = (1..500).filter(|seed| !crate::stores::are_real(*seed));
        let mut failing = seeds.map(|seed| (seed, play(seed, &Cut::default())));
        let large = |outcome: &Outcome| outcome.choices.misfortunes >= 5 && outcome.choices.wire.len() >= 5;
        let (seed, failed) =
            failing.find(|(_, outcome)| !outcome.wrong.is_empty() && large(outcome)).expect("one of them is large");
        let shrunk = shrink(&failed, |cut| play(seed, cut));
        let (all, left) = (&failed.choices, &shrunk.cut);
        println!("seed {seed}: {all:?} is {left} after {} tries", shrunk.tries);
        assert!(shrunk.tries <= TRIES);
        assert!((left.faults.named().len() as u64) < all.misfortunes, "{left}");
        assert!(left.wire.named().len() < all.wire.len(), "{left}");
        assert!(left.records.is_some_and(|records| records < all.records), "{left}");
        // No single remaining choice can be left out.
        for list in List::ALL {
            let mut cut = left.clone();
            let numbers = list.of(&mut cut).named();
            for one in &numbers {
                *list.of(&mut cut) = Kept::only(numbers.iter().copied().filter(|number| number != one));
                let is_empty = cut.instances.named().is_empty();
                assert!(is_empty || play(seed, &cut).wrong.is_empty(), "{left}, and {cut} fails as well");
            }
        }
        // The printed line replays the same run.
        let again = play(seed, &left.to_string().parse().unwrap());
        assert_eq!(again, shrunk.outcome);
        assert_eq!(symptom(&again.wrong), symptom(&failed.wrong));
    }

    #[test]
    fn naming_every_choice_gives_the_same_run() {
        let seed = 7;
        let whole = play(seed, &Cut::default());
        let choices = &whole.choices;
        let cut = Cut {
            faults: Kept::only(0..choices.misfortunes),
            wire: Kept::only(choices.wire.iter().copied()),
            instances: Kept::only(0..choices.instances),
            records: Some(choices.records),
        };
        assert_eq!(play(seed, &cut), whole);
    }

    #[test]
    fn symptom_leaves_out_what_differs_between_runs() {
        let wrong = |text: &str| vec![text.to_owned()];
        let one = symptom(&wrong(r#"orders:0 up to 12: 5 records; the 3th is Some("{\"id\":1}")"#));
        assert_eq!(one, symptom(&wrong("orders:1 up to 7: 15 records; the 1th is None")));
        assert_ne!(one, symptom(&wrong("not everything was read in time")));
        assert_eq!(symptom(&[]), "");
    }
}
