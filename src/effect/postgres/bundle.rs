//! Dividing a transaction's calls: several in a row become a bundle, one statement over many rows.
//!
//! A bundle holds calls of one statement whose keys differ and whose rows have the same columns, with no other call
//! between them. So the pieces in their order do what the calls do in theirs; `upsert::many` says where that is so.

use std::mem::take;

use ahash::HashSet;
use tokio_postgres::Client;

use super::batch::Batch;
use super::statement::Prepared;
use super::upsert::many::{Fit, Way};
use crate::effect::Call;

/// How many rows a bundle has at most: more cost no less each, and the server begins with it while the rest is written.
const ROWS_MAX: usize = 256;
/// How many bytes its rows have, if there are several.
const BYTES_MAX: usize = 1 << 20;

/// What is sent as one request.
pub(super) enum Piece<'a> {
    /// A call of a record.
    One(usize, Call<'a>),
    Bundle(Bundle<'a>),
}

/// Calls that are carried out as one.
pub(super) struct Bundle<'a> {
    /// The number of the statement that is called.
    pub statement: usize,
    /// How they are carried out.
    pub way: &'a Way,
    /// The records, and their rows.
    pub rows: Vec<(usize, &'a str)>,
}

/// Calls that may become a bundle.
struct Run<'a> {
    bundle: Bundle<'a>,
    calls: Vec<Call<'a>>,
    keys: HashSet<u64>,
    bytes: usize,
}

/// The calls of a batch, as they are, each with its record.
fn calls<'a>(batch: &Batch<'a>) -> impl Iterator<Item = (usize, Call<'a>)> {
    (0..batch.records.len()).flat_map(|record| batch.record(record).calls().map(move |call| (record, call)))
}

/// A batch's calls one by one.
pub(super) fn apart<'a>(batch: &Batch<'a>) -> Vec<Piece<'a>> {
    calls(batch).map(|(record, call)| Piece::One(record, call)).collect()
}

/// A batch's calls, bundled where they can be. May have to prepare what carries bundles out.
pub(super) async fn bundled<'a>(client: &Client, batch: &Batch<'a>) -> Vec<Piece<'a>> {
    if batch.statements.iter().all(|statement| statement.many.is_none()) {
        return apart(batch);
    }
    let (mut pieces, mut run) = (Vec::new(), None);
    for (record, call) in calls(batch) {
        let statement = call.statement() as usize;
        let row = call.parameters().next().flatten();
        let many = batch.statements.get(statement).and_then(|prepared| prepared.many.as_ref());
        let fit = match (many, row) {
            (Some(many), Some(row)) => many.fit(client, row, call.texts()).await.map(|fit| (fit, row)),
            _ => None,
        };
        let Some((fit, row)) = fit else {
            end(&mut run, batch.statements, &mut pieces);
            pieces.push(Piece::One(record, call));
            continue;
        };
        if !run.as_ref().is_some_and(|run: &Run<'_>| run.takes(statement, &fit, row)) {
            end(&mut run, batch.statements, &mut pieces);
        }
        let bundle = Bundle { statement, way: fit.way, rows: Vec::new() };
        let new = || Run { bundle, calls: Vec::new(), keys: HashSet::default(), bytes: 0 };
        let run = run.get_or_insert_with(new);
        run.bundle.rows.push((record, row));
        run.calls.push(call);
        run.keys.insert(fit.key);
        run.bytes += row.len();
    }
    end(&mut run, batch.statements, &mut pieces);
    pieces
}

impl Run<'_> {
    fn takes(&self, statement: usize, fit: &Fit<'_>, row: &str) -> bool {
        self.bundle.statement == statement
            && std::ptr::eq(self.bundle.way, fit.way)
            && self.calls.len() < ROWS_MAX
            && self.bytes + row.len() <= BYTES_MAX
            && !self.keys.contains(&fit.key)
    }
}

/// Ends a run: as a bundle, if it has enough rows for one.
fn end<'a>(run: &mut Option<Run<'a>>, statements: &[Prepared], pieces: &mut Vec<Piece<'a>>) {
    let Some(Run { bundle, mut calls, .. }) = run.take() else { return };
    let rows_min = statements[bundle.statement].many.as_ref().map_or(0, |many| many.rows_min());
    if bundle.rows.len() >= rows_min {
        pieces.push(Piece::Bundle(bundle));
    } else {
        let each = bundle.rows.iter().zip(take(&mut calls));
        pieces.extend(each.map(|(&(record, _), call)| Piece::One(record, call)));
    }
}
