//! A breadth-first search through every state of a world, with the shortest trace to what is wrong.
//!
//! A world is a state, the steps that lead on from it, what may never be, and what is an end. The search visits every
//! state once and keeps only its fingerprint (64 bits: among 10 million states two share one with a probability of
//! 3 in a million), its parent and its steps; whole states are kept only until they are looked at. A trace is found
//! again by taking the steps from the beginning.
//!
//! It ends with the first thing that is wrong. If nothing is, it checks that an end can be reached from every state
//! once faults stop.

use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Debug, Display};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::time::{Duration, Instant};

/// More states than this are a mistake of the world's: it has no bounds.
const STATES_MAX: usize = 30_000_000;

/// What is wrong with a step or a state, in a few words.
pub type Wrong = &'static str;

/// What is searched.
pub trait World {
    /// Everything that distinguishes one moment from another. Equal moments must be equal states: names that mean
    /// nothing are numbered in the order in which they are met.
    type State: Copy + Eq + Hash + Debug;
    /// What a step is called.
    type Label: Copy + Display;

    /// Where everything begins.
    fn initial(&self) -> Self::State;
    /// Reports each step that can be taken from `state`, with where it leads and what is wrong with it.
    fn steps(&self, state: &Self::State, report: &mut dyn FnMut(Self::Label, Self::State, Option<Wrong>));
    /// What is wrong with a state.
    fn judge(&self, state: &Self::State) -> Option<Wrong>;
    /// Whether everything is done.
    fn is_end(&self, state: &Self::State) -> bool;
    /// Whether the step is a fault: an end has to be reached without another one.
    fn is_fault(&self, label: &Self::Label) -> bool;
    /// A situation that the step reaches, for the count of situations; `None` if it is nothing special.
    fn situation(&self, label: &Self::Label) -> Option<&'static str>;
}

/// How a search ended.
pub struct Outcome {
    /// How many different states were visited.
    pub states: usize,
    /// How many steps were taken.
    pub steps: u64,
    /// How often each situation was reached.
    pub situations: HashMap<&'static str, u64>,
    /// How long it took.
    pub took: Duration,
    /// The first thing that is wrong, by the shortest way.
    pub wrong: Option<Counterexample>,
}

/// What is wrong, and how it comes about.
pub struct Counterexample {
    /// What is wrong.
    pub wrong: Wrong,
    /// The steps that lead to it.
    pub trace: Vec<String>,
}

impl Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "{}, after {} steps:", self.wrong, self.trace.len())?;
        self.trace.iter().enumerate().try_for_each(|(at, step)| writeln!(f, "  {:2}. {step}", at + 1))
    }
}

/// What is said of a state from which no end can be reached.
pub const DEAD_END: Wrong = "DEAD END: nothing but another fault leads to an end from here";

/// Visits all states of a world.
pub fn search<W: World>(world: &W) -> Outcome {
    #[expect(clippy::disallowed_methods, reason = "says how long the search took")]
    let since = Instant::now();
    let mut search = Search::<W>::new();
    let wrong = search.run(world).or_else(|| {
        let dead = search.dead_end()?;
        Some((dead, None, DEAD_END))
    });
    let wrong = wrong.map(|(at, last, wrong)| {
        let mut trace = search.trace(world, at);
        trace.extend(last.map(|label| label.to_string()));
        Counterexample { wrong, trace }
    });
    let Search { parents, situations, taken, .. } = search;
    Outcome { states: parents.len(), steps: taken, situations, took: since.elapsed(), wrong }
}

/// The number of a state, in the order of visits.
type At = u32;

struct Search<W: World> {
    numbers: HashMap<u64, At, BuildHasherDefault<AsIs>>,
    fingerprints: Vec<u64>,
    parents: Vec<At>,
    /// Where each visited state's steps lead that are no faults, one state's after the other's.
    leads_to: Vec<At>,
    /// Where each visited state's steps end in `leads_to`.
    ends_at: Vec<usize>,
    is_end: Vec<bool>,
    waiting: VecDeque<W::State>,
    situations: HashMap<&'static str, u64>,
    taken: u64,
}

impl<W: World> Search<W> {
    fn new() -> Self {
        Self {
            numbers: HashMap::default(),
            fingerprints: Vec::new(),
            parents: Vec::new(),
            leads_to: Vec::new(),
            ends_at: Vec::new(),
            is_end: Vec::new(),
            waiting: VecDeque::new(),
            situations: HashMap::new(),
            taken: 0,
        }
    }

    /// The state's number; it is put at the end of the queue if it is new.
    fn visit(&mut self, world: &W, state: W::State, parent: At) -> At {
        let fingerprint = fingerprint(&state);
        let next = self.parents.len() as At;
        let at = *self.numbers.entry(fingerprint).or_insert(next);
        if at == next {
            self.fingerprints.push(fingerprint);
            self.parents.push(parent);
            self.is_end.push(world.is_end(&state));
            self.waiting.push_back(state);
        }
        at
    }

    /// Visits everything, or stops at what is wrong: the state before it, and the step.
    fn run(&mut self, world: &W) -> Option<(At, Option<W::Label>, Wrong)> {
        self.visit(world, world.initial(), 0);
        let mut next = Vec::new();
        for at in 0.. {
            let Some(state) = self.waiting.pop_front() else { break };
            world.steps(&state, &mut |label, to, wrong| next.push((label, to, wrong)));
            for (label, to, wrong) in next.drain(..) {
                self.taken += 1;
                if let Some(situation) = world.situation(&label) {
                    *self.situations.entry(situation).or_default() += 1;
                }
                if let Some(wrong) = wrong.or_else(|| world.judge(&to)) {
                    return Some((at, Some(label), wrong));
                }
                let to = self.visit(world, to, at);
                if !world.is_fault(&label) {
                    self.leads_to.push(to);
                }
            }
            self.ends_at.push(self.leads_to.len());
            assert!(self.parents.len() < STATES_MAX, "the world has no bounds");
        }
        None
    }

