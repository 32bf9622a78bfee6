//! Goal: the model agrees, on random records of every kind, with a second implementation of the rules that is as plain
//! as possible and keeps everything.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::dedup::tests::{paths, record, rules};
use crate::dedup::{Kind, Kinds, Reads, Reason, Refresh, Retention, Row as ReadRow};
use crate::format::{Digest, EntryRef};

mod given;

use given::{any_given, any_settings};

/// A record, or a row: its kind, identity, scope, version and time.
#[derive(Clone, Debug)]
struct Row {
    kind: Kind,
    key: u8,
    scope: Option<u8>,
    version: Option<u8>,
    contents: u8,
}

#[derive(Clone, Debug)]
struct Given {
    rows: Vec<Row>,
    timestamp: Option<i64>,
}

#[derive(Clone, Debug)]
struct Settings {
    versions: bool,
    retention: Option<i64>,
    on_duplicate: bool,
    forward_equal: bool,
    forward_epochs: bool,
    drop_versionless: bool,
    reads_by_version: bool,
    conflicts: Conflicts,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Conflicts {
    NotCompared,
    Dropped,
    Forwarded,
    DeadLettered,
}

/// What is remembered.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    seen: Option<i64>,
    /// The versions of the streamed change and of the snapshot's read.
    streamed: Option<u8>,
    read: Option<u8>,
    scope: Option<u8>,
    owes: bool,
    /// The contents met at the version of the streamed change, or of the identity, and at that of the read: in the order
    /// in which they came, at most as many in all as an entry knows.
    contents: Vec<(bool, u8)>,
}

impl Entry {
    fn version(&self) -> Option<u8> {
        self.streamed.max(self.read)
    }

    fn knows(&self, is_read: bool, contents: u8) -> bool {
        let of_class = |(of_read, _): &&(bool, u8)| *of_read == is_read;
        let mut known = self.contents.iter().filter(of_class).peekable();
        known.peek().is_none() || known.any(|(_, known)| *known == contents)
    }

    fn meet(&mut self, is_read: bool, contents: u8) {
        if !self.contents.contains(&(is_read, contents)) {
            self.contents.push((is_read, contents));
            if self.contents.len() > crate::format::CONTENTS_MAX {
                // The class that has more of them loses its oldest.
                let reads = self.contents.iter().filter(|(of_read, _)| *of_read).count();
                let loses = reads * 2 > self.contents.len();
                let oldest = self.contents.iter().position(|(of_read, _)| *of_read == loses).expect("it has more");
                self.contents.remove(oldest);
            }
        }
    }
}

/// Everything that has happened; the rules are applied by searching all of it.
struct Plain {
    settings: Settings,
    now: Option<i64>,
    entries: HashMap<String, Entry>,
    /// Offset, scope, version.
    history: Vec<(i64, u8, u8)>,
    /// Scope, bound, where it began.
    segments: Vec<(u8, Option<u8>, i64)>,
    /// Whether, among three or more scopes, one came back unnoticed: the staircases do not know all of such a history.
    is_beyond: Cell<bool>,
    /// Where segments began that were put before others, which had followed them unnoticed.
    put_back: HashSet<i64>,
}

enum Order {
    Newer,
    Older,
    Back(i64),
}

impl Plain {
    fn new(settings: Settings) -> Self {
        let (entries, history, segments, is_beyond, put_back) = Default::default();
        Self { settings, now: None, entries, history, segments, is_beyond, put_back }
    }

    fn reached(&self, scope: u8, at: i64) -> Option<u8> {
        let of = self.history.iter().filter(|(offset, s, _)| *s == scope && *offset <= at);
        of.map(|(_, _, version)| *version).max()
    }

    fn began(&self, scope: u8, version: u8) -> Option<i64> {
        let of = self.segments.iter().filter(|(s, above, _)| *s == scope && above.is_none_or(|above| above < version));
        of.max_by_key(|(_, above, _)| *above).map(|(_, _, began)| *began)
    }

