//! Files and options: what is wrong is said, with its place, before anything listens.

use std::process::{Command, Output};

use crate::program::{Keeps, Room};

fn ran(mut command: Command) -> (Option<i32>, String) {
    let Output { status, stderr, stdout } = command.output().unwrap();
    assert!(stdout.is_empty());
    // Without the bars and line breaks that wrap lines for people.
    let said = String::from_utf8(stderr).unwrap();
    (
        status.code(),
        said.chars().filter(|c| *c != '│').collect::<String>().split_whitespace().collect::<Vec<_>>().join(" "),
    )
}

#[test]
fn mistakes_of_a_file_are_shown_at_once() {
    let room = Room::new();
    room.write("http://127.0.0.1:1", "on_in_dout: refuse\nroutes: [{path: charges}]\nretention: forever");
    for words in ["proxy --config proxy.yaml", "proxy --config proxy.yaml --check"] {
        let (code, said) = ran(room.command(words));
        assert_eq!(code, Some(2), "{said}");
        for needle in [
            "[proxy.yaml:6:1]",
            "did you mean `on_in_doubt`?",
            "`charges` is not",
            "`retention` must be a duration",
            "3 mistakes",
        ] {
            assert!(said.contains(needle), "{needle}: {said}");
        }
    }
}

#[test]
fn check_says_what_a_file_amounts_to() {
    let room = Room::new();
    room.write("http://127.0.0.1:1", "routes: [{path: /charges, methods: [POST], key: required, on_in_doubt: refuse}]");
    let (code, said) = ran(room.command("proxy --config proxy.yaml --check"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("proxy.yaml: fine") && said.contains("/charges POST: a key is required"), "{said}");
    assert!(said.contains("⚠ nothing says how to tell callers apart"), "{said}");
    assert!(!room.path().join("requests").exists(), "nothing is opened");
    room.write("http://127.0.0.1:1", "caller: Authorization");
    let (code, said) = ran(room.command("proxy --config proxy.yaml --check"));
    assert!(code == Some(0) && !said.contains('⚠'), "{said}");
}

#[test]
fn check_says_which_store_it_is_and_what_it_cannot_do() {
    let room = Room::new();
    let checked = |keeps: &Keeps, more: &str| {
        let mut command = room.command_on(keeps, "http://127.0.0.1:1", &format!("caller: none\n{more}"));
        command.arg("--check");
        let (code, said) = ran(command);
        assert!(code == Some(0) && !said.contains("hunter2"), "{said}");
        said
    };
    let postgres = Keeps::Postgres("postgresql://ann:hunter2@nowhere.example:5433/shop".to_owned());
    let redis = Keeps::Redis("redis://ann:hunter2@nowhere.example/3".to_owned());
    for (keeps, words) in [
        (&Keeps::Embedded, "store embedded, in requests"),
        (
            &postgres,
            r#"store postgres, in the table ratchet.request of database "shop" at nowhere.example:5433 as user "ann""#,
        ),
        (&redis, "store redis, at nowhere.example:6379/3"),
    ] {
        let said = checked(keeps, "");
        assert!(said.contains(words) && !said.contains('⚠'), "{said}");
    }
    let said = checked(&redis, "on_store_down: pass\nreservation_header: x-reservation");
    for words in [
        "⚠ while the store does not answer, requests are passed on unprotected",
        "⚠ `reservation_header` needs a store in PostgreSQL, but this one is `redis`",
        "[proxy.yaml:7:16]",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!checked(&postgres, "reservation_header: x-reservation").contains('⚠'));
}

#[test]
fn topology_is_told_from_a_proxys_file() {
    let room = Room::new();
    let topology = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies/payments.yaml");
    for words in ["", "--check"] {
        let mut command = room.command(&format!("proxy {words} --config"));
        command.arg(&topology);
        let (code, said) = ran(command);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("this is a topology, not a proxy's file") && said.contains("ratchet check"), "{said}");
        assert!(said.contains("1 mistake"), "{said}");
    }
}

#[test]
fn options_are_for_the_simple_case_and_not_beside_a_file() {
    let room = Room::new();
    room.write("http://127.0.0.1:1", "");
    let (code, said) = ran(room.command("proxy --config proxy.yaml --listen 127.0.0.1:0"));
    assert_eq!(code, Some(2));
    assert!(said.contains("cannot be used with"), "{said}");
    let (code, said) = ran(room.command("proxy --listen 127.0.0.1:0"));
    assert_eq!(code, Some(2));
    assert!(said.contains("--upstream"), "{said}");
    let (code, said) = ran(room.command("proxy --listen nowhere --upstream here --check"));
    assert_eq!(code, Some(2));
    assert!(said.contains("[the command line:1:9]") && said.contains("2 mistakes"), "{said}");
    let (code, said) = ran(room.command("proxy --listen localhost:8080 --upstream http://a --check"));
    assert!(code == Some(2) && said.contains("write `listen: 127.0.0.1:8080` for this machine alone"), "{said}");
    let (code, said) = ran(room.command("proxy --listen 127.0.0.1:0 --upstream http://a --check"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("ratchet-requests"), "{said}");
}

#[test]
fn options_of_another_store_are_refused() {
    let room = Room::new();
    for (words, needle) in [
        ("--url redis://localhost", "`--url` is of a store in PostgreSQL or Redis"),
        ("--store redis --url redis://localhost --dir here", "`--dir` is of the embedded store"),
        ("--store postgres", "--url"),
    ] {
        let (code, said) =
            ran(room.command(&format!("proxy --listen 127.0.0.1:0 --upstream http://a --check {words}")));
        assert_eq!(code, Some(2), "{words}: {said}");
        assert!(said.contains(needle), "{words}: {said}");
    }
}

#[test]
fn folder_and_address_that_are_taken_are_refused() {
    let room = Room::new();
    let proxy = room.start("http://127.0.0.1:1", "");
    let (code, said) = ran(room.command("proxy --config proxy.yaml"));
    assert_eq!(code, Some(1));
    assert!(said.contains("requests is in use by another process"), "{said}");
    let taken = format!("proxy --listen {} --upstream http://a --dir other --http off", proxy.address);
    let (code, said) = ran(room.command(&taken));
    assert_eq!(code, Some(1));
    assert!(said.contains(&format!("cannot listen on {}", proxy.address)), "{said}");
}