    /// The first state from which no end can be reached without a fault: walks back from all ends.
    fn dead_end(&self) -> Option<At> {
        let states = self.parents.len();
        // Where the steps to each state begin in `from`, once all of them are counted and put there.
        let mut begins = vec![0_usize; states + 1];
        self.leads_to.iter().for_each(|to| begins[*to as usize + 1] += 1);
        (0..states).for_each(|at| begins[at + 1] += begins[at]);
        let mut filled = begins.clone();
        let mut from = vec![0 as At; self.leads_to.len()];
        let mut begin = 0;
        for (at, end) in self.ends_at.iter().enumerate() {
            for to in &self.leads_to[begin..*end] {
                from[filled[*to as usize]] = at as At;
                filled[*to as usize] += 1;
            }
            begin = *end;
        }
        let mut leads = self.is_end.clone();
        let mut open: Vec<usize> = (0..states).filter(|at| leads[*at]).collect();
        while let Some(at) = open.pop() {
            for before in &from[begins[at]..begins[at + 1]] {
                let before = *before as usize;
                if !leads[before] {
                    leads[before] = true;
                    open.push(before);
                }
            }
        }
        leads.iter().position(|leads| !leads).map(|at| at as At)
    }

    /// The steps from the beginning to a state.
    fn trace(&self, world: &W, mut at: At) -> Vec<String> {
        let mut way = vec![at];
        while at != 0 {
            at = self.parents[at as usize];
            way.push(at);
        }
        let mut state = world.initial();
        let mut trace = Vec::new();
        for at in way.into_iter().rev().skip(1) {
            let mut found = None;
            world.steps(&state, &mut |label, to, _| {
                if found.is_none() && fingerprint(&to) == self.fingerprints[at as usize] {
                    found = Some((label, to));
                }
            });
            let (label, to) = found.expect("the step was taken before");
            trace.push(label.to_string());
            state = to;
        }
        trace
    }
}

fn fingerprint<S: Hash>(state: &S) -> u64 {
    let mut hasher = Fingerprint::default();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Multiplies eight bytes at a time into 128 bits and folds them, as wyhash does.
#[derive(Default)]
struct Fingerprint {
    folded: u64,
    word: u64,
    bytes: u32,
}

impl Fingerprint {
    fn fold(folded: u64, word: u64) -> u64 {
        let product = u128::from(folded ^ 0xa076_1d64_78bd_642f) * u128::from(word ^ 0xe703_7ed1_a0b4_28db);
        // With the word itself, so that no word can make what came before vanish.
        (product as u64 ^ (product >> 64) as u64).wrapping_add(folded.rotate_left(23)) ^ word
    }
}

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        let last = Self::fold(self.folded, self.word);
        Self::fold(last, u64::from(self.bytes))
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }

    fn write_u8(&mut self, byte: u8) {
        self.word = self.word << 8 | u64::from(byte);
        self.bytes += 1;
        if self.bytes.is_multiple_of(8) {
            self.folded = Self::fold(self.folded, self.word);
            self.word = 0;
        }
    }

    // Lengths and variants are small.
    fn write_usize(&mut self, number: usize) {
        self.write_u8(number as u8);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u8(number as u8);
    }
}

/// For keys that are hashes already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u64")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that doubles or grows by 3, up to a bound.
    struct Numbers {
        bound: u64,
        forbidden: u64,
        end: u64,
    }

    impl World for Numbers {
        type State = u64;
        type Label = &'static str;

        fn initial(&self) -> u64 {
            1
        }

        fn steps(&self, state: &u64, report: &mut dyn FnMut(&'static str, u64, Option<Wrong>)) {
            let mut go = |label, to| {
                if to <= self.bound {
                    report(label, to, None)
                }
            };
            go("double", state * 2);
            go("add", state + 3);
            go("fail", self.end);
        }

        fn judge(&self, state: &u64) -> Option<Wrong> {
            (*state == self.forbidden).then_some("forbidden")
        }

        fn is_end(&self, state: &u64) -> bool {
            *state == self.end
        }

        fn is_fault(&self, label: &&'static str) -> bool {
            *label == "fail"
        }

        fn situation(&self, label: &&'static str) -> Option<&'static str> {
            Some(label)
        }
    }

    /// The trace to what is wrong is the shortest one.
    #[test]
    fn trace_is_the_shortest() {
        let found = search(&Numbers { bound: 100, forbidden: 11, end: 1 }).wrong.expect("11 = (1 + 3) * 2 + 3");
        assert_eq!((found.wrong, found.trace.join(" ")), ("forbidden", "add double add".to_owned()));
    }

    /// A state from which no end can be reached is found; without one, every state was visited once.
    #[test]
    fn dead_end_is_found() {
        let found = search(&Numbers { bound: 8, forbidden: 0, end: 8 });
        assert_eq!(found.wrong.expect("7 leads nowhere").trace.join(" "), "add add");
        // Neither is the fault a way out there, nor is anything else missing here.
        let found = search(&Numbers { bound: 4, forbidden: 0, end: 4 });
        assert!(found.wrong.is_none(), "1, 2 and 4");
        assert_eq!((found.states, found.steps, found.situations["double"]), (3, 6, 2));
    }
}
