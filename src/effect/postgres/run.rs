//! A transaction under way: what was sent of it, and what has come back.

use super::batch::Batch;
use super::bundle::{Bundle, Piece};
use super::class::{Class, Trouble};
use super::connection::{BEGIN, Connection};
use super::pipeline::{Answered, Pipeline, Value};
use crate::effect::{Answer, Call, Failed};

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Begin,
    /// The update of a step's row.
    Row(usize),
    /// A round of the inbox.
    Round(usize),
    /// A savepoint before the record with this number.
    Savepoint(usize),
    /// A statement of the record with this number, by the statement's own.
    Record(usize, u32),
    /// A bundle of calls of the statement with this number.
    Bundle(usize),
    /// A step's redo.
    Redo,
    Commit,
}

/// A transaction that is under way.
pub(super) struct Run<'a> {
    pub connection: &'a Connection,
    pub batch: &'a Batch<'a>,
    pub pipeline: Pipeline<'a, What>,
    /// The steps whose rows are not as their marks say.
    fenced: Vec<usize>,
    /// Whether the inbox has not had the record before.
    pub is_new: Vec<bool>,
    /// The rows that came back for each record.
    rows: Vec<Vec<String>>,
    /// The record before which the last savepoint stands.
    pub savepoint: usize,
    /// The first thing that went wrong.
    pub trouble: Option<(What, Trouble)>,
}

impl<'a> Run<'a> {
    pub fn new(connection: &'a Connection, batch: &'a Batch<'a>) -> Self {
        let count = batch.records.len();
        Self {
            connection,
            batch,
            pipeline: connection.pipeline(),
            fenced: Vec::new(),
            is_new: vec![batch.rounds.is_empty(); count],
            rows: vec![Vec::new(); if batch.answers { count } else { 0 }],
            savepoint: 0,
            trouble: None,
        }
    }

    /// Begins, updates the rows, and asks the inbox, whose answer is waited for.
    pub async fn begin(&mut self, redos: &'a [Vec<u8>]) -> Result<(), Failed> {
        self.pipeline.simple(What::Begin, BEGIN);
        for &number in &self.batch.order {
            let redo = redos.get(number).map(Vec::as_slice);
            let (statement, values) = self.connection.rows.update(&self.batch.steps[number], redo);
            self.pipeline.execute(What::Row(number), statement, values);
        }
        if let Some(inbox) = &self.connection.inbox {
            for (number, round) in self.batch.rounds.iter().enumerate() {
                let (statement, values) = inbox.round(round);
                self.pipeline.query(What::Round(number), statement, values);
            }
            self.settle(0).await?;
        }
        Ok(())
    }

    /// Sends what a record causes, unless the inbox has it.
    pub fn send(&mut self, number: usize) {
        if !self.is_new[number] {
            return;
        }
        for call in self.batch.record(number).calls() {
            self.send_one(number, call);
        }
    }

    /// Sends a call of a record.
    fn send_one(&mut self, number: usize, call: Call<'a>) {
        let Some(statement) = self.batch.statements.get(call.statement() as usize) else { return };
        let texts = statement.takes_texts.then(|| call.texts());
        let values: Vec<_> = call.parameters().chain(texts).map(Value::text).collect();
        if statement.returns {
            self.pipeline.query(What::Record(number, call.statement()), &statement.sql, values);
        } else {
            self.pipeline.execute(What::Record(number, call.statement()), &statement.sql, values);
        }
    }

    /// Sends a piece, without the records that the inbox has. Says how many there were.
    pub fn send_piece(&mut self, piece: &Piece<'a>) -> usize {
        match piece {
            Piece::One(record, call) if self.is_new[*record] => self.send_one(*record, *call),
            Piece::One(..) => return 0,
            Piece::Bundle(Bundle { statement, way, rows }) => {
                let new = rows.iter().filter(|(record, _)| self.is_new[*record]);
                let new: Vec<_> = new.map(|(_, row)| *row).collect();
                let count = new.len();
                if count > 0 {
                    self.pipeline.execute(What::Bundle(*statement), &way.sql, way.values(new.into_iter()));
                }
                return count;
            }
        }
        1
    }

    /// Waits until at most so many requests are under way, or something went wrong.
    pub async fn settle(&mut self, left: usize) -> Result<(), Failed> {
        while self.trouble.is_none() && self.pipeline.len() > left {
            self.absorb().await;
        }
        if self.trouble.is_some() {
            // What follows an error fails because of it. The fence is known then: the rows' updates went first.
            while self.pipeline.len() > 0 {
                self.absorb().await;
            }
            return Err(self.stopped());
        }
        if left == 0 && !self.fenced.is_empty() { Err(self.stopped()) } else { Ok(()) }
    }

