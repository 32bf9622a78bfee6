//! Checks statements: each is one, stays within its transaction, and has the parameters that it uses.

use std::ops::Range;

use crate::topology::spec::sink::StatementSpec;
use crate::yaml::{Place, Placed, Text};

use super::{Compiler, sql};

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
    ("prepare", TRANSACTION),
    ("execute", CONNECTION),
    ("deallocate", CONNECTION),
    ("declare", CONNECTION),
    ("discard", CONNECTION),
    ("set", CONNECTION),
    ("reset", CONNECTION),
    ("listen", CONNECTION),
    ("unlisten", CONNECTION),
    ("load", CONNECTION),
    ("copy", ALONE),
    ("vacuum", ALONE),
    ("checkpoint", ALONE),
];
const TRANSACTION: &str = "the transaction is ratchet's: it begins before a record's statements and is committed after those \
                           of many";
const CONNECTION: &str = "it changes the connection, which other records use as well";
const ALONE: &str = "it cannot be carried out among a record's statements";

impl Compiler<'_> {
    /// What a statement has to be, whatever it does.
    pub(super) fn check_statement(&mut self, spec: &StatementSpec) {
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
        let word = statement.first.as_ref().map(|(word, _)| word.as_str());
        if let Some((word, at)) = &statement.first
            && let Some((_, why)) = REFUSED.iter().find(|(refused, _)| refused == word)
        {
            let place = self.within(&spec.sql, at.clone());
            let help = "remove it: a record's statements are carried out together with the note that they were";
            self.mistake(place, format!("a statement cannot be `{}`: {why}", word.to_uppercase()), "not here", help);
            return;
        }
        if word.is_none() && statement.parameters.is_empty() && text.trim_start().starts_with(['-', '/', ';']) {
            let message = "there is no statement in this text".to_owned();
            let help = "write e.g. `sql: 'insert into seen values ($1)'`";
            self.mistake(spec.sql.place, message, "nothing to carry out", help);
            return;
        }
        if spec.with_complete {
            self.check_parameters(spec, &statement);
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
