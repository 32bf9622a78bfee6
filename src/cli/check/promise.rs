//! What `ratchet check` says of a topology's destination: what is promised and what that rests on, for a sink what each
//! kind of record causes there, and what a gate is.

use crate::dedup::{Action, Format, Kind, OnNull, Rules};
use crate::rendering::{described, show_places};
use crate::topology::gate::{Gate, OnUnavailable};
use crate::topology::sink::{Command, Inbox, Parameter, Postgres, Sink, Statement};
use crate::topology::{Destination, Topology};
use crate::yaml::units::show_duration_ms;

use super::calls;

/// What is promised, in one sentence.
pub fn promise(topology: &Topology) -> String {
    let promised = destination_promise(topology);
    match &topology.gate {
        None => promised,
        Some(_) => format!(
            "{promised}; the gate suppresses what was passed on elsewhere for as long as it keeps what it was told, and \
             guarantees nothing"
        ),
    }
}

/// The line about a gate, if there is one.
pub fn gate_line(topology: &Topology) -> Option<String> {
    let Gate { name, retention_ms, on_unavailable, .. } = topology.gate.as_ref()?;
    let meanwhile = match on_unavailable {
        OnUnavailable::Hold => "records wait",
        OnUnavailable::Pass => "records go on unasked",
    };
    Some(format!(
        "redis, shared by all who name it {name}; it keeps an identity {}; while it does not answer, {meanwhile}",
        retention(Some(*retention_ms))
    ))
}

fn destination_promise(topology: &Topology) -> String {
    match &topology.destination {
        Destination::Output(_) => {
            "exactly once, for readers with isolation.level=read_committed: what is forwarded and what \
                              is remembered are one Kafka transaction"
                .to_owned()
        }
        Destination::Sink(sink) => match &**sink {
            Sink::Postgres(Postgres { inbox, .. }) => {
                format!("{}{}", of_postgres(inbox.as_ref()), unversioned(&topology.rules, inbox.is_some()))
            }
            Sink::Http(http) => calls::promise(http),
            Sink::Handler(handler) => calls::promise_of_handler(&handler.terms),
        },
    }
}

fn of_postgres(inbox: Option<&Inbox>) -> String {
    match inbox {
        None => "exactly once: what a record causes and the row that says how far its partition has come are one \
                 transaction of the database, and Kafka follows; a database that goes back in time is noticed, and the \
                 task stops"
            .to_owned(),
        Some(Inbox { name, retention_ms }) => format!(
            "exactly once for all who use the inbox {name}, across partitions, topics and topologies: its unique key is \
             in the transaction of what a record causes; it knows an identity {}",
            retention(*retention_ms)
        ),
    }
}

fn retention(ms: Option<i64>) -> String {
    ms.map_or_else(|| "for ever".to_owned(), |ms| format!("for {}", show_duration_ms(ms)))
}

/// What is not promised for records without a version, if they are forwarded.
fn unversioned(rules: &Rules, has_inbox: bool) -> &'static str {
    match (rules.actions.missing_version, has_inbox) {
        (Action::Forward, false) if rules.version.is_some() => {
            "; a record without a version has its effect each time it is sent (on_missing_version)"
        }
        (Action::Forward, true) if rules.version.is_some() => {
            "; a record without a version has none where the inbox knows its identity (on_missing_version)"
        }
        _ => "",
    }
}

