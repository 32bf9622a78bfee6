//! The statements of the short forms: a table that is kept as the source has it, and an outbox.

use crate::dedup::{Format, Kind, Path, Places, Source};
use crate::topology::compile::compiler::{Compiler, shown};
use crate::topology::sink::spec::{OutboxSpec, TableSpec, whole_value};
use crate::topology::sink::{Command, Parameter, Statement, Table};
use crate::yaml::{Placed, Text};

/// The columns of Debezium's outbox router, in the order of [`OutboxSpec::columns`].
const OUTBOX_COLUMNS: &str = "id, aggregatetype, aggregateid, type, payload";

impl Compiler<'_> {
    /// The statements that keep a table; `None` after a mistake.
    pub fn kept_table(&mut self, spec: &TableSpec) -> Option<Vec<Statement>> {
        const KEY: &str = "sink.postgres.table";
        let table = spec.name.as_ref().and_then(|name| self.table_name(name, &format!("{KEY}.name")));
        let key = self.column_names(&spec.key, &format!("{KEY}.key"))?;
        let columns = match &spec.columns {
            Some(columns) => Some(self.column_names(columns, &format!("{KEY}.columns"))?),
            None => None,
        };
        if let Some(missing) = columns.as_ref().and_then(|all| key.iter().position(|column| !all.contains(column))) {
            let message = format!("`{KEY}.columns` lacks the key's column `{}`", shown(&spec.key[missing].value));
            let help = "add it to `columns`: what identifies a row has to be written";
            self.mistake(spec.key[missing].place, message, "not among the columns", help);
            return None;
        }
        let rows = self.row_places(spec)?;
        let deleted = self.deleted_places(&rows);
        self.check_null_row(&deleted);
        let table = table?;
        let there = self.kinds_there().unwrap_or_default();
        let row = |of: Places| vec![Parameter::Row { of, key: key.clone() }];
        let upsert = Command::Upsert { table: table.clone(), key: key.clone(), columns };
        let delete = Command::DeleteRow { table: table.clone(), key: key.clone() };
        let mut all = vec![Statement { command: upsert, with: row(rows), kinds: vec![Kind::Change, Kind::Read] }];
        if there.contains(&Kind::Delete) {
            all.push(Statement { command: delete, with: row(deleted), kinds: vec![Kind::Delete] });
        }
        if there.contains(&Kind::Truncate) {
            let command = Command::Truncate { table };
            all.push(Statement { command, with: Vec::new(), kinds: vec![Kind::Truncate] });
        }
        Some(all)
    }

    /// Where the row of a change is.
    fn row_places(&mut self, spec: &TableSpec) -> Option<Places> {
        let unkept = self.preset.and_then(|preset| Some((preset, preset.rows().err()?)));
        let unkept = unkept.filter(|(_, unkept)| spec.of.is_none() || !unkept.is_cured_by_place);
        if let (Some(of), None) = (&spec.of, &unkept) {
            return Some(of.clone());
        }
        // A preset by which a table can be kept has written `of`.
        if self.preset.is_none() {
            return Some(vec![whole_value()]);
        }
        if let Some((preset, unkept)) = unkept {
            let message = format!("the records of {} {}", preset.name, unkept.why);
            self.mistake(spec.place, message, unkept.question, unkept.help);
        }
        None
    }

    /// Where the row of a delete is, at least its key: beside that of a change, in the record's key, or where the row of
    /// a change is.
    fn deleted_places(&self, rows: &Places) -> Places {
        let before = |path: &Path| {
            let (last, steps) = path.steps.split_last()?;
            let before = [steps, &["before".to_owned()]].concat();
            (last == "after").then(|| Path { source: path.source.clone(), steps: before })
        };
        let mut places: Places = rows.iter().filter_map(before).collect();
        if self.spec.input.key_format.as_ref().is_some_and(|format| format.value != Format::Bytes) {
            places.push(Path { source: Source::Key, steps: Vec::new() });
        }
        places.extend(rows.iter().filter(|path| path.steps.last().is_none_or(|last| last != "after")).cloned());
        places
    }

    /// Columns' names, each once.
    fn column_names(&mut self, columns: &[Placed<Text>], key: &str) -> Option<Vec<String>> {
        let mut names: Vec<String> = Vec::new();
        for column in columns {
            let name = self.identifier(column, key)?;
            if names.contains(&name) {
                let message = format!("`{}` stands in `{key}` twice", shown(&column.value));
                self.mistake(column.place, message, "again", "remove one of them");
                return None;
            }
            names.push(name);
        }
        Some(names)
    }

    /// The statement that inserts an outbox's row.
    pub fn outbox_insert(&mut self, spec: &OutboxSpec, kinds: Vec<Kind>) -> Option<Statement> {
        let named = spec.table.as_ref().map(|name| self.table_name(name, "sink.postgres.outbox.table"));
        let table = named.unwrap_or_else(|| Some(Table(vec!["outbox".to_owned()])))?;
        let text = format!("insert into {} ({OUTBOX_COLUMNS}) values ($1, $2, $3, $4, $5)", table.quoted());
        let columns = spec.columns.clone()?.map(Parameter::At);
        let with = [Parameter::Digest].into_iter().chain(columns).collect();
        Some(Statement {
            command: Command::Sql { text: Text::plain(text), returns: false, expect_rows: None },
            with,
            kinds,
        })
    }
}
