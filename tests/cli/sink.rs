//! Topologies that end in a sink, through every command that needs no database.

use super::Room;

/// A topology that reserves stock, its database named by a variable.
const STOCK: &str = "\
name: stock
input: {topics: [orders]}
identity: value.order_id
partitioned_by_identity: true
sink:
  postgres:
    url: ${env:DATABASE_URL}
    statements:
      - {sql: 'insert into reservations values ($1, $2)', with: [value.order_id, value.product]}
";

const ACCOUNTS: &str = "\
name: accounts
preset: debezium-postgres@2
input: {topics: [bank]}
sink: {postgres: {url: 'postgres://ann@db/bank', table: {name: accounts, key: [id]}, dedup: inbox}}
";

const URL: &str = "postgres://ann:hunter2@db/shop";

fn room() -> Room {
    let room = Room::new();
    room.write("stock.yaml", STOCK);
    room.write("accounts.yaml", ACCOUNTS);
    room
}

fn run(room: &Room, words: &str) -> super::Ran {
    let ran = super::Ran::from(room.command(words).env("DATABASE_URL", URL).output().unwrap());
    assert!(!ran.stderr.contains("hunter2") && !ran.stdout.contains("hunter2"), "{ran:#?}");
    ran
}

#[test]
fn check_says_what_is_promised_and_what_is_stored_where() {
    let ran = run(&room(), "check stock.yaml").ended(0).said(&[
        "stock.yaml: fine",
        "sink postgres, with ratchet's own tables in its schema ratchet",
        "effect change: insert into reservations values ($1, $2), with value.order_id, value.product",
        "dedup by position",
        "rejected dead_letter, what the database refuses",
        "promise exactly once: what a record causes and the row that says how far its partition has come are one \
         transaction of the database, and Kafka follows",
        "note the database is not authenticated (sslmode=prefer",
    ]);
    ran.never_said("output ");
    run(&room(), "check accounts.yaml").ended(0).said(&[
        "effect change, read: upsert into accounts by id: all columns, from value.after or value",
        "effect delete: delete from accounts by id, from value.before or key or value",
        "effect truncate: truncate accounts, when its partition gets to it: exact if the input has one",
        "effect message, tombstone: none, and it is remembered",
        "dedup by inbox: a row for each identity in accounts, kept for ever",
        "promise exactly once for all who use the inbox accounts, across partitions, topics and topologies",
        "a record without a version has none where the inbox knows its identity",
    ]);
}

#[test]
fn long_lines_of_the_summary_are_folded() {
    let ran = run(&room(), "check accounts.yaml").ended(0);
    for line in ran.stderr.lines().filter(|line| line.starts_with("  ")) {
        assert!(line.chars().count() <= 110, "{line}");
    }
    let folded = ran.stderr.lines().filter(|line| line.starts_with(&" ".repeat(15)));
    assert!(folded.count() > 3, "{}", ran.stderr);
}

#[test]
fn output_has_a_promise_too() {
    Room::new().run("check payments.yaml").ended(0).said(&[
        "promise exactly once, for readers with isolation.level=read_committed: what is forwarded and what is remembered \
         are one Kafka transaction",
    ]);
}

#[test]
fn explanation_shows_what_the_database_would_get() {
    let room = room();
    room.write("orders.jsonl", "{\"order_id\": 7, \"product\": \"anvil\"}\n{\"order_id\": 7}\n{\"order_id\": 8}\n");
    let ran = run(&room, "replay stock.yaml --explain orders.jsonl").ended(0);
    let effects: Vec<serde_json::Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["effects"].take())
        .collect();
    let sql = "insert into reservations values ($1, $2)";
    let expected = serde_json::json!([
        [{"statement": sql, "with": ["7", "anvil"]}],
        [],
        [{"statement": sql, "with": ["8", null]}],
    ]);
    assert_eq!(serde_json::Value::from(effects), expected);
    // Survivors are the records that have an effect.
    let ran = run(&room, "replay stock.yaml orders.jsonl").ended(0);
    assert_eq!(ran.stdout.lines().count(), 2);
}

