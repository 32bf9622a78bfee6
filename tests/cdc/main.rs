//! ratchet behind real change data capture: Debezium on Kafka Connect, against a real PostgreSQL and a real
//! MariaDB, into a real Kafka, through the built binary and the topologies that are shipped.
//!
//! Transactions wait for keys that others hold and delete. The connector is killed between two flushes of its offsets,
//! loses them, with a snapshot and without, and the topic is read again from the beginning; the tables that the output
//! makes must equal the source's, and no row may ever go back.
//! Each test also shows that without ratchet rows do go back.
//!
//! `make cdc` runs it, and installs what is missing; it is no part of `make test`. It owns its Kafka, its
//! databases and its folders, all on free ports; logs are left in the target folder below
//! `kafka-VERSION/runs`. Seeds are printed; `RATCHET_TEST_SEED` repeats the workload.
#![allow(
    clippy::disallowed_methods,
    reason = "the tests look at a running system from outside: they have a clock and may wait"
)]

#[path = "../support/cluster/mod.rs"]
mod cluster;
#[path = "../support/kafka/mod.rs"]
mod kafka;
#[path = "../support/random.rs"]
mod random;
#[path = "../support/until.rs"]
mod until;

mod capture;
mod connect;
mod database;
mod mariadb;
mod operator;
mod postgres;
mod replica;
mod scenario;
mod server;
mod session;
mod workload;

use cluster::Kafka;
use database::Database as _;
use kafka::Broker;
use mariadb::MariaDb;
use postgres::Postgres;
use scenario::Scenario;

/// The output's tables equal PostgreSQL's, through keys that are waited for, a killed connector, lost offsets and a reset
/// group.
#[test]
fn postgres_tables_survive_redelivery_a_second_snapshot_and_a_reset_group() {
    Scenario::start(&Postgres::start(), kafka::shared_broker(), &[]).run("shop-postgres");
}

/// The same of MariaDB, whose converter puts a schema beside every payload.
#[test]
fn mariadb_tables_survive_redelivery_a_second_snapshot_and_a_reset_group() {
    Scenario::start(&MariaDb::start(), kafka::shared_broker(), &[]).run("shop-mariadb");
}

/// The first way of the page "From 1 to 2".
#[test]
fn a_topology_by_debezium_postgres_1_is_followed_by_2_with_a_new_output() {
    with_signals("new-output", |scenario| scenario.change_to_2_with_a_new_output());
}

/// The second one.
#[test]
fn a_topology_by_debezium_postgres_1_is_followed_by_2_with_the_same_output() {
    with_signals("same-output", |scenario| scenario.change_to_2_with_the_same_output());
}

/// A scenario on a broker of its own, whose connector takes signals for incremental snapshots.
fn with_signals(name: &'static str, story: impl FnOnce(Scenario<'_>)) {
    let (postgres, broker) = (Postgres::named(name), Broker::start());
    postgres.session(&format!("{name}-signals")).run(database::SIGNALS);
    Kafka::at(&broker.bootstrap()).create("shop.public.signals", 1, &[]);
    let tables = "public.orders,public.order_lines,public.signals";
    let settings = [("table.include.list", tables), ("signal.data.collection", "public.signals")];
    story(Scenario::start(&postgres, &broker, &settings));
}

/// Writes `tests/data/cdc-real` anew.
#[test]
#[ignore = "it writes files of this checkout: only when a connector of another version is to be seen"]
fn capture_real_records() {
    capture::capture(&Postgres::start());
    capture::capture(&MariaDb::start());
}