    /// `None` where versions are comparable.
    fn order(&self, row: &Row, offset: i64, entry: Option<&Entry>) -> Option<Order> {
        let (scope, version, entry) = (row.scope?, row.version?, entry?);
        let (other, since) = (entry.scope?, self.began(entry.scope?, entry.version()?)?);
        if other == scope {
            return None;
        }
        Some(match self.began(scope, version) {
            None => Order::Newer,
            Some(began) if began > since => match self.unnoticed_failback(other, entry.version()?, began) {
                None => Order::Newer,
                Some(at) => {
                    let scopes: HashSet<u8> = self.segments.iter().map(|(scope, ..)| *scope).collect();
                    self.is_beyond.set(self.is_beyond.get() || scopes.len() > 2);
                    let change = self.segments.iter().map(|(.., began)| *began).filter(|began| *began > at).min();
                    let above = Some(version) > self.reached(scope, change.unwrap_or(i64::MAX));
                    if above && offset > at { Order::Back(at) } else { Order::Older }
                }
            },
            Some(_) if Some(version) > self.reached(scope, since) && offset > since => Order::Back(since),
            Some(_) => Order::Older,
        })
    }

    /// Where a scope continued unnoticed after another one's segment had begun.
    fn unnoticed_failback(&self, scope: u8, version: u8, began: i64) -> Option<i64> {
        self.reached(scope, began).filter(|reached| *reached < version)?;
        self.history.iter().filter(|(at, s, v)| *s == scope && *at > began && *v >= version).map(|(at, ..)| *at).min()
    }

    fn start_segment(&mut self, scope: u8, version: u8, since: i64, offset: i64) {
        let others: Vec<i64> = self.segments.iter().filter(|(s, ..)| *s != scope).map(|(.., began)| *began).collect();
        let reached_it =
            self.history.iter().find(|(at, s, v)| *at > since && *s == scope && *v >= version).map(|(at, ..)| *at);
        let follower = reached_it.and_then(|at| others.iter().copied().filter(|began| *began > at).min());
        // One that is put before one that was put there itself divides what the staircases have kept as one step.
        let scopes: HashSet<u8> = self.segments.iter().map(|(scope, ..)| *scope).collect();
        let is_divided = scopes.len() > 2 && follower.is_some_and(|follower| self.put_back.contains(&follower));
        self.is_beyond.set(self.is_beyond.get() || is_divided);
        let began = follower.map_or(offset, |follower| follower - 1);
        self.put_back.extend(follower.map(|_| began));
        let before = others.into_iter().filter(|other| *other <= began).max().unwrap();
        let change = self.segments.iter().map(|(.., began)| *began).filter(|began| *began > since).min();
        let until = if before < since { change.unwrap_or(i64::MAX) } else { before };
        let above = self.reached(scope, until);
        self.segments.retain(|(s, bound, _)| (*s, *bound) != (scope, above));
        self.segments.push((scope, above, began));
    }

    fn live(&self, key: &str) -> Option<&Entry> {
        let entry = self.entries.get(key)?;
        match (self.settings.retention, entry.seen, self.now) {
            (Some(retention), Some(seen), Some(now)) if seen + retention < now => None,
            _ => Some(entry),
        }
    }

    fn key(row: &Row) -> String {
        match row.kind {
            Kind::Truncate => "table".to_owned(),
            Kind::Message => format!("message {:?}", row.version),
            _ => row.key.to_string(),
        }
    }