#[test]
fn record_that_cannot_be_rendered_is_rejected_in_words() {
    let room = room();
    room.write("orders.jsonl", "{\"order_id\": 7, \"product\": \"an\\u0000vil\"}\n");
    let ran = run(&room, "replay stock.yaml --explain orders.jsonl").ended(0);
    let explained: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let message = "parameter $2 (`value.product`): there is a NUL character in it, which PostgreSQL does not take";
    assert_eq!((&explained["reason"], &explained["message"]), (&"rejected".into(), &message.into()));
    let ran = run(&room, "replay stock.yaml --summary orders.jsonl").ended(0);
    let ran = ran.said(&["invalid 1", "rejected 1"]);
    assert_eq!(ran.stdout, "");
}

#[test]
fn test_reports_other_rows_than_expected() {
    let room = room();
    let tests = "tests:
  - name: one
    given: [{value: {order_id: 7, product: anvil}}, {value: {order_id: 8}}]
    answers: [{record: 1, rejected: 'violates not-null'}]
    expect: [forwarded, {verdict: invalid, reason: rejected}]
    rows: [{record: 0, with: [7, anvils]}, {record: 1, with: [8, null]}]
";
    room.write("stock.yaml", format!("{STOCK}{tests}"));
    let ran = run(&room, "test stock.yaml").ended(1);
    for words in [
        "expected {record: 0, with: [\"7\", \"anvils\"]}",
        "{record: 1, with: [\"8\", null]}",
        "got      {record: 0, statement: 1, does: sql, with: [\"7\", \"anvil\"]}",
    ] {
        assert!(ran.stdout.contains(words), "no {words} in {}", ran.stdout);
    }
    room.write(
        "stock.yaml",
        format!("{STOCK}{}", tests.replace("anvils", "anvil").replace(", {record: 1, with: [8, null]}", "")),
    );
    run(&room, "test stock.yaml").ended(0);
}

#[test]
fn mistakes_beside_an_address_do_not_show_it() {
    let room = room();
    room.write("stock.yaml", STOCK.replace("${env:DATABASE_URL}", URL).replace("$2", "$3"));
    run(&room, "check stock.yaml --expand").ended(2).said(&[
        "there is no parameter 3",
        "ann:*******@db",
        "the password in `sink.postgres.url` is a secret and must not be written out",
    ]);
    room.write("stock.yaml", STOCK.replace("    statements:", "\tstatements:").replace("${env:DATABASE_URL}", URL));
    run(&room, "check stock.yaml").ended(2).said(&["ann:*******@db"]);
    room.write("stock.yaml", STOCK);
    let ran = super::Ran::from(room.command("check stock.yaml").env("DATABASE_URL", "hunter2").output().unwrap());
    assert!(!ran.stderr.contains("hunter2"), "{ran:#?}");
    ran.ended(2).said(&["`sink.postgres.url` is not the address of a database"]);
}

#[test]
fn what_connects_to_nothing_needs_no_address() {
    let room = room();
    let test = "tests:\n  - {name: one, given: [{value: {order_id: 7}}], expect: [forwarded]}\n";
    room.write("orders.jsonl", "{\"order_id\": 7}\n");
    let without = |words: &str| super::Ran::from(room.command(words).env_remove("DATABASE_URL").output().unwrap());
    for url in ["${env:DATABASE_URL}", "${file:no-such-file}"] {
        room.write("stock.yaml", format!("{STOCK}{test}").replace("${env:DATABASE_URL}", url));
        without("test stock.yaml").ended(0);
        without("replay stock.yaml --explain orders.jsonl").ended(0);
        without("check stock.yaml").ended(2).said(&["`sink.postgres.url`: the "]);
    }
    // A mistake stays one.
    for url in ["${nev:DATABASE_URL}", "postgres://ann:hunter2@db", "mysql://db"] {
        room.write("stock.yaml", STOCK.replace("${env:DATABASE_URL}", url));
        without("test stock.yaml").ended(2).said(&["`sink.postgres.url`"]);
    }
}
