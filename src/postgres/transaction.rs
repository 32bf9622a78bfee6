//! One transaction: the rows' updates, the inbox, the effects, COMMIT.
//!
//! Calls are sent in pieces, and several calls as one piece where the effect is the same (`bundle`). If a piece of
//! several calls is refused, it is unknown which call is the cause, so the transaction is attempted again call by call.
//!
//! Every request is sent as early as possible. Only two kinds of responses are awaited: the inbox's, if there is an
//! inbox, before the effects, and the counts of the rows' updates before COMMIT. Responses arrive in the order of the
//! requests, so the first error is the cause: PostgreSQL refuses the requests after it.
//!
//! The number of rows that a statement has to change is compared here, not by PostgreSQL: if a statement has
//! `expect_rows`, all responses are awaited before COMMIT.

use tokio::task::yield_now;

use super::batch::Batch;
use super::bundle::{self, Piece};
use super::class::{ErrorClass, Trouble};
use super::connection::Connection;
use super::rejected;
use super::run::{RequestKind, Run};
use super::settings::Shared;
use crate::effect::{CommitError, Error, RedoBuilder, Rejected, Step};

/// The maximum number of pending requests.
const PENDING_MAX: usize = 4_096;
/// The number of calls after which the written requests are flushed, so that the server starts while the rest is
/// written.
const RECORDS_PER_FLUSH: usize = 64;
/// COMMIT behind a query that fails if the transaction has failed, which reveals the failure. A bare COMMIT would then
/// roll back and report success.
const COMMIT: &str = "select 1; commit";