    /// The reason, whether it is forwarded, and the entry to remember.
    #[expect(clippy::too_many_lines, reason = "the rules of a verdict, in their order")]
    fn judge_row(&self, row: &Row, offset: i64) -> (Reason, bool, Option<Entry>, Option<Order>) {
        let (entry, is_row) =
            (self.live(&Self::key(row)), matches!(row.kind, Kind::Change | Kind::Delete | Kind::Read));
        let first = if self.entries.contains_key(&Self::key(row)) { Reason::Expired } else { Reason::First };
        let is_read = row.kind == Kind::Read;
        let fresh = |version: Option<u8>, scope| {
            let (streamed, read) = (version.filter(|_| !is_read), version.filter(|_| is_read));
            let contents = self.compared(row).into_iter().collect();
            Some(Entry { seen: self.now, streamed, read, scope, owes: row.kind == Kind::Delete, contents })
        };
        let refreshed =
            || entry.filter(|_| self.settings.on_duplicate).map(|e| Entry { seen: self.now.max(e.seen), ..e.clone() });
        if row.kind == Kind::Tombstone {
            return match entry {
                Some(e) if e.owes => {
                    let paid = Entry { owes: false, seen: self.now.max(e.seen), ..e.clone() };
                    (Reason::Tombstone, true, Some(paid), None)
                }
                _ => (Reason::TombstoneNotOwed, false, None, None),
            };
        }
        let simple = || match entry {
            Some(e) if self.conflicts(row, e) => {
                let made = fresh(None, None).map(|made| self.joined(row, e, (false, true), made));
                let (forwarded, remember) = self.on_conflict(row, e, made);
                (Reason::SeenOtherwise, forwarded, remember, None)
            }
            Some(_) => (Reason::Seen, false, refreshed(), None),
            None => (first, true, fresh(None, None), None),
        };
        if !self.settings.versions {
            return simple();
        }
        let Some(version) = row.version else {
            let owes = row.kind == Kind::Delete;
            let amended = match entry {
                _ if self.settings.drop_versionless => None,
                Some(e) if e.owes != owes => Some(Entry { owes, seen: self.now.max(e.seen), ..e.clone() }),
                None if owes => fresh(None, None),
                _ => None,
            };
            return (Reason::VersionMissing, !self.settings.drop_versionless, amended, None);
        };
        let table = self.live("table").filter(|_| is_row);
        let of_table = self.order(row, offset, table);
        let truncated = table.is_some_and(|table| match &of_table {
            Some(order) => matches!(order, Order::Older),
            None => Some(version) < table.version(),
        });
        let mut of_entry = self.order(row, offset, entry);
        if truncated || row.kind == Kind::Message {
            of_entry = None;
        }
        let since = |order: &Option<Order>| if let Some(Order::Back(since)) = order { Some(*since) } else { None };
        let back = since(&of_table).max(since(&of_entry));
        let is_new = row.scope.is_some_and(|scope| !self.segments.iter().any(|(s, ..)| *s == scope));
        if (back.is_some() || (is_new && !self.segments.is_empty())) && !self.settings.forward_epochs {
            return (Reason::EpochChanged, false, None, None);
        }
        // `Newer` marks a record that takes part in its scope's history.
        let note = row.scope.map(|_| back.map_or(Order::Newer, Order::Back));
        let (reason, forwarded, remember) = if truncated {
            (Reason::TableTruncated, false, None)
        } else if row.kind == Kind::Message {
            let (reason, forwarded, remember, _) = simple();
            (reason, forwarded, remember)
        } else {
            let pass = |reason| (reason, true, fresh(Some(version), row.scope));
            match (entry, &of_entry) {
                (None, _) => pass(first),
                (Some(e), _) if e.version().is_none() => pass(Reason::Newer),
                (_, Some(Order::Older)) => (Reason::EpochOlder, false, None),
                (_, Some(_)) => pass(Reason::EpochChanged),
                (Some(e), None) => self.judge_version(row, e),
            }
        };
        (reason, forwarded, remember, note)
    }

    /// The contents by which the row is compared.
    fn compared(&self, row: &Row) -> Option<(bool, u8)> {
        let is_compared = self.settings.conflicts != Conflicts::NotCompared;
        is_compared.then_some((row.kind == Kind::Read, row.contents))
    }

    fn conflicts(&self, row: &Row, e: &Entry) -> bool {
        self.compared(row).is_some_and(|(is_read, contents)| !e.knows(is_read, contents))
    }

    /// The entry with what stays known of contents, of reads and of others, and with the row's, unless nothing is known
    /// that they can be compared with.
    fn joined(&self, row: &Row, e: &Entry, (reads, others): (bool, bool), made: Entry) -> Entry {
        let stays = |is_read: bool| if is_read { reads } else { others };
        let contents = e.contents.iter().copied().filter(|(is_read, _)| stays(*is_read)).collect();
        let mut made = Entry { contents, ..made };
        if let Some((is_read, contents)) = self.compared(row)
            && (!stays(is_read) || self.conflicts(row, e))
        {
            made.meet(is_read, contents);
        }
        made
    }

    /// Whether it is forwarded, and the entry to remember.
    fn on_conflict(&self, row: &Row, e: &Entry, made: Option<Entry>) -> (bool, Option<Entry>) {
        match self.settings.conflicts {
            Conflicts::Forwarded => (true, made),
            // What is set aside is known only if another row has forwarded the record: see `judge`.
            Conflicts::Dropped | Conflicts::DeadLettered => {
                let seen = if self.settings.on_duplicate { self.now.max(e.seen) } else { e.seen };
                (false, Some(self.joined(row, e, (true, true), Entry { seen, ..e.clone() })))
            }
            Conflicts::NotCompared => (false, None),
        }
    }

