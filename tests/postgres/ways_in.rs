//! Connecting: passwords, TLS, several hosts, poolers.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::spawn;

use ratchet::effect::{Error, ErrorKind};
use ratchet::postgres::{Postgres, inspect};

use crate::database::{Database, GUARDED, shared};
use crate::postgres::task::{Task, key, session, settings_of};

fn connects(url: &str) -> Result<(), Error> {
    session(&settings_of(url, vec![])).claim(&key(0), true).map(drop)
}

/// A wrong password is told, and never shown.
#[test]
fn wrong_password_is_never_shown() {
    let database = Database::new();
    let (user, password) = GUARDED;
    database.run(&format!("grant create on database {} to {user}", database.name));
    let port = &shared().port;
    let right = format!("host=127.0.0.1 port={port} user={user} password='{password}' dbname={}", database.name);
    assert_eq!(connects(&right), Ok(()));
    let escaped = password.replace(' ', "%20").replace('/', "%2F");
    assert_eq!(connects(&format!("postgres://{user}:{escaped}@127.0.0.1:{port}/{}", database.name)), Ok(()));
    for url in [
        format!("postgres://{user}:s3cretwrong@127.0.0.1:{port}/{}", database.name),
        format!("postgres://{user}:s3cretwrong@127.0.0.1:1/{}", database.name),
        format!("postgres://{user}:s3cretwrong@127.0.0.1:{port}/{}?sslmode=require&sslcert=x", database.name),
        format!("postgres://{user}@127.0.0.1:{port}/{}?s3cret=1", database.name),
    ] {
        let settings = settings_of(&url, vec![]);
        let error = match Postgres::new(settings.clone()) {
            Ok(_) => connects(&url).expect_err("it is wrong"),
            Err(error) => error,
        };
        let all =
            format!("{error} {error:?} {settings:?} {:?} {:?}", inspect(&settings), Postgres::new(settings.clone()));
        assert!(!all.contains("s3cret") && !all.contains("pass/word"), "{all}");
    }
    let wrong = format!("postgres://{user}:s3cretwrong@127.0.0.1:{port}/{}", database.name);
    let error = connects(&wrong).expect_err("it is wrong");
    assert_eq!(error.kind, ErrorKind::Permanent);
    assert!(error.message.contains("28P01"), "{error}");
}

/// Each `sslmode` against a certificate of an own authority, under the right and a wrong name.
#[test]
fn certificates_are_checked_as_asked_for() {
    let database = Database::new();
    let authority = shared().authority();
    let url = |host: &str, parameters: &str| {
        format!("postgres://postgres@{host}:{}/{}?{parameters}", shared().port, database.name)
    };
    let root = format!("&sslrootcert={}", authority.display());
    for (host, parameters) in [
        ("localhost", format!("sslmode=verify-full{root}")),
        ("127.0.0.1", format!("sslmode=verify-ca{root}")),
        ("127.0.0.1", format!("sslmode=require{root}")),
        ("127.0.0.1", "sslmode=require".to_owned()),
        ("127.0.0.1", "sslmode=prefer".to_owned()),
    ] {
        let url = url(host, &parameters);
        let mut session = session(&settings_of(&url, vec![]));
        Task::claim(&mut *session, 0);
        let encrypted = "select ssl from pg_stat_ssl join pg_stat_activity using (pid) where application_name = 'ratchet test' \
                         and datname = current_database()";
        assert_eq!(database.value(encrypted), "t", "{url}");
        drop(session);
        crate::until::within(crate::until::DEADLINE, "the session's end", || {
            database.rows(encrypted).is_empty().then_some(())
        });
    }
    for (host, parameters, words) in [
        ("127.0.0.1", format!("sslmode=verify-full{root}"), "not valid for name"),
        ("localhost", "sslmode=verify-full".to_owned(), ""),
        ("localhost", "sslmode=verify-ca".to_owned(), ""),
        ("localhost", "sslmode=verify-ca&sslrootcert=%2Fnowhere.pem".to_owned(), "/nowhere.pem"),
    ] {
        let error = connects(&url(host, &parameters)).expect_err("it is not to be trusted");
        assert_eq!(error.kind, ErrorKind::Permanent, "{parameters}: {error}");
        assert!(error.message.contains(words), "{parameters}: {error}");
    }
}

