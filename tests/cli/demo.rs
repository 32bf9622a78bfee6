//! `ratchet demo`: the whole job on the embedded cluster, with a real kill.

use super::Room;

#[test]
fn output_after_a_kill_equals_the_undisturbed_runs() {
    let ran = Room::new().run("demo --records 50000 --dir kept").ended(0);
    let printed = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(printed.contains("50,000 records in:"), "{}", ran.stdout);
    for verdict in [" forwarded", " duplicate", " stale"] {
        assert!(printed.contains(verdict), "{verdict}: {}", ran.stdout);
    }
    assert!(printed.contains("killed (SIGKILL) mid-transaction"), "{}", ran.stdout);
    assert!(printed.contains("store rebuilt from the changelog"), "{}", ran.stdout);
    assert_eq!(printed.matches("equal byte for byte").count(), 4, "one line a partition:\n{}", ran.stdout);
}

#[test]
fn folder_with_contents_is_left_alone() {
    let room = Room::new();
    room.write("mine/thesis.txt", "five years of work");
    room.run("demo --dir mine").ended(2).said(&["mine"]);
    assert_eq!(std::fs::read_to_string(room.path().join("mine/thesis.txt")).unwrap(), "five years of work");
}