    /// Within one scope.
    fn judge_version(&self, row: &Row, e: &Entry) -> (Reason, bool, Option<Entry>) {
        let (is_read, by_version) = (row.kind == Kind::Read, self.settings.reads_by_version);
        let known = if is_read { e.version() } else { e.streamed };
        let (seen, scope, owes) = (self.now, row.scope.or(e.scope), row.kind == Kind::Delete);
        let made = if is_read {
            let kept = (row.version == known, e.streamed.is_some());
            self.joined(
                row,
                e,
                kept,
                Entry { seen, streamed: e.streamed, read: row.version, scope, owes, contents: Vec::new() },
            )
        } else {
            // A read that is not above it, or that can no longer win, is of no use.
            let read = e.read.filter(|_| by_version && e.read > row.version);
            let kept = (read.is_some(), row.version == known);
            self.joined(row, e, kept, Entry { seen, streamed: row.version, read, scope, owes, contents: Vec::new() })
        };
        let refreshed = Entry { seen: self.now.max(e.seen), ..e.clone() };
        match row.version.cmp(&known) {
            _ if is_read && e.streamed.is_some() && !(by_version && row.version > e.streamed) => {
                (Reason::SnapshotRead, false, None)
            }
            std::cmp::Ordering::Greater => (Reason::Newer, true, Some(made)),
            std::cmp::Ordering::Less => (Reason::VersionOlder, false, None),
            std::cmp::Ordering::Equal if self.conflicts(row, e) => {
                let (forwarded, remember) = self.on_conflict(row, e, Some(made));
                (Reason::VersionTied, forwarded, remember)
            }
            _ if self.settings.forward_equal => (Reason::VersionEqual, true, Some(made)),
            _ => (Reason::VersionEqual, false, self.settings.on_duplicate.then_some(refreshed)),
        }
    }

    fn judge(&mut self, given: &Given, offset: i64) -> (Reason, bool) {
        self.now = self.now.max(given.timestamp);
        if let (Some(retention), Some(now), Some(timestamp)) = (self.settings.retention, self.now, given.timestamp)
            && timestamp < now - retention
        {
            return (Reason::Late, false);
        }
        let judged: Vec<_> = given.rows.iter().map(|row| self.judge_row(row, offset)).collect();
        let is_stale = |reason| {
            matches!(reason, Reason::VersionOlder | Reason::EpochOlder | Reason::SnapshotRead | Reason::TableTruncated)
        };
        let mut forwarded = judged.iter().filter(|(_, forwarded, ..)| *forwarded);
        let stale = judged.iter().position(|(reason, ..)| is_stale(*reason));
        let first = judged.iter().position(|(_, forwarded, ..)| *forwarded);
        let is_old = first.is_some() && forwarded.all(|(reason, ..)| *reason == Reason::VersionEqual);
        // Dropped or set aside, it counts before what is dropped as known.
        let is_conflict = |reason| matches!(reason, Reason::VersionTied | Reason::SeenOtherwise);
        let conflict = judged.iter().position(|(reason, ..)| is_conflict(*reason));
        let stale = stale.filter(|_| is_old);
        let speaks = first.filter(|_| stale.is_none()).or(conflict).or(stale).unwrap_or(0);
        let result = (judged[speaks].0, judged[speaks].1);
        let are_letters = self.settings.conflicts == Conflicts::DeadLettered;
        for (row, (reason, _, remember, note)) in given.rows.iter().zip(judged) {
            if let (Some(order), Some(scope), Some(version)) = (note, row.scope, row.version) {
                if let Order::Back(since) = order {
                    self.start_segment(scope, version, since, offset);
                } else if self.began(scope, u8::MAX).is_none() {
                    self.segments.push((scope, None, offset));
                }
                self.history.push((offset, scope, version));
            }
            let is_aside = are_letters && is_conflict(reason) && !result.1;
            if let Some(entry) = remember.filter(|_| !is_aside) {
                self.entries.insert(Self::key(row), entry);
            }
        }
        result
    }
}

fn read(rows: &[Row], is_compared: bool, arena: &mut Vec<u8>) -> Reading {
    let mut put = |bytes: &[u8]| {
        arena.extend_from_slice(bytes);
        arena.len() - bytes.len()..arena.len()
    };
    let rows: Vec<ReadRow> = rows
        .iter()
        .map(|row| ReadRow {
            key: put(Plain::key(row).as_bytes()),
            version: row.version.map(|version| put(&[0x81, version + 1])),
            scope: row.scope.map(|scope| put(&[2; 3][..usize::from(scope)])),
            kind: row.kind,
            table: Some(put(b"table")),
            contents: (is_compared && row.kind != Kind::Tombstone)
                .then(|| Digest::new(row.contents.into(), 1, row.kind == Kind::Read)),
        })
        .collect();
    match <[ReadRow; 1]>::try_from(rows) {
        Ok([only]) => Reading::Row(only),
        Err(rows) => Reading::Rows(rows),
    }
}