/// A client that shows a certificate instead of saying a password.
#[test]
fn client_may_show_a_certificate() {
    let database = Database::new();
    database.run(&format!("grant create on database {} to certified", database.name));
    let url = |certificate: &std::path::Path, key: &std::path::Path| {
        format!(
            "postgres://certified@127.0.0.1:{}/{}?sslmode=require&sslcert={}&sslkey={}",
            shared().port,
            database.name,
            certificate.display(),
            key.display()
        )
    };
    let (certificate, key) = shared().client("certified");
    let mut session = session(&settings_of(&url(&certificate, &key), vec![]));
    Task::claim(&mut *session, 0);
    let shown = "select client_dn from pg_stat_ssl join pg_stat_activity using (pid) where usename = 'certified' \
                 and datname = current_database()";
    assert_eq!(database.value(shown), "/CN=certified");
    let (stranger, strange_key) = shared().client("stranger");
    let (own, own_key) = shared().client("self");
    let nowhere = std::path::PathBuf::from("/nowhere.key");
    for (url, words) in [
        (url(&stranger, &strange_key), "certificate authentication failed"),
        (url(&own, &own_key), "alert"),
        (url(&certificate, &strange_key), "certified.pem of the url cannot be used"),
        (url(&key, &key), "it holds no certificate"),
        (url(&certificate, &nowhere), "/nowhere.key of the url cannot be used"),
        (url(&certificate, &certificate), "certified.pem of the url cannot be used"),
        (
            url(&certificate, &key).split("&sslkey").next().expect("the front").to_owned(),
            "only one of sslcert and sslkey",
        ),
        (url(&certificate, &key).split("&sslcert").next().expect("the front").to_owned(), "client certificate"),
    ] {
        let error = match Postgres::new(settings_of(&url, vec![])) {
            Ok(_) => connects(&url).expect_err("it does not show what is asked for"),
            Err(error) => error,
        };
        assert_eq!(error.kind, ErrorKind::Permanent, "{url}: {error}");
        assert!(error.message.contains(words), "{url}: {error}");
    }
}

/// Of several hosts, the one that accepts writes.
#[test]
fn host_that_accepts_writes_is_found() {
    let (reads, writes) = (Database::new(), shared());
    let replica = crate::database::Server::start("replica", &["default_transaction_read_only=on"]);
    let (user, name) = ("postgres", "postgres");
    let url = format!(
        "postgres://{user}@127.0.0.1:{},127.0.0.1:{}/{name}?target_session_attrs=read-write&sslmode=disable",
        replica.port, writes.port
    );
    drop(reads);
    let schema = ratchet::postgres::Settings { schema: "several_hosts".to_owned(), ..settings_of(&url, vec![]) };
    let claimed = session(&schema).claim(&key(0), true).expect("the second one accepts writes");
    assert_eq!(claimed.expect("it may be inserted").former_epoch, 0);
    let alone = format!("postgres://{user}@127.0.0.1:{}/{name}?target_session_attrs=read-write", replica.port);
    assert_eq!(connects(&alone).expect_err("it is read only").kind, ErrorKind::Transient);
}

/// A pooler that refuses settings of its sessions, as PgBouncer does.
#[test]
fn pooler_that_refuses_settings_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("a bound socket").port();
    spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        let mut startup = [0; 2_048];
        let _ = client.read(&mut startup);
        let fields = b"SFATAL\0C08P01\0Munsupported startup parameter in options: lock_timeout\0\0";
        let mut answer = vec![b'E'];
        answer.extend_from_slice(&(fields.len() as u32 + 4).to_be_bytes());
        answer.extend_from_slice(fields);
        let _ = client.write_all(&answer);
    });
    let error = connects(&format!("postgres://me@127.0.0.1:{port}/db?sslmode=disable")).expect_err("it is refused");
    assert_eq!(error.kind, ErrorKind::Permanent, "{error}");
    assert!(error.message.contains("pooler"), "{error}");
}
