//! Checks statements: each is one, stays within its transaction, and has the parameters that it uses.

use std::ops::Range;

use crate::postgres::{VERBS, check_sql};
use crate::topology::compile::compiler::Compiler;
use crate::topology::sink::spec::StatementSpec;
use crate::topology::sink::sql;
use crate::yaml::read::{clipped, did_you_mean, listed};
use crate::yaml::{Place, Placed, Text};

/// Words that a statement cannot begin with: they end or divide the transaction, or stay with the connection.
const REFUSED: &[(&str, &str)] = &[
    ("begin", TRANSACTION),
    ("start", TRANSACTION),
    ("commit", TRANSACTION),
    ("end", TRANSACTION),
    ("rollback", TRANSACTION),
    ("abort", TRANSACTION),
    ("savepoint", TRANSACTION),
    ("release", TRANSACTION),
    ("prepare", CONNECTION),
    ("execute", CONNECTION),
    ("deallocate", CONNECTION),
    ("declare", CONNECTION),
    ("fetch", CONNECTION),
    ("move", CONNECTION),
    ("close", CONNECTION),
    ("discard", CONNECTION),
    ("set", CONNECTION),
    ("reset", CONNECTION),
    ("listen", CONNECTION),
    ("unlisten", CONNECTION),
    ("load", CONNECTION),
    ("lock", TRANSACTION),
    ("copy", ALONE),
    ("vacuum", ALONE),
    ("checkpoint", ALONE),
    ("cluster", ALONE),
    ("reindex", ALONE),
    ("do", PARAMETERS),
    ("explain", SHOWS),
    ("show", SHOWS),
    ("table", SHOWS),
    ("create", ONCE),
    ("alter", ONCE),
    ("drop", ONCE),
    ("grant", ONCE),
    ("revoke", ONCE),
    ("comment", ONCE),
    ("analyze", ONCE),
    ("refresh", ONCE),
    ("import", ONCE),
    ("reassign", ONCE),
    ("security", ONCE),
];
const TRANSACTION: &str = "the transaction is ratchet's: it begins before a record's statements and is committed after those \
                           of many";
const CONNECTION: &str = "it changes the connection, which other records use as well";
const ALONE: &str = "it cannot be carried out among a record's statements";
const PARAMETERS: &str = "it takes no parameters; a function does, `select f($1)`";
const SHOWS: &str = "it only shows something";
const ONCE: &str = "it is for once, and would be carried out for each record";

