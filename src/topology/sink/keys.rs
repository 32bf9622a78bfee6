//! The keys of `sink`.

use crate::topology::keys::parts::TABLE_PART;
use crate::topology::keys::values::{FROM_0, FROM_1, PATH, PLACE, TOPIC};
use crate::topology::sink::http::keys::HTTP;
use crate::topology::sink::terms::keys::HANDLER;
use crate::topology::sink::{Dedup, REJECTED};
use crate::yaml::keys::{Key, Mapping, Omitted, Type};

const PARAMETER: Type =
    Type::AnyOf("a path, `{first_of: [...]}` or `{const: x}`", &[PATH, Type::Mapping("a mapping", &TABLE_PART)]);
const STATEMENTS: Type = Type::List("a list of statements", &Type::Mapping("a statement", &STATEMENT));
const COLUMN: Type = Type::Text("a column's name");

/// `sink`.
pub static SINK: Mapping = Mapping {
    one_of: &["postgres", "http", "handler"],
    ..Mapping::of(&[
        Key::optional(
            "postgres",
            Type::mapping(&POSTGRES),
            "postgres: {url: '${env:DATABASE_URL}', table: {name: accounts, key: [id]}}",
            "a database of PostgreSQL, 15 or later, [exactly once](sinks/postgres.md)",
        ),
        Key::optional(
            "http",
            Type::mapping(&HTTP),
            "http: {url: 'https://api.example.com/charges', idempotency_key: {header: Idempotency-Key, honoured_for: 24h}}",
            "a provider that is [called over HTTP](sinks/http.md), effectively once where it honours a key",
        ),
        Key::optional(
            "handler",
            Type::mapping(&HANDLER),
            "handler: {honoured_for: 24h, result: {topic: payments.done}}",
            "a [function of a program of yours](handlers.md) that runs the topology, step by step",
        ),
    ])
};

/// `sink.postgres`.
pub static POSTGRES: Mapping = Mapping {
    any_of: &["statements", "on", "table", "outbox"],
    needs: &[("inbox", "dedup")],
    ..Mapping::of(&[
        Key::required(
            "url",
            Type::Text("the database's address"),
            "url: ${env:DATABASE_URL}",
            "the database's address, `postgresql://user:password@host/database` or `host=... user=...`. A password in it \
             is from `${env:NAME}` or `${file:PATH}`, and not written out; `test` and `replay` need neither",
        ),
        Key::optional(
            "schema",
            Type::Text("a schema's name"),
            "schema: ratchet",
            "the schema of ratchet's own tables, which `run` creates (`tables.create`)",
        )
        .or(Omitted::Is("ratchet")),
        Key::optional(
            "statements",
            STATEMENTS,
            "statements: [{sql: 'insert into seen values ($1)', with: [value.id]}]",
            "what each record carries out, in this order, in one transaction",
        )
        .or(Omitted::Words("one of `statements`, `on`, `table`, or `outbox` alone")),
        Key::optional(
            "on",
            Type::mapping(&ON),
            "on: {delete: [{sql: 'delete from accounts where id = $1', with: [key.id]}]}",
            "the same by [kind of change](#kinds-of-change): `change`, `read` (as `change`, if it is left out), `delete`, \
             `truncate`, `message`",
        ),
        Key::optional(
            "table",
            Type::mapping(&TABLE),
            "table: {name: accounts, key: [id]}",
            "a table that is kept as the source has it: `name`, `key`, `columns`, `of`, `decimals`",
        ),
        Key::optional(
            "outbox",
            Type::mapping(&OUTBOX),
            "outbox: {aggregate_type: {const: order}, aggregate_id: value.order_id, type: {const: OrderPlaced}}",
            "a row for [Debezium's outbox router](sources/debezium-outbox.md), besides: `table`, `aggregate_type`, \
             `aggregate_id`, `type`, `payload`",
        ),
        Key::optional(
            "dedup",
            Type::Words(|| Dedup::ALL.iter().map(|value| value.as_str().to_owned()).collect()),
            "dedup: inbox",
            "what recognises a repetition in the database: `position`, a row for each partition; or `inbox`, a row for \
             each identity, also across partitions, topics and topologies, which is slower",
        )
        .or(Omitted::Is("position")),
        Key::optional(
            "inbox",
            Type::mapping(&INBOX),
            "inbox: {name: orders, retention: 30d}",
            "with `dedup: inbox`, its `name` (those who name the same one share it) and `retention`",
        )
        .or(Omitted::Words("the topology's name and retention")),
        Key::optional(
            "result",
            Type::mapping(&RESULT),
            "result: {topic: reservations.done}",
            "`topic`: where the rows go that statements with `returns: true` return, as JSON",
        ),
        Key::optional(
            "on_rejected",
            Type::Words(|| REJECTED.iter().map(|action| action.as_str().to_owned()).collect()),
            "on_rejected: dead_letter",
            "the database refuses the record: a value that a column does not take, a constraint; or a parameter cannot be \
             read",
        )
        .or(Omitted::Is("dead_letter")),
    ])
};