/// The lines about a sink: names and texts.
pub fn sink_lines(topology: &Topology) -> Vec<(&'static str, String)> {
    let Some(sink) = topology.sink() else { return Vec::new() };
    let Postgres { schema, inbox, result, .. } = match sink {
        Sink::Postgres(postgres) => postgres,
        Sink::Http(http) => return calls::lines(http, topology.rules.value_format),
        Sink::Handler(handler) => return calls::lines_of_handler(&handler.terms),
    };
    let mut lines = vec![("sink", format!("{}, with ratchet's own tables in its schema {schema}", sink.as_str()))];
    lines.extend(effects(sink, &kinds(&topology.rules)).into_iter().map(|effect| ("effect", effect)));
    let dedup = match inbox {
        None => "by position: a row for each partition".to_owned(),
        Some(Inbox { name, retention_ms }) => {
            format!("by inbox: a row for each identity in {name}, kept {}", retention(*retention_ms))
        }
    };
    lines.push(("dedup", dedup));
    lines.extend(values_of_table(topology, sink).map(|note| ("note", note.to_owned())));
    lines.extend(result.iter().map(|topic| ("results", topic.clone())));
    lines.push(("rejected", format!("{}, what the database refuses", topology.rules.actions.rejected)));
    lines
}

/// What a connector has to be set to, where a table is kept from Debezium's records.
fn values_of_table(topology: &Topology, sink: &Sink) -> Option<&'static str> {
    let keeps_table = sink.statements().iter().any(|statement| matches!(statement.command, Command::Upsert { .. }));
    let of_connect = topology.rules.value_format == Format::ConnectJson;
    (keeps_table && of_connect).then_some(
        "`table` takes values as they are: at Debezium's connector set `decimal.handling.mode=string` (with `decimals: text` \
         under `table`), `time.precision.mode=isostring` and `interval.handling.mode=string`, or let the converter write \
         schemas (`value.converter.schemas.enable=true`); and set `skipped.operations=none`, so that truncates come",
    )
}

/// The kinds of change that records can have.
fn kinds(rules: &Rules) -> Vec<Kind> {
    let mut kinds = vec![Kind::Change];
    if let Some(known) = &rules.kinds {
        let words = [
            (Kind::Read, &known.read),
            (Kind::Delete, &known.delete),
            (Kind::Truncate, &known.truncate),
            (Kind::Message, &known.message),
        ];
        kinds.extend(words.into_iter().filter(|(_, words)| !words.is_empty()).map(|(kind, _)| kind));
    }
    match rules.actions.null_value {
        OnNull::FollowDelete => kinds.push(Kind::Tombstone),
        OnNull::Delete if !kinds.contains(&Kind::Delete) => kinds.push(Kind::Delete),
        OnNull::Delete | OnNull::Act(_) => {}
    }
    kinds
}

/// What each of these kinds causes; those that cause the same together.
fn effects(sink: &Sink, kinds: &[Kind]) -> Vec<String> {
    let mut groups: Vec<(Vec<&str>, Vec<usize>)> = Vec::new();
    for kind in kinds {
        let called: Vec<usize> = sink.called_by(*kind).collect();
        match groups.iter_mut().find(|(_, known)| *known == called) {
            Some((names, _)) => names.push(kind.as_str()),
            None => groups.push((vec![kind.as_str()], called)),
        }
    }
    let mut lines = Vec::new();
    for (names, called) in groups {
        let names = names.join(", ");
        if called.is_empty() {
            lines.push(format!("{names}: none, and it is remembered"));
        }
        lines.extend(called.iter().map(|number| format!("{names}: {}", statement(&sink.statements()[*number]))));
    }
    lines
}

/// A statement with its parameters.
fn statement(statement: &Statement) -> String {
    let text = described(&statement.command);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parameters: Vec<String> = statement.with.iter().map(parameter).collect();
    if matches!(statement.command, Command::Truncate { .. }) {
        return format!("{text}, when its partition gets to it: exact if the input has one");
    }
    match &statement.with[..] {
        [] => text,
        [Parameter::Row { .. }] => format!("{text}, from {}", parameters.concat()),
        _ => format!("{text}, with {}", parameters.join(", ")),
    }
}

fn parameter(parameter: &Parameter) -> String {
    match parameter {
        Parameter::At(places) | Parameter::Row { of: places, .. } => show_places(places),
        Parameter::Digest => "a digest of the identity and the version".to_owned(),
    }
}
