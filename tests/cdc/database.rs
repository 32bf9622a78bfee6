//! What the scenario needs to know about a database.

use serde_json::Value;

use crate::connect::Converter;
use crate::session::Session;

/// A table of the scenario: its name, its columns, and how many of the first ones are its key.
pub struct Table {
    pub name: &'static str,
    pub columns: &'static [&'static str],
    pub key: usize,
}

/// Every statement of the workload writes a new revision, so that a row's revision only ever rises.
pub const TABLES: [Table; 2] = [
    Table { name: "orders", columns: &["id", "status", "cents", "note", "revision"], key: 1 },
    Table { name: "order_lines", columns: &["order_id", "line", "sku", "qty", "revision"], key: 2 },
];

/// The tables, in SQL that both databases accept.
pub const CREATE: &str = "
create table orders (id int primary key, status varchar(40) not null, cents bigint not null, note varchar(200),
    revision int not null);
create table order_lines (order_id int, line int, sku varchar(40) not null, qty int, revision int not null,
    primary key (order_id, line));";

/// The table through which a connector is asked to take a snapshot.
pub const SIGNALS: &str =
    "create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048));";

/// A running database with its empty tables, and Debezium's connector for it.
pub trait Database {
    /// The name of its files and sessions.
    fn name(&self) -> &'static str;

    /// A new session, in the database of the tables.
    fn session(&self, name: &str) -> Session;

    /// Its own statement for loading many rows at once.
    fn bulk_load(&self, table: &str, rows: &[String]) -> String;

    /// A query that returns each row of a table as a JSON object, one a line.
    fn rows_query(&self, table: &Table) -> String;

    /// The Maven file that names the connector's jars.
    fn pom(&self) -> &'static str;

    /// What Kafka Connect writes keys and values with.
    fn converter(&self) -> Converter;

    /// The prefix of all its topics.
    fn topic_prefix(&self) -> &'static str;

    /// The topic of a table.
    fn topic(&self, table: &Table) -> String;

    /// Topics that the connector writes to besides the tables'.
    fn further_topics(&self) -> Vec<&'static str>;

    /// The connector's settings, except those that all connectors share.
    fn connector(&self, brokers: &str) -> Vec<(&'static str, String)>;

    /// Statements that only this database's log shows.
    fn own_statements(&self) -> &'static str;

    /// A change's position in the database's log: an equal one means the same change.
    fn position(&self, source: &Value) -> Vec<u64>;

    /// A query for the number of sessions that wait for another's transaction.
    fn waiting_query(&self) -> &'static str;

    /// Whether the log has transactions in commit order, so that a row's positions never fall.
    fn logs_commits_in_order(&self) -> bool;

    /// The setting with which a connector without offsets takes no snapshot and resumes where the database knows that
    /// it was; `None` if it cannot.
    fn without_snapshot(&self) -> Option<(&'static str, &'static str)>;
}

/// The end of a multi-row insert: `(1,'a'),(2,'b')`.
pub fn tuples(rows: &[String]) -> String {
    rows.iter().map(|row| format!("({row})")).collect::<Vec<_>>().join(",")
}
