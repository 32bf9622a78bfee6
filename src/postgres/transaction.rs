//! One transaction: the rows' updates, the writes to the inbox, the effects, COMMIT. The inbox (`inbox`) is a table
//! with a row for each identity, by which records are recognised whose effects were carried out before.
//!
//! Calls are sent in pieces: several calls become one piece if that does not change their effect (`bundle`). If a piece
//! of several calls is refused, it is unknown which call is the cause, so the transaction is attempted again call by
//! call.
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
/// The number of calls after which the task yields, so that the connection sends their requests, and the server starts
/// while the rest is prepared.
const CALLS_PER_YIELD: usize = 64;
/// COMMIT, preceded by a query. If the transaction has failed, the query fails too, COMMIT is not executed, and so the
/// failure is reported. A bare COMMIT would roll back and report success.
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
    let mut failure = try_commit(connection, &batch, &pieces, &early_redos, redos).await.err();
    if let Some(statement) = failure.as_ref().and_then(|failure| failure.refused_bundle_statement) {
        // Nothing was committed, and a bundle's error does not identify a record.
        failure = try_commit(connection, &batch, &bundle::single_calls(&batch), &early_redos, redos).await.err();
        if let (None, Some(plan)) = (&failure, &statements[statement].bulk_plan) {
            plan.disable();
        }
    }
    let Some(AttemptFailure { error, refusal, has_stale_statement, .. }) = failure else { return Ok(()) };
    if has_stale_statement {
        // An error of preparing the statement again is returned now, as it would be at the next attempt.
        connection.reprepare_statements(&shared.settings).await.map_err(held)?;
    }
    match refusal {
        Some(reason) => Err(find_refused_records(connection, shared, steps, &reason).await),
        None => Err(error),
    }
}

/// The failure of an attempt.
struct AttemptFailure {
    error: CommitError,
    /// The number of the statement whose bundle has to be executed call by call.
    refused_bundle_statement: Option<usize>,
    /// The error's message if the attempt failed at a record that is refused or may be refused.
    refusal: Option<String>,
    has_stale_statement: bool,
}

/// Attempts the transaction once. A failed attempt is rolled back, unless it may have been committed.
async fn try_commit(
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
        Err(error) => Err(error),
    };
    let Err(error) = committed else { return Ok(()) };
    if matches!(error, CommitError::Unknown(_)) {
        return Err(AttemptFailure {
            error,
            refused_bundle_statement: None,
            refusal: None,
            has_stale_statement: false,
        });
    }
    let refusal = run.refused_record().map(|(_, trouble)| trouble.message.clone());
    let (refused_bundle_statement, has_stale_statement) = (run.refused_bundle_statement(), run.has_stale_statement());
    drop(run);
    connection.roll_back().await;
    Err(AttemptFailure { error, refused_bundle_statement, refusal, has_stale_statement })
}

/// Finds the refused records. The statements are prepared again before: a table's types may have been altered, and the
/// former statements would still use the old types.
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
    let mut calls_since_yield = 0;
    for piece in pieces {
        calls_since_yield += run.send_piece(piece);
        if run.pipeline.len() > PENDING_MAX {
            run.drain_to(PENDING_MAX / 2).await?;
        } else if calls_since_yield >= CALLS_PER_YIELD {
            calls_since_yield = 0;
            yield_now().await;
        }
    }
    let awaits_all = run.batch.has_answers || run.batch.expects_rows;
    if awaits_all { run.drain_to(0).await } else { run.await_row_updates().await }
}

/// Writes the redos that depend on the records' answers (`redos` is empty if no redo does), and commits.
async fn commit_run<'a>(run: &mut Run<'a>, redos: &'a [Vec<u8>]) -> Result<(), CommitError> {
    for (step, redo) in run.batch.steps.iter().zip(redos) {
        let (statement, values) = run.connection.rows.redo(step, redo);
        run.pipeline.execute(RequestKind::Redo, statement, values);
    }
    if !redos.is_empty() {
        run.drain_to(0).await?;
    }
    run.pipeline.simple(RequestKind::Commit, COMMIT);
    let Err(error) = run.drain_to(0).await else { return Ok(()) };
    let Some((kind, trouble)) = &run.trouble else { return Err(error) };
    // Nothing was committed if a request was not sent: COMMIT is the last one. Nor was anything if the server has
    // reported an error, except that an error of COMMIT that ends the session may have occurred after the commit
    // itself.
    let has_server_refused = trouble.had_no_effect && !(*kind == RequestKind::Commit && trouble.is_fatal);
    let is_surely_uncommitted = run.pipeline.has_unsent || has_server_refused;
    let unknown = |message| CommitError::Unknown(Error { kind: crate::effect::ErrorKind::Transient, message });
    match (kind, trouble.class) {
        _ if !is_surely_uncommitted => Err(unknown(trouble.message.clone())),
        // A deferred constraint or a deferred trigger has failed: the statements themselves have succeeded.
        (RequestKind::Commit, class) if class == ErrorClass::Data || trouble.is_user_defined() => {
            match run.batch.records.as_slice() {
                &[(step, effect)] => {
                    Err(CommitError::Rejected(vec![Rejected { step, effect, message: trouble.message.clone() }]))
                }
                _ => Err(CommitError::Refused(trouble.message.clone())),
            }
        }
        _ => Err(error),
    }
}
