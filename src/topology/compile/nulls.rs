//! What a null value that is a delete (`on_null_value: delete`) means to a database: nothing is read from it, so that its
//! key and its headers have to say which row is gone.
//!
//! Without that, the delete of a kept table would be refused record by record, and a statement would get null in place of
//! what it looks for: it would find no row, and say nothing.

use crate::dedup::{Kind, OnNull, Path, Places, Source};
use crate::topology::sink::spec::{PostgresSpec, StatementSpec};
use crate::yaml::Place;

use super::compiler::Compiler;

impl Compiler<'_> {
    /// Whether a null value is a delete, and where that is written.
    fn null_is_delete(&self) -> Option<Place> {
        let null_value = self.spec.actions.null_value.as_ref()?;
        (null_value.value == OnNull::Delete).then_some(null_value.place)
    }

    /// Statements for null values read nothing inside the value.
    pub fn check_null_deletes(&mut self, postgres: &PostgresSpec) {
        if self.null_is_delete().is_none() {
            return;
        }
        for statement in &postgres.statements {
            let help = "write what a delete does under `on`: `on: {change: [...], delete: [...]}`; a parameter can be \
                        `{first_of: [...]}` with what the key or a header holds";
            self.check_null_parameters(statement, help);
        }
        for statement in postgres.on.iter().filter(|on| on.kind == Kind::Delete).flat_map(|on| &on.statements) {
            let help = "name what the key or a header holds, e.g. `key`, or `{first_of: [value.id, key.id]}`";
            self.check_null_parameters(statement, help);
        }
        let is_called = postgres.on_place.is_none() || postgres.on.iter().any(|on| on.kind == Kind::Delete);
        let columns = postgres.outbox.as_ref().filter(|_| is_called).and_then(|outbox| outbox.columns.as_ref());
        if let (Some(columns), Some(place)) = (columns, postgres.outbox_place)
            && let Some(path) = columns[..PAYLOAD].iter().find_map(inside_value)
        {
            let message = format!("the outbox's row of a delete has null for `{path}`: {A_NULL_IS_A_DELETE}");
            let help = format!("name what the key or a header holds, e.g. `{{first_of: [{path}, key]}}`");
            self.mistake(place, message, NOTHING_INSIDE, help);
        }
    }

    fn check_null_parameters(&mut self, statement: &StatementSpec, help: &str) {
        for parameter in &statement.with {
            if let Some(path) = inside_value(&parameter.value) {
                let message = format!("this statement gets null for `{path}` of a delete: {A_NULL_IS_A_DELETE}");
                self.mistake(parameter.place, message, NOTHING_INSIDE, help);
            }
        }
    }

    /// A null value's row in a kept table is known by its key.
    pub fn check_null_row(&mut self, deleted: &Places) {
        let Some(place) = self.null_is_delete() else { return };
        if deleted.iter().all(|path| path.source == Source::Value) {
            let message =
                "`on_null_value: delete` with a `table` needs keys that are JSON objects, with the columns of \
                           the table's key"
                    .to_owned();
            let help = "write `key_format: json` (or `connect_json`) under `input`, or `on_null_value: dead_letter`";
            self.mistake(place, message, "nothing says which row a null value deletes", help);
        }
    }
}

/// The payload among an outbox's columns: null is a message of its own there, a tombstone.
const PAYLOAD: usize = 3;
const A_NULL_IS_A_DELETE: &str = "a null value is one (`on_null_value: delete`)";
const NOTHING_INSIDE: &str = "a null value has nothing in it";

/// The first of these paths, if all of them lead inside the value. What is null as a whole is told from what is not.
fn inside_value(places: &Places) -> Option<&Path> {
    let is_inside = |path: &Path| path.source == Source::Value && !path.steps.is_empty();
    places.first().filter(|_| places.iter().all(is_inside))
}
