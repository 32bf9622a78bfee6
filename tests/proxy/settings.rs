//! Files and options: what is wrong is said, with its place, before anything listens.

use std::process::{Command, Output};

use super::program::Room;

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
    assert!(said.contains("⚠ it is not said how callers are told apart"), "{said}");
    assert!(!room.path().join("requests").exists(), "nothing is opened");
    room.write("http://127.0.0.1:1", "caller: Authorization");
    let (code, said) = ran(room.command("proxy --config proxy.yaml --check"));
    assert!(code == Some(0) && !said.contains('⚠'), "{said}");
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
