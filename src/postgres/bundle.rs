//! Combines consecutive calls of a transaction into bundles: one statement over many rows.
//!
//! A bundle contains calls of one statement whose keys differ and whose rows have the same columns, with no other call
//! between them. So the pieces have the same effect as the calls one by one; `upsert::bulk` has the conditions.

use std::mem::take;

use ahash::HashSet;
use tokio_postgres::Client;

use super::batch::Batch;
use super::statement::Prepared;
use super::upsert::bulk::{BulkCandidate, BulkStatement};
use crate::effect::Call;

/// The maximum number of rows of a bundle: in a larger one, a row costs no less, and the server starts on a bundle
/// while the next ones are being sent.
const ROWS_MAX: usize = 256;
/// The maximum size of a bundle of several rows, in bytes.
const BYTES_MAX: usize = 1 << 20;

/// One request.
pub(super) enum Piece<'a> {
    /// A call of a record.
    Single(usize, Call<'a>),
    Bundle(Bundle<'a>),
}

/// Calls that are executed by one statement.
pub(super) struct Bundle<'a> {
    /// The number of the statement that is called.
    pub statement: usize,
    /// The statement over many rows that executes them.
    pub bulk_statement: &'a BulkStatement,
    /// The records' numbers and their rows.
    pub rows: Vec<(usize, &'a str)>,
}

/// Calls that may become a bundle, with more to come.
struct OpenBundle<'a> {
    bundle: Bundle<'a>,
    calls: Vec<Call<'a>>,
    key_hashes: HashSet<u64>,
    bytes: usize,
}

/// The calls of a batch in order, each with its record's number.
fn calls<'a>(batch: &Batch<'a>) -> impl Iterator<Item = (usize, Call<'a>)> {
    (0..batch.records.len()).flat_map(|record| batch.record(record).calls().map(move |call| (record, call)))
}

/// A batch's calls, each as a piece of its own.
pub(super) fn single_calls<'a>(batch: &Batch<'a>) -> Vec<Piece<'a>> {
    calls(batch).map(|(record, call)| Piece::Single(record, call)).collect()
}

/// A batch's calls, bundled where possible. May prepare the bundles' statements.
pub(super) async fn bundle_calls<'a>(client: &Client, batch: &Batch<'a>) -> Vec<Piece<'a>> {
    if batch.statements.iter().all(|statement| statement.bulk_plan.is_none()) {
        return single_calls(batch);
    }
    let (mut pieces, mut open) = (Vec::new(), None);
    for (record, call) in calls(batch) {
        let statement = call.statement() as usize;
        let row = call.parameters().next().flatten();
        let plan = batch.statements.get(statement).and_then(|prepared| prepared.bulk_plan.as_ref());
        let candidate = match (plan, row) {
            (Some(plan), Some(row)) => {
                plan.candidate(client, row, call.texts()).await.map(|candidate| (candidate, row))
            }
            _ => None,
        };
        let Some((candidate, row)) = candidate else {
            close_bundle(&mut open, batch.statements, &mut pieces);
            pieces.push(Piece::Single(record, call));
            continue;
        };
        if !open.as_ref().is_some_and(|open: &OpenBundle<'_>| open.accepts(statement, &candidate, row)) {
            close_bundle(&mut open, batch.statements, &mut pieces);
        }
        let bundle = Bundle { statement, bulk_statement: candidate.statement, rows: Vec::new() };
        let new = || OpenBundle { bundle, calls: Vec::new(), key_hashes: HashSet::default(), bytes: 0 };
        let open = open.get_or_insert_with(new);
        open.bundle.rows.push((record, row));
        open.calls.push(call);
        open.key_hashes.insert(candidate.key_hash);
        open.bytes += row.len();
    }
    close_bundle(&mut open, batch.statements, &mut pieces);
    pieces
}

impl OpenBundle<'_> {
    fn accepts(&self, statement: usize, candidate: &BulkCandidate<'_>, row: &str) -> bool {
        self.bundle.statement == statement
            && std::ptr::eq(self.bundle.bulk_statement, candidate.statement)
            && self.calls.len() < ROWS_MAX
            && self.bytes + row.len() <= BYTES_MAX
            && !self.key_hashes.contains(&candidate.key_hash)
    }
}

/// Adds the open calls to the pieces: as a bundle, if there are enough of them, or one by one.
fn close_bundle<'a>(open: &mut Option<OpenBundle<'a>>, statements: &[Prepared], pieces: &mut Vec<Piece<'a>>) {
    let Some(OpenBundle { bundle, mut calls, .. }) = open.take() else { return };
    let rows_min = statements[bundle.statement].bulk_plan.as_ref().map_or(0, |plan| plan.rows_min());
    if bundle.rows.len() >= rows_min {
        pieces.push(Piece::Bundle(bundle));
    } else {
        let records = bundle.rows.iter().zip(take(&mut calls));
        pieces.extend(records.map(|(&(record, _), call)| Piece::Single(record, call)));
    }
}
