//! ratchet behind real change data capture: Debezium on Kafka Connect, against a real PostgreSQL and a real MariaDB,
//! into a real Kafka, through the built binary and the topologies that are shipped.
//!
//! Transactions wait for keys that others hold and delete. The connector is killed between two flushes of its offsets,
//! loses them, with a snapshot and without, and the topic is read again from the start; the tables that result from the
//! output must equal the source's, and no row may ever go back. Each test also shows that without ratchet rows do go
//! back. Tables that ratchet itself keeps in another PostgreSQL go through the same, and must equal the source's too.
//!
//! `make cdc` runs it, and installs what is missing; it is not part of `make test`. It starts its own Kafka and
//! databases, in its own folders and on free ports; logs are left in the target folder below `kafka-VERSION/runs`.
//! Seeds are printed; `RATCHET_TEST_SEED` repeats the workload.
#![allow(
    clippy::disallowed_methods,
    reason = "the tests observe a running system from outside: they have a clock and may wait"
)]

mod arrivals;
mod avro;
mod bank;
mod capture;
mod connect;
mod copy;
mod database;
mod history;
mod mariadb;
mod operator;
mod postgres;
mod repair;
mod replica;
mod scenario;
mod session;
mod traffic;
mod workload;

use cluster::Kafka;
use copy::Copying;
use database::Database as _;
use kafka::Broker;
use mariadb::MariaDb;
use postgres::Postgres;
use ratchet_testkit::{cluster, database as target, kafka, random, schema_registry, server, until};
use repair::Repair;
use scenario::Scenario;

/// The output's tables equal PostgreSQL's, despite waits for keys, a killed connector, lost offsets and a reset group.
#[test]
fn postgres_tables_survive_redelivery_a_second_snapshot_and_a_reset_group() {
    Scenario::start(&Postgres::start(), kafka::shared_broker(), &[]).run("shop-postgres");
}

/// The same with Avro in place of JSON, by schemas in a registry.
#[test]
fn postgres_tables_in_avro_survive_redelivery_a_second_snapshot_and_a_reset_group() {
    let postgres = Postgres::named("postgres-avro").in_avro();
    Scenario::start(&postgres, &Broker::start(), &[]).run("shop-postgres");
}

/// The same for MariaDB, whose converter adds a schema to every payload.
#[test]
fn mariadb_tables_survive_redelivery_a_second_snapshot_and_a_reset_group() {
    Scenario::start(&MariaDb::start(), kafka::shared_broker(), &[]).run("shop-mariadb");
}

/// Tables that ratchet keeps in another PostgreSQL equal the source's, whatever dies: the connector, its offsets, ratchet
/// and its state, the copy's server.
#[test]
fn postgres_tables_are_kept_in_another_postgres() {
    Copying::start(&Postgres::with("bank", bank::TABLES), kafka::shared_broker()).run();
}

/// The same with Avro in place of JSON.
#[test]
fn postgres_tables_in_avro_are_kept_in_another_postgres() {
    Copying::start(&Postgres::with("bank-avro", bank::TABLES).in_avro(), &Broker::start()).run();
}

/// A copy is its source's, row for row, although the connector has lost its offsets under load: a snapshot's reads repair
/// it. What was deleted while they were lost is in no record; the test names these rows one by one.
#[test]
fn a_postgres_copy_is_repaired_by_the_reads_of_the_next_snapshot() {
    let postgres = Postgres::with("repair", &[traffic::ACCOUNTS, traffic::SOURCE, database::SIGNALS].concat());
    Repair::start(&postgres, kafka::shared_broker()).run();
}

/// The first way on the page "From 1 to 2".
#[test]
fn debezium_postgres_1_is_replaced_by_2_with_a_new_output() {
    with_signals("new-output", |scenario| scenario.change_to_2_with_a_new_output());
}

/// The second one.
#[test]
fn debezium_postgres_1_is_replaced_by_2_with_the_same_output() {
    with_signals("same-output", |scenario| scenario.change_to_2_with_the_same_output());
}

/// A scenario on its own broker, whose connector accepts signals for incremental snapshots.
fn with_signals(name: &'static str, story: impl FnOnce(Scenario<'_>)) {
    let (postgres, broker) = (Postgres::named(name), Broker::start());
    postgres.session(&format!("{name}-signals")).run(database::SIGNALS);
    Kafka::at(&broker.bootstrap()).create("shop.public.signals", 1, &[]);
    let tables = "public.orders,public.order_lines,public.signals";
    let settings = [("table.include.list", tables), ("signal.data.collection", "public.signals")];
    story(Scenario::start(&postgres, &broker, &settings));
}

/// Rewrites `tests/data/cdc-real`.
#[test]
#[ignore = "it writes files of this checkout: run it to capture another version of a connector"]
fn capture_real_records() {
    capture::capture(&Postgres::start());
    capture::capture(&MariaDb::start());
}
