//! A task as the engine sees one: its row, its marks, its redos.

use std::sync::Arc;

use ratchet::effect::{Answer, CommitError, Effects, RedoBuilder, RowKey, RowMark, Session, Sink as _, Step};
use ratchet::format::Token;
use ratchet::postgres::{Inbox, Postgres, Settings, Statement};

use crate::database::Database;

pub fn settings(database: &Database, statements: &[(&str, usize)]) -> Settings {
    settings_of(&database.url, statements.iter().map(|&(text, parameters)| sql(text, parameters)).collect())
}

pub fn settings_of(url: &str, statements: Vec<Statement>) -> Settings {
    Settings {
        url: url.to_owned(),
        schema: "ratchet".to_owned(),
        create: true,
        topology: "test".to_owned(),
        statements,
        inbox: None,
        has_text_decimals: true,
    }
}

pub fn with_inbox(settings: Settings, name: &str) -> Settings {
    Settings { inbox: Some(Inbox { name: name.to_owned(), retention_ms: None }), ..settings }
}

pub fn sql(text: &str, parameters: usize) -> Statement {
    Statement::Sql { text: text.to_owned(), parameters, returns: false, expect_rows: None }
}

pub fn session(settings: &Settings) -> Box<dyn Session> {
    Postgres::new(settings.clone()).expect("the settings are right").session()
}

pub fn key(partition: i32) -> RowKey {
    RowKey { topology: Arc::from("test"), topic: Arc::from("orders"), topic_id: [7; 16], partition }
}

pub fn token(transaction: u64) -> Token {
    Token { lane: 1, transaction, changelog_id: [9; 16], partition: 0 }
}

/// Gives each step a redo, and keeps what it was asked with.
#[derive(Default)]
pub struct Redos {
    pub asked: Vec<(usize, Vec<Answer>)>,
}

impl RedoBuilder for Redos {
    fn redo(&mut self, step: usize, answers: &[Answer]) -> Vec<u8> {
        self.asked.push((step, answers.to_vec()));
        format!("redo {step}: {answers:?}").into_bytes()
    }
}

/// A record's statements: their numbers and parameters.
pub type Calls<'a> = &'a [(u32, &'a [&'a str])];

/// The effects of records with these calls, whose identities are their numbers.
pub fn effects(records: &[Calls<'_>]) -> Effects {
    let mut effects = Effects::default();
    for (number, calls) in records.iter().enumerate() {
        effects.begin(number as i64, number.to_string().as_bytes(), None);
        add(&mut effects, calls);
    }
    effects
}

pub fn add(effects: &mut Effects, calls: Calls<'_>) {
    for (statement, parameters) in calls {
        effects.call(*statement);
        for parameter in *parameters {
            effects.parameter((*parameter != "NULL").then_some(*parameter));
        }
    }
}

/// One record for each of these parameters of statement 0.
pub fn each(parameters: &[&str]) -> Effects {
    let mut effects = Effects::default();
    for (number, parameter) in parameters.iter().enumerate() {
        effects.begin(number as i64, number.to_string().as_bytes(), None);
        add(&mut effects, &[(0, &[parameter])]);
    }
    effects
}

/// A claimed task.
pub struct Task {
    pub key: RowKey,
    pub mark: RowMark,
    transaction: u64,
}

impl Task {
    #[track_caller]
    pub fn claim(session: &mut dyn Session, partition: i32) -> Task {
        let key = key(partition);
        let claimed = session.claim(&key, true).expect("it can be claimed").expect("it may be inserted");
        let transaction = claimed.row.mark.token.map_or(0, |token| token.transaction);
        Task { key, mark: claimed.row.mark, transaction }
    }

    pub fn step<'a>(&'a self, effects: &'a Effects) -> Step<'a> {
        let next = effects.len() as i64;
        Step { key: &self.key, mark: &self.mark, token: token(self.transaction + 1), next, effects }
    }

    /// Commits these effects; where that works, the mark goes on.
    pub fn commit(&mut self, session: &mut dyn Session, effects: &Effects) -> Result<Vec<Answer>, CommitError> {
        let mut redos = Redos::default();
        session.commit(&[self.step(effects)], &mut redos)?;
        self.transaction += 1;
        self.mark.token = Some(token(self.transaction));
        Ok(redos.asked.remove(0).1)
    }
}

/// The numbers of the records that were rejected, with what was said.
#[track_caller]
pub fn rejected(failed: CommitError) -> Vec<(usize, String)> {
    match failed {
        CommitError::Rejected(rejected) => rejected.into_iter().map(|one| (one.effect, one.message)).collect(),
        other => panic!("{other:?}"),
    }
}