/// The words do not matter, since what is judged here already has its kind.
fn reads_by_version() -> Kinds {
    let (delete, read, truncate, message, table) = Default::default();
    let of = paths(&["value.op"]);
    Kinds { of, delete, read, reads: Reads::ByVersion, truncate, message, none: Vec::new(), table }
}

fn rules_of(settings: &Settings) -> Rules {
    let mut rules = rules(&["value.k"], settings.versions.then_some("value.v"));
    if settings.conflicts == Conflicts::NotCompared {
        rules.contents = None;
    }
    rules.retention = settings.retention.map_or(Retention::Forever, |ms| Retention::For { ms });
    let action = |forward| if forward { Action::Forward } else { Action::Drop };
    rules.refresh = if settings.on_duplicate { Refresh::OnDuplicate } else { Refresh::OnForward };
    rules.actions.equal_version = action(settings.forward_equal);
    rules.actions.epoch_change = action(settings.forward_epochs);
    rules.actions.missing_version = action(!settings.drop_versionless);
    rules.actions.conflict = match settings.conflicts {
        Conflicts::Forwarded => Action::Forward,
        Conflicts::DeadLettered => Action::DeadLetter,
        Conflicts::NotCompared | Conflicts::Dropped => Action::Drop,
    };
    if settings.reads_by_version {
        rules.kinds = Some(reads_by_version());
    }
    rules
}

/// Judges `given` at `offset`.
fn judge(model: &mut Model, given: &Given, offset: i64) -> Decision {
    let record = Record { timestamp: given.timestamp, ..record(offset, b"") };
    let is_compared = model.rules.contents.is_some();
    model.judge_with(&record, 1_000, |_, arena| read(&given.rows, is_compared, arena), |_, _| Carried::Out)
}

