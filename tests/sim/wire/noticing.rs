//! Goal: each deliberate mistake of the fetcher and the writer is noticed within a stated number of seeds.
//!
//! `SIM_WIRE_FIRST=n` starts with that seed. `make sim-mistakes` writes after how many each was noticed to
//! docs/dev/simulation/mistakes-of-the-wire.md.

use ratchet_testkit::pages;

use super::client::mistakes::{Mistake, switch_on};
use super::{number, reading, writers};

/// The number of seeds within which each mistake has to be noticed.
const MISTAKE_SEEDS: u64 = 1_000;
/// The most characters of a judgement that are shown.
const SHOWN_MAX: usize = 100;

const INTRODUCTION: &str = "\
# The judges of the wire are judged

<!-- Written by `make sim-mistakes`; edit tests/sim/wire/noticing.rs instead. -->

Deliberate mistakes of the wire, one after another; the judges of the wire's own
[simulation](../simulation.md#the-wire) have to notice each within 1,000 seeds, which are right without the mistake. Most
of them are seen [by the engine's judge](mistakes.md) as well;
[the other ones](../simulation.md#mistakes-that-only-the-wire-shows) show only here.
";

const HEAD: &str = "\
| mistake | name | to be noticed within | noticed after | first noticed as |
|---|---|---:|---:|---|
";

/// How a mistake was noticed: the number of seeds, and the beginning of the judgement.
pub struct Noticed {
    seeds: u64,
    what: String,
}

/// Plays seeds with a mistake until a judgement contains `part`; the same seed must be right without the mistake.
pub fn notice(mistake: Mistake, part: &str, judge: impl Fn(u64) -> Result<(), String>) -> Noticed {
    let first = number("SIM_WIRE_FIRST").unwrap_or(0);
    let wrong = |seed| judge(seed).err().filter(|wrong| wrong.contains(part));
    switch_on(Some(mistake));
    let noticed = (first..first + MISTAKE_SEEDS).find_map(|seed| Some((seed, wrong(seed)?)));
    switch_on(None);
    let (seed, wrong) = noticed.unwrap_or_else(|| panic!("{mistake:?} was not noticed"));
    assert_eq!(judge(seed), Ok(()), "without the mistake nothing is wrong");
    let (seeds, what) = (seed - first + 1, shown(&wrong));
    println!("{mistake:?}: {seeds} of {MISTAKE_SEEDS} seeds: {what}");
    Noticed { seeds, what }
}

/// The beginning of a judgement, fit for a table's cell.
fn shown(wrong: &str) -> String {
    wrong.chars().map(|c| if c == '|' || c.is_control() { ' ' } else { c }).take(SHOWN_MAX).collect()
}

#[test]
fn page_of_mistakes() {
    if std::env::var_os("SIM_PAGE").is_none() {
        return;
    }
    let of_fetcher = Mistake::FETCHER.iter().map(|mistake| (*mistake, reading::notice(*mistake)));
    let of_writer = Mistake::WRITER.iter().map(|mistake| (*mistake, writers::notice(*mistake)));
    let row = |(mistake, noticed): (Mistake, Noticed)| {
        let (meaning, Noticed { seeds, what }) = (mistake.meaning(), noticed);
        format!("| {meaning} | `{mistake:?}` | {MISTAKE_SEEDS} | {seeds} | {what} |\n")
    };
    let rows: String = of_fetcher.chain(of_writer).map(row).collect();
    let page = format!("{INTRODUCTION}\n{HEAD}{rows}\n{}", pages::colophon());
    println!("{}", pages::write("dev/simulation/mistakes-of-the-wire.md", &page));
}