impl Compiler<'_> {
    /// What a statement has to be, whatever it does.
    pub fn check_statement(&mut self, spec: &StatementSpec) {
        let text = spec.sql.value.reveal();
        let statement = match sql::read(text) {
            Ok(statement) => statement,
            Err(sql::Unclosed { what, at }) => {
                let place = self.within(&spec.sql, at..text.len());
                self.mistake(place, format!("{what} is not closed in this statement"), "opened here", "close it");
                return;
            }
        };
        if let Some(another) = statement.another {
            let place = self.within(&spec.sql, another..text.len());
            let message = "these are two statements in one".to_owned();
            let help = "write each one as an item of its own, `{sql: …, with: […]}`: they are carried out together";
            self.mistake(place, message, "the second one", help);
            return;
        }
        if !self.check_begin(spec, &statement) {
            return;
        }
        if spec.returns {
            self.check_returning(spec, &statement);
        }
        self.check_expected(spec, &statement);
        if spec.with_complete {
            self.check_parameters(spec, &statement);
        }
    }

    /// What it begins with is a statement that a record may carry out.
    fn check_begin(&mut self, spec: &StatementSpec, statement: &sql::Statement) -> bool {
        let Some((word, at)) = &statement.first else {
            let is_none = check_sql(spec.sql.value.reveal()).is_err();
            if is_none {
                let message = "there is no statement in this text".to_owned();
                let help = "write e.g. `sql: 'insert into seen values ($1)'`";
                self.mistake(spec.sql.place, message, "nothing to carry out", help);
            }
            return !is_none;
        };
        if VERBS.contains(&word.as_str()) {
            return true;
        }
        let place = self.within(&spec.sql, at.clone());
        let is_two_phase = word == "prepare" && statement.second.as_deref() == Some("transaction");
        if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| refused == word) {
            let why = if is_two_phase { TRANSACTION } else { why };
            let help = "remove it: a record's statements are carried out together with the note that they were";
            self.mistake(place, format!("a statement cannot be `{}`: {why}", word.to_uppercase()), "not here", help);
            return false;
        }
        let known = format!("a statement begins with one of {}", listed(&VERBS));
        let (label, help) = match did_you_mean(word, &VERBS) {
            Some(meant) => (format!("did you mean `{meant}`?"), format!("write `{meant}`")),
            None => ("no statement begins so".to_owned(), known),
        };
        let message = match spec.sql.value.is_secret() {
            true => "this is no SQL statement that a record can carry out".to_owned(),
            false => format!("`{}` is no SQL statement that a record can carry out", clipped(word)),
        };
        self.mistake(place, message, label, help);
        false
    }

    /// What is to return rows does.
    fn check_returning(&mut self, spec: &StatementSpec, statement: &sql::Statement) {
        let word = statement.first.as_ref().map_or("", |(word, _)| word.as_str());
        let (label, help) = match word {
            "insert" | "update" | "delete" | "merge" if !statement.returning => {
                ("there is no `returning` in it", "end it in e.g. `returning *`, or remove `returns: true`")
            }
            "truncate" | "call" | "notify" => ("it never does", "remove `returns: true`"),
            _ => return,
        };
        let message = format!("`returns: true`, and this `{}` returns no rows", word.to_uppercase());
        self.mistake(spec.sql.place, message, label, help);
    }

    /// `expect_rows` needs a statement of which PostgreSQL reports the number of rows.
    fn check_expected(&mut self, spec: &StatementSpec, statement: &sql::Statement) {
        let Some(expected) = &spec.expect_rows else { return };
        let word = statement.first.as_ref().map_or("", |(word, _)| word.as_str());
        if matches!(word, "truncate" | "call" | "notify") {
            let message =
                format!("`expect_rows` with a `{}`, whose rows PostgreSQL does not count", word.to_uppercase());
            let help = "remove it, or have a function raise an error: `select f($1)`";
            self.mistake(expected.place, message, "there is no number to compare it with", help);
        }
    }

    /// Each parameter of the statement is in `with`, and the other way round.
    fn check_parameters(&mut self, spec: &StatementSpec, statement: &sql::Statement) {
        let count = spec.with.len();
        let beyond = |number: u32| number == 0 || usize::try_from(number).is_ok_and(|number| number > count);
        if let Some((number, at)) = statement.parameters.iter().find(|(number, _)| beyond(*number)) {
            let place = self.within(&spec.sql, at.clone());
            let message = format!("there is no parameter {number}: `with` has {count}");
            let label = if *number == 0 { "they are numbered from 1" } else { "nothing stands for it" };
            self.mistake(place, message, label, "name what it is in `with`, e.g. `with: [value.id]`");
            return;
        }
        let is_used = |index: usize| statement.parameters.iter().any(|(used, _)| *used as usize == index + 1);
        let Some(unused) = (0..count).find(|index| !is_used(*index)) else { return };
        if let Some(foreign) = statement.foreign.as_ref().filter(|_| statement.parameters.is_empty()) {
            let place = self.within(&spec.sql, foreign.clone());
            let help = "write `$1` for the first of `with`, `$2` for the second";
            self.mistake(place, "PostgreSQL's parameters are `$1`, `$2`, …".to_owned(), "not a parameter", help);
            return;
        }
        let message = format!("the statement does not use parameter {}", unused + 1);
        let help = format!("write `${}` where it belongs, or remove it from `with`", unused + 1);
        self.mistake(spec.with[unused].place, message, "of no use", help);
    }

    /// The place of a part of a text, where it is known to the byte; otherwise that of the text.
    fn within(&self, text: &Placed<Text>, part: Range<usize>) -> Place {
        let source = self.file.text().get(text.place.start..text.place.end()).unwrap_or_default();
        let written = text.value.reveal();
        let inner = [('\'', '\''), ('"', '"')]
            .into_iter()
            .find_map(|(open, close)| source.strip_prefix(open).and_then(|rest| rest.strip_suffix(close)));
        let before = match inner {
            _ if text.value.is_secret() => return text.place,
            Some(inner) if inner == written => 1,
            _ if source == written => 0,
            _ => return text.place,
        };
        let from = text.place.start + before;
        Place::new(from + part.start, from + part.end)
    }
}
