//! Checks a sink, and turns it into the statements that each kind of record calls.

use crate::dedup::{Action, IdentityPart, Kind, OnNull, Retention, Source};
use crate::effect::call::KeyWindow;
use crate::postgres;
use crate::topology::compile::compiler::{Compiler, shown};
use crate::topology::compile::topics::Written;
use crate::topology::sink::spec::{PostgresSpec, StatementSpec};
use crate::topology::sink::sql;
use crate::topology::sink::{Command, Dedup, Handler, Inbox, Parameter, Postgres, Sink, Statement, Table};
use crate::topology::{Destination, Existing, Input, Output, names};
use crate::yaml::{Place, Placed, Text, secrets};

/// PostgreSQL's maximum length of a name, in bytes.
const NAME_BYTES_MAX: usize = 63;
/// The kinds of change that a record with a value can have.
const WITH_VALUE: &[Kind] = &[Kind::Change, Kind::Read, Kind::Delete, Kind::Truncate, Kind::Message];

impl Compiler<'_> {
    /// Where the topology's surviving records go.
    pub fn destination(&mut self, topics: &Written, name: Option<&str>, input: Option<&Input>) -> Option<Destination> {
        let Some(sink) = &self.spec.sink else {
            let existing = self.spec.existing.as_ref().map_or(Existing::Refuse, |existing| existing.value);
            return topics.output.clone().map(|topic| Destination::Output(Output { topic, existing }));
        };
        self.check_sink_actions();
        self.check_identity_of_effects();
        if let Some(http) = &sink.http {
            return self.http(http, topics, input).map(|http| Destination::Sink(Box::new(Sink::Http(Box::new(http)))));
        }
        if let Some(handler) = &sink.handler {
            let mut terms = self.terms(handler, Vec::new(), topics, input)?;
            terms.policy.key = terms.policy.key.map(KeyWindow::per_step);
            return Some(Destination::Sink(Box::new(Sink::Handler(Box::new(Handler { terms })))));
        }
        let postgres = sink.postgres.as_ref()?;
        self.check_forms(postgres);
        self.check_kinds_called(postgres);
        self.check_inbox(postgres);
        self.check_returns(postgres);
        self.check_repetitions(postgres);
        self.check_null_deletes(postgres);
        let result = postgres.result.as_ref();
        let result = result.map(|topic| self.result_topic(topic, "sink.postgres.result.topic", topics, input));
        let schema = postgres.schema.as_ref().map(|schema| self.identifier(schema, "sink.postgres.schema"));
        let statements = self.sink_statements(postgres);
        let inbox = self.inbox(postgres, name);
        Some(Destination::Sink(Box::new(Sink::Postgres(Postgres {
            url: postgres.url.as_ref()?.value.clone().into_secret(),
            schema: schema.map_or(Some("ratchet".to_owned()), |schema| schema)?,
            statements: statements?,
            inbox: inbox?,
            result,
            has_text_decimals: postgres.table.as_ref().is_some_and(|table| table.has_text_decimals),
        }))))
    }

    /// Reports what is wrong with a sink whatever the topology's other keys are.
    pub fn check_sink(&mut self) {
        self.check_on_duplicate();
        if let Some(http) = self.spec.sink.as_ref().and_then(|sink| sink.http.as_ref()) {
            self.check_http(http);
        }
        if let Some(handler) = self.spec.sink.as_ref().and_then(|sink| sink.handler.as_ref()) {
            self.check_terms(handler);
        }
        let Some(postgres) = self.spec.sink.as_ref().and_then(|sink| sink.postgres.as_ref()) else { return };
        if let Some(url) = &postgres.url {
            self.check_url(url);
        }
        let by_kind = postgres.on.iter().flat_map(|on| &on.statements);
        for statement in postgres.statements.iter().chain(by_kind) {
            self.check_statement(statement);
        }
    }

    fn check_url(&mut self, url: &Placed<Text>) {
        let written = url.value.reveal();
        let example = "write e.g. `url: ${env:DATABASE_URL}`, which holds `postgresql://user:password@host/database`";
        let problem = secrets::url_problem(written).map(str::to_owned);
        if let Some(problem) = problem.or_else(|| postgres::check_url(written).err()) {
            let message = format!("`sink.postgres.url` is not the address of a database: {problem}");
            self.mistake(url.place, message, "not a valid address", example);
        } else if self.is_password_written(url) {
            let message = "the password in `sink.postgres.url` is a secret and must not be written out".to_owned();
            let help =
                "write `url: ${env:DATABASE_URL}` or `url: ${file:PATH}`, or one of these in the password's place";
            self.mistake(url.place, message, "not shown", help);
        }
    }

    /// Whether the password stands in the file itself, also beside something that is substituted.
    pub fn is_password_written(&self, url: &Placed<Text>) -> bool {
        let source = self.file.text().get(url.place.start..url.place.end()).unwrap_or_default();
        secrets::has_password(source) || !url.value.is_secret() && secrets::has_password(url.value.reveal())
    }

    /// Exactly one form of statements, or an outbox alone.
    fn check_forms(&mut self, postgres: &PostgresSpec) {
        let forms =
            [("statements", postgres.statements_place), ("on", postgres.on_place), ("table", postgres.table_place)];
        let given: Vec<_> = forms.into_iter().filter_map(|(form, place)| Some((form, place?))).collect();
        if let [(first, _), (second, place), ..] = given[..] {
            let message = format!("a sink has `{first}` or `{second}`, not both");
            let help = "remove one of them; `on` can hold what a table needs, and more";
            self.mistake(place, message, format!("there is `{first}` already"), help);
        }
        if given.is_empty() && postgres.outbox_place.is_none() {
            let message = "`sink.postgres` does not say what a record causes".to_owned();
            let help = "write `statements`, `on` or `table`, e.g. `table: {name: accounts, key: [id]}`";
            self.mistake(postgres.place, message, "one of them belongs in here", help);
        }
    }

    /// The kinds that records can have; `None` if that is not known.
    pub fn kinds_there(&self) -> Option<Vec<Kind>> {
        let mut kinds = vec![Kind::Change];
        match &self.spec.kinds {
            None if self.spec.kinds_given => return None,
            None => {}
            Some(spec) => kinds.extend(
                [Kind::Read, Kind::Delete, Kind::Truncate, Kind::Message]
                    .into_iter()
                    .filter(|kind| spec.key(kind.as_str()).is_some()),
            ),
        }
        let null_is_delete = self.spec.actions.null_value.as_ref().is_some_and(|it| it.value == OnNull::Delete);
        if null_is_delete && !kinds.contains(&Kind::Delete) {
            kinds.push(Kind::Delete);
        }
        Some(kinds)
    }

    fn check_kinds_called(&mut self, postgres: &PostgresSpec) {
        let (Some(place), Some(there)) = (postgres.on_place, self.kinds_there()) else { return };
        if there.len() == 1 {
            let message = "`sink.postgres.on` tells kinds of change apart, and the topology does not".to_owned();
            let help =
                "write `statements` in place of `on`, or add e.g. `kinds: {of: value.op, delete: [d]}` or a preset";
            self.mistake(place, message, "every record is a plain change", help);
            return;
        }
        for on in &postgres.on {
            if !there.contains(&on.kind) {
                let message = format!("`sink.postgres.on.{}` is never called: no record is a {0}", on.kind);
                let help =
                    format!("remove it, or say what it looks like, e.g. `kinds: {{of: value.op, {}: [x]}}`", on.kind);
                self.mistake(on.place, message, "of no use", help);
            }
        }
    }

    /// Actions that would have an effect twice, or one that cannot be told.
    fn check_sink_actions(&mut self) {
        let actions = &self.spec.actions;
        let own = |place: Place| Some(place) != self.spec.preset_place;
        let null = actions.null_value.as_ref().filter(|action| action.value == OnNull::Act(Action::Forward));
        let invalid = actions.invalid.as_ref().filter(|action| action.value == Action::Forward);
        let missing = actions.missing.as_ref().filter(|action| action.value == Action::Forward);
        let unread = [
            ("on_invalid", invalid.map(|action| action.place), "what cannot be read has no parameters"),
            ("on_null_value", null.map(|action| action.place), "there is no value to take parameters from"),
            (
                "on_missing",
                missing.map(|action| action.place),
                "without an identity, a repetition has its effect again",
            ),
        ];
        for (key, place, label) in unread {
            if let Some(place) = place.filter(|place| own(*place)) {
                let message = format!("`{key}: forward` is for an output, and the topology ends in a sink");
                self.mistake(place, message, label, format!("write `{key}: dead_letter`, `drop` or `fail`"));
            }
        }
        let keeps_a_table = self.spec.keeps_a_table();
        if let Some(equal) = actions.equal.as_ref().filter(|action| action.value == Action::Forward && !keeps_a_table) {
            let is_called = self.spec.sink.as_ref().is_some_and(|sink| sink.terms().is_some());
            let message = match is_called {
                true => {
                    "`on_equal: forward` would make a call again with its key, which is made of identity, epoch and version"
                }
                false => "`on_equal: forward` would give a repetition its effect again",
            };
            let message = message.to_owned();
            let help =
                "write `on_equal: drop`; with a sink, `forward` is for a `table` alone, where the last one stays";
            self.mistake(equal.place, message, "an equal version is a repetition", help);
        }
        if let Some(late) = actions.late.as_ref().filter(|action| action.value == Action::Forward) {
            let message = "a late record may have had its effect before: what it is compared with is gone".to_owned();
            let help = "write `on_late: dead_letter`, or a longer `retention`";
            self.warning(late.place, message, "it would have it again", help);
        }
    }

    fn check_inbox(&mut self, postgres: &PostgresSpec) {
        let is_inbox = postgres.dedup.as_ref().is_some_and(|dedup| dedup.value == Dedup::Inbox);
        if let Some(inbox) = postgres.inbox.as_ref().filter(|_| !is_inbox) {
            let message = "`sink.postgres.inbox` has no effect without `dedup: inbox`".to_owned();
            self.mistake(inbox.place, message, "never looked at", "add `dedup: inbox`, or remove it");
        }
        let name = postgres.inbox.as_ref().and_then(|inbox| inbox.name.as_ref());
        if let Some(name) = name.filter(|name| !names::is_name(name.value.reveal())) {
            let message =
                format!("an inbox's name is 1 to {} lower-case letters, digits and `-`", names::NAME_CHARS_MAX);
            let label = format!("`{}` is not such a name", shown(&name.value));
            self.mistake(name.place, message, label, "write e.g. `inbox: {name: orders}`");
        }
    }

    /// The inbox; `Some(None)` if there is none.
    fn inbox(&mut self, postgres: &PostgresSpec, name: Option<&str>) -> Option<Option<Inbox>> {
        if postgres.dedup.as_ref().is_none_or(|dedup| dedup.value == Dedup::Position) {
            return Some(None);
        }
        let spec = postgres.inbox.as_ref();
        let named = spec.and_then(|inbox| inbox.name.as_ref()).map(|name| name.value.reveal().to_owned());
        let retention = spec.and_then(|inbox| inbox.retention.as_ref()).map(|retention| retention.value);
        let retention_ms = match retention.unwrap_or_else(|| self.retention_or_default()) {
            Retention::Forever => None,
            Retention::For { ms } => Some(ms),
        };
        Some(Some(Inbox { name: named.or_else(|| name.map(str::to_owned))?, retention_ms }))
    }

    /// What statements return has a topic, and the topic has statements that return something.
    fn check_returns(&mut self, postgres: &PostgresSpec) {
        let by_kind = postgres.on.iter().flat_map(|on| &on.statements);
        let returning = postgres.statements.iter().chain(by_kind).find(|statement| statement.returns);
        match (postgres.result_place, returning) {
            (Some(place), None) => {
                let message = "`sink.postgres.result` has nothing to write: no statement returns anything".to_owned();
                let help = "add `returns: true` to a statement that ends in `returning …`, or remove `result`";
                self.mistake(place, message, "never written to", help);
            }
            (None, Some(statement)) => {
                let message = "`returns: true` has no effect without a topic for what is returned".to_owned();
                let help = "add e.g. `result: {topic: reservations.done}` beside the statements, or remove `returns`";
                self.mistake(statement.sql.place, message, "it would be thrown away", help);
            }
            _ => {}
        }
    }

    /// The topic of what is answered, which no other may be.
    pub fn result_topic(&mut self, topic: &Placed<Text>, key: &str, topics: &Written, input: Option<&Input>) -> String {
        let name = topic.value.reveal();
        if self.check_free_name(topic, name, key, input) {
            let others = [("dead letters", &topics.dead_letter), ("audit", &topics.audit)];
            let taken = others.into_iter().find(|(_, other)| other.as_deref() == Some(name));
            if let Some((role, _)) = taken {
                let message = format!("`{key}` cannot be the topic of the {role}");
                let help = "name another topic: readers of results expect nothing else there";
                self.mistake(topic.place, message, format!("`{}` is that", shown(&topic.value)), help);
            }
        }
        name.to_owned()
    }

    /// Warns of an identity that each record has for itself.
    fn check_identity_of_effects(&mut self) {
        let identity = &self.spec.identity;
        let is_offset = |part: &IdentityPart| match part {
            IdentityPart::Scalar(path) => path.source == Source::Offset,
            _ => false,
        };
        if identity.complete && identity.parts.iter().any(|part| is_offset(&part.value)) {
            let message =
                "the identity is the record's place in Kafka: what was sent twice has its effect twice".to_owned();
            let help = "name what says which thing a record is about, e.g. `identity: value.order_id`";
            self.warning(self.spec.identity_place, message, "another one for each record", help);
        }
    }

    /// Warns of rows that an older record would overwrite.
    fn check_repetitions(&mut self, postgres: &PostgresSpec) {
        if let Some(place) = postgres.table_place.filter(|_| self.spec.version_place.is_none()) {
            let message =
                "the table has one row for each key, and there is no `version`: of two records with one identity \
                           the first stays, and after the retention an older one may overwrite a newer"
                    .to_owned();
            let help = "add what says which change of a row is newer, e.g. `version: {of: value.version, as: integer}`";
            self.warning(place, message, "which row is newer?", help);
        }
    }

    /// All statements, with the kinds that call them; `None` after a mistake.
    fn sink_statements(&mut self, postgres: &PostgresSpec) -> Option<Vec<Statement>> {
        let mut all = Vec::new();
        for statement in &postgres.statements {
            all.push(as_written(statement, WITH_VALUE.to_vec()));
        }
        let names_reads = postgres.on.iter().any(|on| on.kind == Kind::Read);
        for on in &postgres.on {
            let kinds = match on.kind {
                Kind::Change if !names_reads => vec![Kind::Change, Kind::Read],
                kind => vec![kind],
            };
            all.extend(on.statements.iter().map(|statement| as_written(statement, kinds.clone())));
        }
        if postgres.table_place.is_some() {
            all.extend(self.kept_table(postgres.table.as_ref()?)?);
        }
        if postgres.outbox_place.is_some() {
            let mut kinds: Vec<Kind> = all.iter().flat_map(|statement| statement.kinds.clone()).collect();
            if all.is_empty() {
                kinds = WITH_VALUE.to_vec();
            } else if postgres.table_place.is_some() {
                // It has no row.
                kinds.retain(|kind| *kind != Kind::Truncate);
            }
            kinds.sort_unstable();
            kinds.dedup();
            all.push(self.outbox_insert(postgres.outbox.as_ref()?, kinds)?);
        }
        Some(all)
    }

    /// A name of the database's, checked.
    pub fn identifier(&mut self, text: &Placed<Text>, key: &str) -> Option<String> {
        let name = text.value.reveal();
        let problem = match name {
            _ if name.contains('\0') => "it has a NUL character in it".to_owned(),
            _ if name.len() > NAME_BYTES_MAX => {
                format!("it has {} bytes, PostgreSQL takes {NAME_BYTES_MAX}", name.len())
            }
            _ if name.contains('"') => "it has a quote in it: write the name as it is, without quotes".to_owned(),
            _ => return Some(name.to_owned()),
        };
        let label = format!("`{}`", shown(&text.value));
        self.mistake(text.place, format!("`{key}` is not a name: {problem}"), label, "write e.g. `accounts`");
        None
    }

    /// A table's name, with or without its schema.
    pub fn table_name(&mut self, text: &Placed<Text>, key: &str) -> Option<Table> {
        let parts: Vec<&str> = text.value.reveal().split('.').collect();
        if parts.len() > 2 || parts.iter().any(|part| part.is_empty()) {
            let message = format!("`{key}` must be a table's name, with its schema before a dot or without");
            let label = format!("`{}` is not", shown(&text.value));
            self.mistake(text.place, message, label, "write e.g. `accounts` or `shop.accounts`");
            return None;
        }
        let is_secret = text.value.is_secret();
        let named = |part: &str| if is_secret { Text::secret(part) } else { Text::plain(part) };
        let part = |part: &&str| self.identifier(&Placed { value: named(part), place: text.place }, key);
        parts.iter().map(part).collect::<Option<Vec<_>>>().map(Table)
    }
}

/// A statement as the topology writes it.
fn as_written(spec: &StatementSpec, kinds: Vec<Kind>) -> Statement {
    let written = spec.sql.value.reveal();
    let text = match sql::read(written) {
        Ok(sql::Statement { end: Some(end), .. }) => &written[..end],
        _ => written,
    };
    let text = if spec.sql.value.is_secret() { Text::secret(text) } else { Text::plain(text) };
    let with = spec.with.iter().map(|places| Parameter::At(places.value.clone())).collect();
    let expect_rows = spec.expect_rows.as_ref().map(|expected| expected.value);
    Statement { command: Command::Sql { text, returns: spec.returns, expect_rows }, with, kinds }
}
