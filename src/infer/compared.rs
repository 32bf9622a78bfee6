//! The part of a proposal on records that tie: how their `contents` are compared, and the action on a record with other
//! contents (`on_conflict`).
//!
//! A topology of one's own drops conflicts by default, since its author has chosen identity and version. A proposal has no
//! such author: it drops conflicts only if the records show that an identity stands for one thing.

use super::draft::{Draft, in_yaml};
use super::fields::Table;
use super::names;
use super::ties::{Ties, listed};
use crate::dedup::Source;
use crate::words::{agreeing, counted};

/// How records that tie are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// What orders the records of an identity.
    pub order: Order,
    /// What their contents are.
    pub contents: Contents,
}

/// What orders the records of an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Nothing does: each identity stands for one thing.
    None,
    /// A time, at this path.
    Time(String),
    /// Another version.
    Version,
}

/// What the contents of records are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// All that a value says, except what belongs to the delivery: by their names, the fields at these paths do.
    Value(Vec<String>),
    /// What a source is known to say, as YAML, and why.
    Known(&'static str, &'static str),
}

impl Contents {
    /// All that the values of these records say.
    pub fn of_value(table: &Table) -> Self {
        let of_delivery = table.fields.iter().filter(|field| {
            field.path.source == Source::Value && field.present > 0 && names::is_of_delivery(&field.name)
        });
        Self::Value(of_delivery.map(|field| field.path.to_string()).collect())
    }
}

impl Draft {
    /// Adds what is compared, and what becomes of conflicts.
    pub fn compared(&mut self, compared: &Compared, ties: &Ties, records: usize) {
        let what = if compared.order == Order::None { "identity" } else { "identity and version" };
        match &compared.contents {
            Contents::Value(of_delivery) => self.contents(of_delivery, ties, what),
            Contents::Known(contents, why) => {
                self.comment(why);
                self.line(&format!("contents: {contents}"));
            }
        }
        let (why, action) = on_conflict(&compared.order, ties, records);
        self.comment(&why);
        self.line(&format!("on_conflict: {action}"));
    }

    /// Adds `contents`, if records that say the same differ.
    fn contents(&mut self, of_delivery: &[String], ties: &Ties, what: &str) {
        let mut why = Vec::new();
        if ties.redelivered > 0 {
            let differing: Vec<String> = ties.differing.iter().cloned().collect();
            why.push(format!(
                "{} {} the same as an earlier one with the same {what}, except for {}, which therefore {} not compared.",
                counted(ties.redelivered, "record"),
                agreeing(ties.redelivered, "says", "say"),
                listed(&differing),
                agreeing(differing.len(), "is", "are"),
            ));
        }
        let named: Vec<String> = of_delivery.iter().filter(|path| !ties.differing.contains(*path)).cloned().collect();
        if !named.is_empty() {
            let either = if ties.redelivered > 0 { " either" } else { "" };
            why.push(format!(
                "By {}, {} {} to the delivery, and {} not compared{either}.",
                agreeing(named.len(), "its name", "their names"),
                listed(&named),
                agreeing(named.len(), "belongs", "belong"),
                agreeing(named.len(), "is", "are"),
            ));
        }
        if ties.rewritten > 0 {
            why.push(format!(
                "{} {} the same JSON as an earlier one with the same {what}, in other bytes.",
                counted(ties.rewritten, "record"),
                agreeing(ties.rewritten, "holds", "hold"),
            ));
        }
        if why.is_empty() {
            return;
        }
        self.comment(&why.join(" "));
        let mut except: Vec<&String> = ties.differing.iter().chain(&named).collect();
        except.sort_unstable();
        let except: Vec<String> = except.into_iter().map(|path| in_yaml(path)).collect();
        let except = if except.is_empty() { String::new() } else { format!(", except: [{}]", except.join(", ")) };
        self.line(&format!("contents: {{fingerprint: value{except}}}"));
    }
}

/// Why conflicts are passed on or not, and the action.
fn on_conflict(order: &Order, ties: &Ties, records: usize) -> (String, &'static str) {
    if let (Some(first), true) = (&ties.first, *order != Order::None || ties.others > 0) {
        let have = match order {
            Order::None => "the identity of an earlier one and other contents",
            Order::Time(_) | Order::Version => "the newest version of their identity and other contents",
        };
        let have = if ties.conflicts == 1 { have.replace("their", "its") } else { have.to_owned() };
        let why = format!(
            "{} of {} {} {have}, so such a record is passed on: {}.",
            ties.conflicts,
            counted(records, "record"),
            agreeing(ties.conflicts, "has", "have"),
            first.words(),
        );
        return (why, "forward");
    }
    let no_tie = "A record that repeats the newest version of its identity with other contents is passed on; none of these \
                  records does.";
    match order {
        Order::Time(path) => (format!("{path} is a time, which two changes may share. {no_tie}"), "forward"),
        Order::Version => (no_tie.to_owned(), "forward"),
        Order::None if ties.repeats == 0 => (
            "A record that repeats an identity with other contents is passed on: no record here repeats an identity, so \
             nothing shows what that means."
                .to_owned(),
            "forward",
        ),
        Order::None => (
            format!(
                "{} {} the identity of an earlier record and {} the same. A record that says something else is dropped, \
                 counted and logged: write `forward` if it is another thing.{}",
                counted(ties.repeats, "record"),
                agreeing(ties.repeats, "has", "have"),
                agreeing(ties.repeats, "says", "say"),
                ties.first.as_ref().map_or_else(String::new, |first| format!(
                    " By their contents {} of them {} all the same: {}.",
                    ties.conflicts,
                    agreeing(ties.conflicts, "is a conflict", "are conflicts"),
                    first.words()
                )),
            ),
            "drop",
        ),
    }
}
