//! Goal: a bit that has flipped in an embedded cluster's folder never changes a record or an offset, nor makes one vanish:
//! the folder is refused by name, or the bit does not matter.

use std::path::Path;

use ratchet_testkit::flips::{self, Outcome};

use super::*;

const RUNS: usize = 3;
const COMMITS: usize = 40;

fn topics() -> [(&'static str, Vec<(&'static str, String)>); 2] {
    [("out", vec![]), ("log", vec![("cleanup.policy", "compact".into())])]
}

/// Everything that can be read.
#[derive(Debug, PartialEq, Eq)]
struct Seen(Vec<Vec<StoredRecord>>, Option<CommittedOffset>);

fn see(cluster: &Embedded) -> Result<Seen, Error> {
    let read = topics().iter().map(|(topic, _)| cluster.read_all(topic, 0)).collect::<Result<_, _>>()?;
    let committed = cluster.committed("g", &[tp("out", 0)], LONG)?;
    Ok(Seen(read, committed.into_iter().next().flatten()))
}

/// One transaction: a record in each topic, and the offset.
fn commit(cluster: &Embedded, number: usize) -> Result<(), Error> {
    let member = joined(cluster, "g", "out");
    let mut producer = cluster.producer("p")?;
    producer.begin()?;
    let (key, value) = ((number % 10).to_string(), number.to_string().repeat(20));
    producer.send(ticket(0), &message("out", 0, &key, Some(&value)))?;
    producer.send(ticket(1), &message("log", 0, &key, Some(&value)))?;
    producer.commit(&[commit_at(&tp("out", 0), number as i64, &value)], member.metadata().unwrap())
}

/// Opens the folder a few times and fills it; the last one, which is open.
fn filled(dir: &Path) -> Embedded {
    let mut last = None;
    for run in 0..RUNS {
        drop(last.take());
        let cluster = Embedded::open_with(dir, Clock::default().options()).unwrap();
        for (topic, settings) in &topics() {
            create(&cluster, topic, 1, settings);
        }
        for number in run * COMMITS..(run + 1) * COMMITS {
            commit(&cluster, number).unwrap();
        }
        last = Some(cluster);
    }
    last.unwrap()
}

fn look(dir: &Path, expected: &Seen) -> Result<Outcome, Error> {
    let cluster = Embedded::open_with(dir, Clock::default().options())?;
    let seen = see(&cluster)?;
    if seen != *expected {
        let lengths: Vec<_> = seen.0.iter().map(Vec::len).collect();
        return Ok(Outcome::Wrong(format!("{lengths:?} records, at {:?}", seen.1)));
    }
    commit(&cluster, RUNS * COMMITS)?;
    drop(cluster);
    let seen = see(&Embedded::open_with(dir, Clock::default().options())?)?;
    let is_longer = seen.0.iter().zip(&expected.0).all(|(now, before)| now[..before.len()] == before[..]);
    let is_whole = is_longer && seen.1.is_some_and(|committed| committed.offset == (RUNS * COMMITS) as i64);
    Ok(if is_whole { Outcome::Same } else { Outcome::Wrong("other records once it was opened again".into()) })
}

fn play(theme: &str, whole: &Path, expected: Seen) {
    let tally = flips::play(theme, 60, whole, move |dir| match look(dir, &expected) {
        Ok(outcome) => outcome,
        Err(error) if error.message.contains("the embedded cluster's folder") => Outcome::Noticed(error.message),
        Err(error) => Outcome::Wrong(format!("it says only: {}", error.message)),
    });
    let noticed = |kind: &str| tally.contains_key(&(kind.to_owned(), "noticed".to_owned()));
    assert!(noticed("sst") && noticed("MANIFEST") && noticed("log"), "{tally:?}");
}

#[test]
fn flipped_bits_of_a_closed_folder_are_noticed_or_do_not_matter() {
    let folder = flips::scratch();
    let cluster = filled(folder.path());
    let expected = see(&cluster).unwrap();
    drop(cluster);
    play("embedded log, closed", folder.path(), expected);
}

#[test]
fn flipped_bits_of_a_killed_process_are_noticed_or_do_not_matter() {
    let (folder, left) = (flips::scratch(), flips::scratch());
    let cluster = filled(folder.path());
    flips::copy(folder.path(), left.path());
    let expected = see(&cluster).unwrap();
    drop(cluster);
    play("embedded log, killed", left.path(), expected);
}
