//! Goal: a process that is killed with SIGKILL while it commits loses nothing that was confirmed, and no
//! transaction is ever torn. The process is this test binary, started again.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use super::*;

const DIR: &str = "RATCHET_TEST_EMBEDDED_DIR";
const CHILD: &str = "cluster::embedded::tests::crash::child";
const ROUNDS: usize = 6;

/// Commits transactions for as long as it lives: a record to each of two topics and the offset, all with
/// the same number, and prints each number once its commit was confirmed.
#[test]
#[ignore = "the child of the crash test"]
fn child() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let cluster = Embedded::open_with(dir.as_ref(), Options { compact_records_min: 50, ..Options::default() }).unwrap();
    create(&cluster, "out", 1, &[]);
    create(&cluster, "log", 1, &[("cleanup.policy", "compact".into()), ("delete.retention.ms", "0".into())]);
    let member = joined(&cluster, "g", "out");
    let mut producer = cluster.producer("p").unwrap();
    let mut number = cluster.end("out", 0).unwrap();
    loop {
        producer.begin().unwrap();
        let (key, value) = ((number % 10).to_string(), number.to_string());
        producer.send(ticket(0), &message("out", 0, &key, Some(&value))).unwrap();
        producer.send(ticket(1), &message("log", 0, &key, Some(&value))).unwrap();
        number += 1;
        let offsets = [commit_at(&tp("out", 0), number, &value)];
        producer.commit(&offsets, member.metadata().unwrap()).unwrap();
        writeln!(std::io::stdout(), "committed {number}").unwrap();
    }
}

/// Kills the child if the test fails before it does.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lets a child make `commits` commits and then some, kills it, and returns the last number it printed.
fn run_and_kill(dir: &std::path::Path, commits: usize) -> i64 {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", CHILD, "--ignored", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut child = Killed(child);
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut numbers = lines.filter_map(|line| line.split("committed ").nth(1)?.parse::<i64>().ok());
    let mut last = numbers.by_ref().take(commits).last().unwrap();
    std::thread::sleep(Duration::from_micros(300 * commits as u64 % 3_000));
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    // What it had printed by the time it died was confirmed too.
    last = numbers.last().unwrap_or(last);
    last
}

#[test]
fn killed_process_loses_no_commit_and_tears_none() {
    let dir = tempfile::tempdir().unwrap();
    let mut before = 0;
    for round in 0..ROUNDS {
        let said = run_and_kill(dir.path(), 1 + round * 23);
        assert!(said > before);
        let cluster = Embedded::open(dir.path(), 1).unwrap();
        let end = cluster.end("out", 0).unwrap();
        assert!(end >= said, "{said} was confirmed, {end} is there");
        let values: Vec<Option<String>> = pairs(&cluster, "out", 0).into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, (0..end).map(|number| Some(number.to_string())).collect::<Vec<_>>());
        let committed = cluster.committed("g", &[tp("out", 0)], LONG).unwrap().remove(0).unwrap();
        assert_eq!(committed, CommittedOffset { offset: end, metadata: (end - 1).to_string() });
        assert_eq!(cluster.end("log", 0).unwrap(), end);
        let mut last: Vec<i64> = (0..10).filter_map(|digit| (0..end).rev().find(|n| n % 10 == digit)).collect();
        last.sort_unstable();
        let log = pairs(&cluster, "log", 0);
        let numbers = log.iter().map(|(_, value)| value.as_ref().unwrap().parse::<i64>().unwrap());
        let fold: std::collections::BTreeMap<i64, i64> = numbers.map(|number| (number % 10, number)).collect();
        let mut left: Vec<i64> = fold.into_values().collect();
        left.sort_unstable();
        assert_eq!(left, last, "the changelog folds to the last of each key");
        before = end;
    }
}
