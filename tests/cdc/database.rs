//! What the scenario has to know of a database.

use serde_json::Value;

use crate::session::Session;

/// A table of the scenario: its name, its columns, and how many of them, from the first, are its key.
pub struct Table {
    pub name: &'static str,
    pub columns: &'static [&'static str],
    pub key: usize,
}

/// Every statement of the workload writes a revision of its own, so that a row's revision only ever rises.
pub const TABLES: [Table; 2] = [
    Table { name: "orders", columns: &["id", "status", "cents", "note", "revision"], key: 1 },
    Table { name: "order_lines", columns: &["order_id", "line", "sku", "qty", "revision"], key: 2 },
];

/// The tables, in words that both databases understand.
pub const CREATE: &str = "
create table orders (id int primary key, status varchar(40) not null, cents bigint not null, note varchar(200),
    revision int not null);
create table order_lines (order_id int, line int, sku varchar(40) not null, qty int, revision int not null,
    primary key (order_id, line));";

/// The table through which a connector is told to take a snapshot.
pub const SIGNALS: &str =
    "create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048));";

/// A running database with its empty tables, and Debezium's connector for it.
pub trait Database {
    /// What its files and its sessions are called.
    fn name(&self) -> &'static str;

    /// A new session, in the database of the tables.
    fn session(&self, name: &str) -> Session;

    /// Its own words for loading many rows at once.
    fn bulk_load(&self, table: &str, rows: &[String]) -> String;

    /// A query that answers each row of a table as a JSON object, one a line.
    fn rows_query(&self, table: &Table) -> String;

    /// The Maven file that names the connector's jars.
    fn pom(&self) -> &'static str;

    /// Whether the converter writes the schema beside the payload.
    fn schemas(&self) -> bool;

    /// What all its topics' names begin with.
    fn topic_prefix(&self) -> &'static str;

    /// The topic of a table.
    fn topic(&self, table: &Table) -> String;

    /// Topics that the connector writes to besides the tables'.
    fn further_topics(&self) -> Vec<&'static str>;

    /// The connector's settings, but for those that all connectors have.
    fn connector(&self, brokers: &str) -> Vec<(&'static str, String)>;

    /// Statements of which only this database's log makes something.
    fn own_statements(&self) -> &'static str;

    /// What places a change in the database's log: equal means that it is the same change.
    fn position(&self, source: &Value) -> Vec<u64>;

    /// A query for how many sessions wait for another's transaction.
    fn waiting_query(&self) -> &'static str;

    /// Whether the log has transactions in the order of their commits, so that a row's positions never fall.
    fn logs_commits_in_order(&self) -> bool;

    /// The setting by which a connector without offsets takes no snapshot and goes on where the database knows that it
    /// was; `None` where it cannot.
    fn without_snapshot(&self) -> Option<(&'static str, &'static str)>;
}

/// The end of a multi-row insert: `(1,'a'),(2,'b')`.
pub fn tuples(rows: &[String]) -> String {
    rows.iter().map(|row| format!("({row})")).collect::<Vec<_>>().join(",")
}
