//! Parts (a) to (d): how many records a second, and what each of them takes.

use crate::failure::{Outcome, fail};
use crate::part::{Bench, Goal, Part, Section};
use crate::results::{Findings, Results};

/// (a)
pub const IDS: Part = Part { name: "ids", about: "4 M events by id", run, sections, goals };
/// (b)
pub const VERSIONS: Part = Part { name: "versions", about: "4 M events by key and version", run, sections, goals };
/// (c)
pub const ENVELOPES: Part = Part { name: "envelopes", about: "1 M change events", run, sections, goals };
/// (d)
pub const LARGE: Part = Part { name: "large", about: "2 M events behind 50 M", run, sections, goals };

fn run(_: &Bench) -> Outcome<Findings> {
    fail!("not yet")
}

fn sections(_: &Results) -> Outcome<Vec<Section>> {
    Ok(Vec::new())
}

fn goals(_: &Results) -> Outcome<Vec<Goal>> {
    Ok(Vec::new())
}
