//! Goal: the simulated database keeps transactions apart, waits, forgets and goes back as PostgreSQL does.

use std::sync::Arc;

use ratchet::effect::{Effects, RowKey, RowMark};
use ratchet::format::Token;

use crate::kafka::{MS, SECOND};

use super::{Code, Server};

fn key() -> RowKey {
    RowKey { topology: "shop".into(), topic: Arc::from("orders"), topic_id: [1; 16], partition: 0 }
}

fn token(transaction: u64) -> Token {
    Token { lane: 1, transaction, changelog_id: [2; 16], partition: 0 }
}

/// One record whose amount this is.
fn effects(amount: &str) -> Effects {
    let mut effects = Effects::default();
    effects.begin(7, b"id", Some(b"1"));
    effects.call(0);
    ["0-1", "1", "7", amount].into_iter().for_each(|text| effects.parameter(Some(text)));
    effects.call(1);
    effects.parameter(Some("1"));
    effects
}

/// A server with the row, claimed once.
fn server() -> (Server, u64, RowMark) {
    let mut server = Server::new();
    let connection = server.connect(0).unwrap();
    let mark = server.claim(connection, &key(), true).unwrap().unwrap().row.mark;
    (server, connection, mark)
}

/// Opens a transaction with one effect.
fn open(
    server: &mut Server,
    connection: u64,
    (mark, transaction): (&RowMark, u64),
    amount: &str,
) -> Result<bool, Code> {
    server.begin(connection)?;
    let is_fit = server.update(connection, (&key(), mark), (token(transaction), 8), true)?;
    server.affect(connection, token(transaction), effects(amount).get(0))?;
    Ok(is_fit)
}

fn commit(server: &mut Server, connection: u64) -> Result<(), Code> {
    let sent = server.send_commit(connection, server.now + 1);
    server.advance(server.now + 1);
    server.outcome(sent).unwrap()
}

#[test]
fn row_that_was_claimed_or_written_since_is_not_written() {
    let (mut server, connection, mark) = server();
    let other = server.connect(1).unwrap();
    let later = server.claim(other, &key(), false).unwrap().unwrap();
    assert_eq!((later.former_epoch, later.row.mark.epoch), (1, 2));
    assert_eq!(open(&mut server, connection, (&mark, 1), "5"), Ok(false));
    server.roll_back(connection);
    assert_eq!(open(&mut server, other, (&later.row.mark, 2), "5"), Ok(true));
    assert_eq!(commit(&mut server, other), Ok(()));
    assert_eq!(open(&mut server, other, (&later.row.mark, 3), "5"), Ok(false), "its token is another");
    assert_eq!(server.chain(0), [(token(2), None)]);
}

#[test]
fn claim_waits_for_an_open_transaction_until_it_is_idle_for_too_long() {
    let (mut server, connection, mark) = server();
    assert_eq!(open(&mut server, connection, (&mark, 1), "5"), Ok(true));
    let other = server.connect(1).unwrap();
    server.advance(9 * SECOND);
    assert_eq!(server.claim(other, &key(), false), Err(Code::Locked));
    server.advance(11 * SECOND);
    let claimed = server.claim(other, &key(), false).unwrap().unwrap();
    assert_eq!(claimed.row.mark.token, None);
    assert_eq!(commit(&mut server, connection), Err(Code::Gone));
    assert!(server.entries().is_empty() && server.counts().is_empty());
}

#[test]
fn commit_under_way_arrives_although_its_client_is_dead() {
    let (mut server, connection, mark) = server();
    assert_eq!(open(&mut server, connection, (&mark, 1), "5"), Ok(true));
    server.send_commit(connection, 3 * MS);
    server.hang_up(0, 4 * MS);
    server.advance(5 * MS);
    assert_eq!(server.entries().len(), 1);
    assert_eq!(open(&mut server, connection, (&mark, 2), "5"), Err(Code::Gone));
}

#[test]
fn refused_values_are_refused_at_once_or_at_the_commit() {
    let (mut server, connection, mark) = server();
    assert!(matches!(open(&mut server, connection, (&mark, 1), "-1"), Err(Code::Refused(_))));
    server.roll_back(connection);
    assert_eq!(open(&mut server, connection, (&mark, 1), "-2"), Ok(true));
    assert!(matches!(commit(&mut server, connection), Err(Code::Refused(_))));
    assert!(server.entries().is_empty() && server.chain(0).is_empty());
}

#[test]
fn those_who_wait_for_each_other_are_found() {
    let (mut server, one, mark) = server();
    let two = server.connect(1).unwrap();
    let other = RowKey { partition: 1, ..key() };
    let others = server.claim(two, &other, true).unwrap().unwrap().row.mark;
    for (connection, key, mark) in [(one, &key(), &mark), (two, &other, &others)] {
        server.begin(connection).unwrap();
        assert_eq!(server.update(connection, (key, mark), (token(1), 1), true), Ok(true));
    }
    assert_eq!(server.update(one, (&other, &others), (token(1), 1), true), Err(Code::Locked));
    assert_eq!(server.update(two, (&key(), &mark), (token(1), 1), true), Err(Code::Deadlock));
}

#[test]
fn database_that_goes_back_holds_what_it_held_then() {
    let (mut server, connection, mark) = server();
    server.advance(SECOND);
    assert_eq!(open(&mut server, connection, (&mark, 1), "5"), Ok(true));
    assert_eq!(commit(&mut server, connection), Ok(()));
    let then = server.now + 1;
    server.advance(2 * SECOND);
    let mark = RowMark { token: Some(token(1)), ..mark };
    assert_eq!(open(&mut server, connection, (&mark, 2), "5"), Ok(true));
    assert_eq!(commit(&mut server, connection), Ok(()));
    assert_eq!((server.entries().len(), server.chain(0).len(), server.has_lost(0)), (2, 2, false));
    server.go_back(then);
    assert_eq!((server.entries().len(), server.chain(0), server.has_lost(0)), (1, vec![(token(1), None)], true));
    assert_eq!(server.counts().values().sum::<u64>(), 1);
}