/// The highest number of rows that a statement can expect.
pub const EXPECT_ROWS_MAX: u64 = 1_000_000;

/// A statement.
pub static STATEMENT: Mapping = Mapping::of(&[
    Key::required(
        "sql",
        Type::Text("an SQL statement"),
        "{sql: 'insert into seen values ($1)', with: [value.id]}",
        "one SQL statement, with `$1`, `$2`, … for its parameters",
    ),
    Key::optional(
        "with",
        Type::List("a list of parameters", &PARAMETER),
        "{sql: 'insert into seen values ($1)', with: [value.id]}",
        "its parameters: paths, `{first_of: [...]}` or `{const: x}`. Each goes as text and is read as the type that the \
         statement needs; what is missing or null is null, an object or an array is JSON",
    )
    .or(Omitted::Nothing),
    Key::optional("returns", Type::Boolean, "returns: true", "`true`: the rows that it returns go to `result.topic`")
        .or(Omitted::Is("false")),
    Key::optional(
        "expect_rows",
        Type::Integer("a number from 0 to 1000000", 0, EXPECT_ROWS_MAX),
        "expect_rows: 1",
        "how many rows it has to change (a `select`: to return); with any other number the record is rejected (`on_rejected`)",
    )
    .or(Omitted::Words("any number")),
]);

/// `on`.
pub static ON: Mapping = Mapping {
    any_of: &["change", "read", "delete", "truncate", "message"],
    ..Mapping::of(&[
        Key::optional(
            "change",
            STATEMENTS,
            "change: [{sql: 'insert into seen values ($1)', with: [value.id]}]",
            "a change",
        ),
        Key::optional(
            "read",
            STATEMENTS,
            "read: [{sql: 'insert into seen values ($1)', with: [value.id]}]",
            "a snapshot's read",
        )
        .or(Omitted::Words("as `change`")),
        Key::optional(
            "delete",
            STATEMENTS,
            "delete: [{sql: 'delete from seen where id = $1', with: [key.id]}]",
            "a delete",
        ),
        Key::optional("truncate", STATEMENTS, "truncate: [{sql: 'truncate seen'}]", "a truncate"),
        Key::optional(
            "message",
            STATEMENTS,
            "message: [{sql: 'insert into messages values ($1)', with: [value.message.content]}]",
            "a message",
        ),
    ])
};

/// `table`.
pub static TABLE: Mapping = Mapping::of(&[
    Key::required(
        "name",
        Type::Text("a table's name"),
        "name: accounts",
        "the table, `accounts` or `shop.accounts`; letters count as they are",
    ),
    Key::required(
        "key",
        Type::List("a list of columns", &COLUMN),
        "key: [id]",
        "the columns that identify a row; they need a unique index, and have the same names in the records",
    ),
    Key::optional(
        "columns",
        Type::AnyOf(
            "a list of columns, or `all`",
            &[Type::Words(|| vec![ALL_COLUMNS.to_owned()]), Type::List("a list of columns, or `all`", &COLUMN)],
        ),
        "columns: [id, name, balance]",
        "the columns to write, the key's among them; or `all` that table and record have in common",
    )
    .or(Omitted::Is(ALL_COLUMNS)),
    Key::optional("of", PLACE, "of: value.after", "where the row is, an object: a path, or `{first_of: [...]}`")
        .or(Omitted::Words("where the preset has it; else `value`")),
    Key::optional(
        "decimals",
        Type::Words(|| vec![TEXT_DECIMALS.to_owned()]),
        "decimals: text",
        "`text`: [a text in a column of numbers is a number](sinks/postgres.md#values), also one that may be base64",
    )
    .or(Omitted::Words("a text that may be base64 is refused; with presets other than Debezium's `text`")),
]);