    /// Waits until the rows' updates are known to have found their rows.
    pub async fn settle_rows(&mut self) -> Result<(), Failed> {
        // They were sent first: what is under way beyond them are records.
        while self.pipeline.oldest().is_some_and(|what| matches!(what, What::Begin | What::Row(_))) {
            self.absorb().await;
        }
        if self.trouble.is_some() || !self.fenced.is_empty() || self.pipeline.has_refused {
            self.settle(0).await?;
        }
        Ok(())
    }

    async fn absorb(&mut self) {
        let Some((what, answered)) = self.pipeline.next().await else { return };
        let taken = answered.and_then(|answered| self.take(what, answered));
        if let Err(trouble) = taken
            && self.trouble.is_none()
        {
            let trouble = self.connection.explained(trouble);
            self.trouble = Some((what, self.named(what, trouble)));
        }
    }

    /// What the server says of a statement, with the statement before it.
    fn named(&self, what: What, trouble: Trouble) -> Trouble {
        match what {
            What::Record(_, number) if trouble.is_answer && !trouble.is_fatal => {
                let statement = self.batch.statements.get(number as usize);
                match statement {
                    Some(statement) => trouble.of(&statement.name),
                    None => trouble,
                }
            }
            _ => trouble,
        }
    }

    fn take(&mut self, what: What, answered: Answered) -> Result<(), Trouble> {
        match what {
            What::Begin => self.connection.check_process(&answered)?,
            What::Row(step) if answered.count == 0 => self.fenced.push(step),
            What::Round(number) => self.batch.rounds[number].mark(&answered, &mut self.is_new)?,
            What::Savepoint(record) => self.savepoint = record,
            What::Record(record, number) => {
                let rows = answered.count.max(answered.rows.len() as u64);
                let statement = self.batch.statements.get(number as usize);
                if let Some(message) = statement.and_then(|statement| statement.refuses(rows)) {
                    return Err(Trouble::data(message));
                }
                for row in &answered.rows {
                    self.rows[record].push(row.try_get(0)?);
                }
            }
            What::Redo if answered.count == 0 => return Err(Trouble::passing("a row is gone within its transaction")),
            What::Row(_) | What::Bundle(_) | What::Redo | What::Commit => {}
        }
        Ok(())
    }

    /// Why it stopped, where nothing was committed.
    fn stopped(&mut self) -> Failed {
        if !self.fenced.is_empty() {
            self.fenced.sort_unstable();
            return Failed::Fenced(self.fenced.clone());
        }
        let trouble = self.trouble.as_ref().map(|(_, trouble)| trouble.clone());
        Failed::Held(trouble.unwrap_or_else(|| Trouble::passing("it stopped without a reason")).into_error())
    }

    /// The statement whose bundle failed, for a reason that each call has to give for itself.
    pub fn refused_bundle(&self) -> Option<usize> {
        match &self.trouble {
            Some((What::Bundle(statement), trouble)) if self.fenced.is_empty() => {
                matches!(trouble.class, Class::Data | Class::Doubtful | Class::Lasting).then_some(*statement)
            }
            _ => None,
        }
    }

    /// The record whose data it stopped because of, or may have, and why.
    pub fn refused(&self) -> Option<(usize, &Trouble)> {
        match &self.trouble {
            Some((What::Record(record, _), trouble)) if self.fenced.is_empty() => {
                matches!(trouble.class, Class::Data | Class::Doubtful).then_some((*record, trouble))
            }
            _ => None,
        }
    }

    /// Whether a record's statement cannot be carried out as it was prepared, and that does not pass: the table may have
    /// changed since.
    pub fn is_out_of_date(&self) -> bool {
        matches!(&self.trouble, Some((What::Record(..), trouble)) if trouble.class == Class::Lasting)
    }

    /// The answers for the records of a step.
    pub fn answers(&mut self, step: usize) -> Vec<Answer> {
        let from = self.batch.records.partition_point(|(of, _)| *of < step);
        let to = self.batch.records.partition_point(|(of, _)| *of <= step);
        let answer = |record: usize| match self.is_new[record] {
            true => Answer::Done(std::mem::take(&mut self.rows[record])),
            false => Answer::InInbox,
        };
        (from..to).map(answer).collect()
    }
}