/// Commits one transaction.
pub(super) async fn commit(
    connection: &Connection,
    shared: &Shared,
    steps: &[Step<'_>],
    redos: &mut dyn RedoBuilder,
) -> Result<(), CommitError> {
    let held = |trouble: Trouble| CommitError::Held(connection.with_end_reason(trouble).into_error());
    let statements = connection.statements(&shared.settings).await.map_err(held)?;
    let batch = Batch::new(steps, &statements, shared);
    if (0..batch.records.len()).any(|record| batch.unsendable_reason(record).is_some()) {
        return Err(rejected::find(connection, &batch, "a record cannot be sent").await);
    }
    let mut early_redos = Vec::new();
    if !batch.has_answers {
        early_redos = (0..steps.len()).map(|step| redos.redo(step, &[])).collect();
    }
    let pieces = bundle::bundle_calls(&connection.client, &batch).await;
    let mut failure = attempt(connection, &batch, &pieces, &early_redos, redos).await.err();
    if let Some(statement) = failure.as_ref().and_then(|failure| failure.refused_bundle) {
        // Nothing was committed, and a bundle's error does not identify a record.
        failure = attempt(connection, &batch, &bundle::single_calls(&batch), &early_redos, redos).await.err();
        if let (None, Some(plan)) = (&failure, &statements[statement].bulk_plan) {
            plan.disable();
        }
    }
    let Some(AttemptFailure { failed, refusal, has_stale_statement, .. }) = failure else { return Ok(()) };
    if has_stale_statement {
        // An error of preparing the statement again is returned now, as it would be at the next attempt.
        connection.reprepare_statements(&shared.settings).await.map_err(held)?;
    }
    match refusal {
        Some(reason) => Err(find_refused_records(connection, shared, steps, &reason).await),
        None => Err(failed),
    }
}

/// The failure of an attempt.
struct AttemptFailure {
    failed: CommitError,
    /// The number of the statement whose bundle has to be executed call by call.
    refused_bundle: Option<usize>,
    /// The error for a record that is refused, or may be.
    refusal: Option<String>,
    has_stale_statement: bool,
}

/// Attempts the transaction once. A failed attempt is rolled back, unless it may have been committed.
async fn attempt(
    connection: &Connection,
    batch: &Batch<'_>,
    pieces: &[Piece<'_>],
    early_redos: &[Vec<u8>],
    redos: &mut dyn RedoBuilder,
) -> Result<(), AttemptFailure> {
    let mut late_redos = Vec::new();
    let mut run = Run::new(connection, batch);
    let executed = execute(&mut run, pieces, early_redos).await;
    let committed = match executed {
        Ok(()) if batch.has_answers => {
            for step in 0..batch.steps.len() {
                let answers = run.answers(step);
                late_redos.push(redos.redo(step, &answers));
            }
            commit_run(&mut run, &late_redos).await
        }
        Ok(()) => commit_run(&mut run, &[]).await,
        Err(failed) => Err(failed),
    };
    let Err(failed) = committed else { return Ok(()) };
    if matches!(failed, CommitError::Unknown(_)) {
        return Err(AttemptFailure { failed, refused_bundle: None, refusal: None, has_stale_statement: false });
    }
    let refusal = run.refused_record().map(|(_, trouble)| trouble.message.clone());
    let (refused_bundle, has_stale_statement) = (run.refused_bundle(), run.has_stale_statement());
    drop(run);
    connection.roll_back().await;
    Err(AttemptFailure { failed, refused_bundle, refusal, has_stale_statement })
}

/// Finds the refused records, by statements that are prepared again: a table's types may have been altered, and
/// statements prepared before would use the old ones.
async fn find_refused_records(
    connection: &Connection,
    shared: &Shared,
    steps: &[Step<'_>],
    reason: &str,
) -> CommitError {
    match connection.reprepare_statements(&shared.settings).await {
        Ok(statements) => rejected::find(connection, &Batch::new(steps, &statements, shared), reason).await,
        Err(trouble) => CommitError::Held(connection.with_end_reason(trouble).into_error()),
    }
}

/// Executes everything before COMMIT.
async fn execute<'a>(run: &mut Run<'a>, pieces: &[Piece<'a>], redos: &'a [Vec<u8>]) -> Result<(), CommitError> {
    run.begin(redos).await?;
    let mut unflushed = 0;
    for piece in pieces {
        unflushed += run.send_piece(piece);
        if run.pipeline.len() > PENDING_MAX {
            run.drain_to(PENDING_MAX / 2).await?;
        } else if unflushed >= RECORDS_PER_FLUSH {
            unflushed = 0;
            yield_now().await;
        }
    }
    let awaits_all = run.batch.has_answers || run.batch.expects_rows;
    if awaits_all { run.drain_to(0).await } else { run.await_row_updates().await }
}

/// Writes the redos that depend on the records' answers, and commits.
async fn commit_run<'a>(run: &mut Run<'a>, redos: &'a [Vec<u8>]) -> Result<(), CommitError> {
    for (step, redo) in run.batch.steps.iter().zip(redos) {
        let (statement, values) = run.connection.rows.redo(step, redo);
        run.pipeline.execute(RequestKind::Redo, statement, values);
    }
    if !redos.is_empty() {
        run.drain_to(0).await?;
    }
    run.pipeline.simple(RequestKind::Commit, COMMIT);
    let Err(failed) = run.drain_to(0).await else { return Ok(()) };
    let Some((kind, trouble)) = &run.trouble else { return Err(failed) };
    let is_certain = trouble.is_from_server && !(*kind == RequestKind::Commit && trouble.is_fatal);
    let unknown = |message| CommitError::Unknown(Error { kind: crate::effect::ErrorKind::Passing, message });
    match (kind, trouble.class) {
        // Nothing was committed if the server has reported an error before COMMIT. An error of COMMIT that ends the
        // session may have occurred after the commit itself.
        _ if !is_certain && !run.pipeline.has_unsent => Err(unknown(trouble.message.clone())),
        // A deferred constraint, or a deferred trigger: the statements themselves have passed.
        (RequestKind::Commit, class) if class == ErrorClass::Data || trouble.is_user_defined() => {
            match run.batch.records.as_slice() {
                &[(step, effect)] => {
                    Err(CommitError::Rejected(vec![Rejected { step, effect, message: trouble.message.clone() }]))
                }
                _ => Err(CommitError::Refused(trouble.message.clone())),
            }
        }
        _ => Err(failed),
    }
}