/// The word for all columns.
pub const ALL_COLUMNS: &str = "all";
/// The word for decimals that come as text.
pub const TEXT_DECIMALS: &str = "text";

/// `inbox`.
pub static INBOX: Mapping = Mapping::of(&[
    Key::optional(
        "name",
        Type::Pattern("a name", "^[a-z0-9-]{1,60}$"),
        "name: orders",
        "its name, like a topology's; topologies that name the same one share it",
    )
    .or(Omitted::Words("the topology's")),
    Key::optional(
        "retention",
        Type::AnyOf("a duration or `forever`", &[Type::Words(|| vec!["forever".to_owned()]), Type::Duration]),
        "retention: 30d",
        "how long it knows an identity, by the database's clock",
    )
    .or(Omitted::Words("the topology's")),
]);

/// `result`.
pub static RESULT: Mapping = Mapping::of(&[Key::required(
    "topic",
    TOPIC,
    "result: {topic: reservations.done}",
    "the topic for what statements return",
)]);

/// `outbox`.
pub static OUTBOX: Mapping = Mapping::of(&[
    Key::optional("table", Type::Text("a table's name"), "table: outbox", "the table").or(Omitted::Is("outbox")),
    Key::required(
        "aggregate_type",
        PARAMETER,
        "aggregate_type: {const: order}",
        "the column `aggregatetype`: the router's topic is named after it",
    ),
    Key::required(
        "aggregate_id",
        PARAMETER,
        "aggregate_id: value.order_id",
        "the column `aggregateid`: the key of what the router sends",
    ),
    Key::required("type", PARAMETER, "type: {const: OrderPlaced}", "the column `type`: what has happened"),
    Key::optional("payload", PARAMETER, "payload: value", "the column `payload`").or(Omitted::Is("value")),
]);

/// A call of a statement, in a test.
pub static CALL: Mapping = Mapping::of(&[
    Key::required(
        "with",
        Type::Any("a list of parameters"),
        "with: [7, anvil, null]",
        "the parameters: a text or a number as it stands in the record, `null`, or JSON; a row is a mapping",
    ),
    Key::optional("record", FROM_0, "record: 0", "the given record, from 0").or(Omitted::Words("not checked")),
    Key::optional("statement", FROM_1, "statement: 1", "the statement, from 1 as in logs")
        .or(Omitted::Words("not checked")),
    Key::optional(
        "does",
        Type::Words(|| DOES.iter().map(|&word| word.to_owned()).collect()),
        "does: upsert",
        "what it does: `sql`, or for a `table` `upsert`, `delete` or `truncate`",
    )
    .or(Omitted::Words("not checked")),
]);

/// What a statement can do.
pub const DOES: &[&str] = &["sql", "upsert", "delete", "truncate"];

/// What a sink answers, in a test.
pub static ANSWER: Mapping = Mapping {
    one_of: &["rejected", "in_inbox"],
    ..Mapping::of(&[
        Key::required("record", FROM_0, "{record: 1, rejected: violates a check}", "the given record, from 0"),
        Key::optional(
            "rejected",
            Type::Text("what the database says"),
            "{record: 1, rejected: violates a check}",
            "what the database says: it refuses the record",
        ),
        Key::optional(
            "in_inbox",
            Type::Boolean,
            "{record: 1, in_inbox: true}",
            "`true`: its inbox has the record already",
        ),
    ])
};

/// All of these, for the tests of the tables.
#[cfg(test)]
pub static ALL: &[&Mapping] = &[&SINK, &POSTGRES, &STATEMENT, &ON, &TABLE, &INBOX, &RESULT, &OUTBOX, &CALL, &ANSWER];