fn entries(model: &Model) -> HashMap<String, Entry> {
    let time = |at| Some(at).filter(|at| *at != crate::format::NO_TIME);
    let entry = |(key, bytes): (&[u8], &[u8])| {
        let EntryRef { last_seen, version, streamed, scope, from_read, owes_tombstone, contents, .. } =
            EntryRef::decode(bytes).unwrap();
        let scope = scope.map(|number| model.progress().epochs.scope(number).unwrap().len() as u8);
        let number = |version: &[u8]| version[1] - 1;
        let (version, streamed) = (version.map(number), streamed.map(number));
        let (streamed, read) = if from_read { (streamed, version) } else { (version, None) };
        let hash = |digest: Digest| u8::from_str_radix(&digest.hex()[14..], 16).unwrap();
        let contents = contents.digests().map(|digest| (digest.is_of_read(), hash(digest))).collect();
        let entry = Entry { seen: time(last_seen), streamed, read, scope, owes: owes_tombstone, contents };
        (String::from_utf8(key.to_vec()).unwrap(), entry)
    };
    model.entries().map(entry).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn model_agrees_with_the_plain_rules(
        given in prop::collection::vec(any_given(), 0..80),
        settings in any_settings(),
    ) {
        let mut model = Model::new(Arc::new(rules_of(&settings)));
        let mut plain = Plain::new(settings);
        for (offset, given) in given.iter().enumerate() {
            let decision = judge(&mut model, given, offset as i64);
            let expected = plain.judge(given, offset as i64);
            if plain.is_beyond.get() {
                break;
            }
            let late = decision.reason == Reason::Late;
            prop_assert_eq!((decision.reason, decision.action == Action::Forward), expected, "record {}", offset);
            prop_assert!(late || entries(&model) == plain.entries, "after record {}", offset);
        }
    }

    #[test]
    fn replaying_part_of_the_input_changes_nothing(
        given in prop::collection::vec(any_given(), 1..40),
        settings in any_settings(),
        parts in prop::collection::vec((0_usize..40, 0_usize..40), 1..4),
    ) {
        let mut model = Model::new(Arc::new(rules_of(&settings)));
        given.iter().enumerate().for_each(|(offset, given)| {
            judge(&mut model, given, offset as i64);
        });
        let (before, progress) = (entries(&model), model.progress().clone());
        for (from, length) in parts {
            for (offset, given) in given.iter().enumerate().skip(from).take(length) {
                prop_assert_eq!(judge(&mut model, given, offset as i64), Decision::REPLAYED);
            }
        }
        prop_assert_eq!(entries(&model), before);
        prop_assert_eq!(model.progress(), &progress);
    }

    /// A source sends everything again at later offsets: what was newest stays newest.
    #[test]
    fn prefix_redelivered_in_order_leaves_the_newest_versions(
        given in prop::collection::vec((0_u8..3, 0_u8..30), 1..40),
        failover in 0_usize..40,
        failback in 0_usize..40,
        prefix in 0_usize..40,
    ) {
        let mut model = Model::new(Arc::new(rules(&["value.k"], Some("value.v"))));
        let mut at = 0;
        let mut give = |model: &mut Model, (number, (key, _)): (usize, &(u8, u8))| {
            let second = (failover..failover + failback).contains(&number);
            // Each source continues counting from where it was.
            let row = Row { kind: Kind::Change, key: *key, scope: Some(u8::from(second)), version: Some(number as u8), contents: 0 };
            judge(model, &Given { rows: vec![row], timestamp: None }, at);
            at += 1;
        };
        given.iter().enumerate().for_each(|record| give(&mut model, record));
        let before = entries(&model);
        given.iter().enumerate().take(prefix).for_each(|record| give(&mut model, record));
        prop_assert_eq!(entries(&model), before);
    }

    /// Whatever the versions of the reads, and however they are compared.
    #[test]
    fn changes_and_reads_redelivered_in_order_are_dropped(
        given in prop::collection::vec((0_u8..3, any::<bool>(), 0_u8..30), 1..40),
        prefix in 0_usize..40,
        by_version in any::<bool>(),
    ) {
        let mut rules = rules(&["value.k"], Some("value.v"));
        rules.kinds = by_version.then(reads_by_version);
        let mut model = Model::new(Arc::new(rules));
        let again = given.iter().take(prefix);
        for (offset, (key, is_read, version)) in given.iter().chain(again).enumerate() {
            let kind = if *is_read { Kind::Read } else { Kind::Change };
            let row = Row { kind, key: *key, scope: None, version: Some(*version), contents: 0 };
            let decision = judge(&mut model, &Given { rows: vec![row], timestamp: None }, offset as i64);
            prop_assert!(offset < given.len() || decision.action == Action::Drop, "{:?}", decision);
        }
    }

    /// What the engine does at the end of a transaction and at an abort.
    #[test]
    fn aborted_transaction_leaves_progress_unchanged(
        given in prop::collection::vec(any_given(), 1..60),
        ends in prop::collection::vec((1_usize..8, any::<bool>()), 1..30),
    ) {
        let settings = Settings {
            versions: true,
            retention: None,
            on_duplicate: false,
            forward_equal: false,
            forward_epochs: true,
            drop_versionless: false,
            reads_by_version: true,
            conflicts: Conflicts::Forwarded,
        };
        let mut straight = Model::new(Arc::new(rules_of(&settings)));
        given.iter().enumerate().for_each(|(offset, given)| {
            judge(&mut straight, given, offset as i64);
        });
        let mut model = Model::new(Arc::new(rules_of(&settings)));
        let mut committed = (Progress::default(), Entries::default(), 0, None);
        let mut ends = ends.into_iter().chain(std::iter::repeat((5, true)));
        while committed.2 < given.len() {
            let (count, commits) = ends.next().unwrap();
            let to = given.len().min(committed.2 + count);
            (committed.2..to).for_each(|offset| {
                judge(&mut model, &given[offset], offset as i64);
            });
            if commits {
                committed.0.clone_from(&model.progress);
                (committed.1, committed.2, committed.3) = (model.entries.clone(), to, model.next);
            } else {
                model.progress.clone_from(&committed.0);
                (model.entries, model.next) = (committed.1.clone(), committed.3);
            }
            let scopes = model.progress.epochs.scopes().to_vec();
            prop_assert_eq!(&crate::dedup::Epochs::from_scopes(scopes, &crate::dedup::Bounds::DEFAULT), &model.progress.epochs);
        }
        prop_assert_eq!(entries(&model), entries(&straight));
        prop_assert_eq!(model.progress(), straight.progress());
    }
}
