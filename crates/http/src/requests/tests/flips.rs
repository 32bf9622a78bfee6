//! Goal: a flipped bit in the folder of a store of requests never causes a request to be carried out again, or to be
//! answered differently: the store or the request is refused with an error that names the folder, or the bit does not
//! matter.

use std::iter;

use ratchet_testkit::flips::{self, Outcome};

use super::*;

const RUNS: u8 = 3;
/// How many requests each run has. The last one of a run is never released, since a release is not synced.
const REQUESTS: u8 = 42;
/// Longer than these tests take on a busy machine.
const DAY: Duration = Duration::from_secs(86_400);

fn refusing(id: u8, token: u8) -> Wanted {
    Wanted { on_in_doubt: OnInDoubt::Refuse, retention: DAY, ..wanted(id, token) }
}

fn answer_of(id: u8) -> Answer {
    let body = vec![id; 20 + 13 * usize::from(id)];
    Answer { status: 200, headers: vec![("of".to_owned(), vec![id].into())], body: AnswerBody::Whole(body.into()) }
}

/// The expected reply to a repeated request, after all runs.
fn expected(id: u8) -> Found {
    match id % 5 {
        3 => Found::InDoubt,
        4 => Found::Reserved { taken_over: false },
        _ => Found::Answered(answer_of(id)),
    }
}

/// Opens the folder once for each run and fills it. Returns the last store, which is open.
fn fill_store(dir: &Path) -> Requests {
    let mut last = None;
    for run in 0..RUNS {
        drop(last.take());
        let store = Requests::open(dir).unwrap();
        for id in run * REQUESTS..(run + 1) * REQUESTS {
            let wanted = refusing(id, 1);
            assert_eq!(wait(store.reserve(&wanted)), Ok(Found::Reserved { taken_over: false }));
            match id % 5 {
                3 => {}
                4 => assert_eq!(wait(store.release(wanted.held)), Ok(StillHeld::Yes)),
                _ => assert_eq!(wait(store.complete(wanted.held, &answer_of(id), DAY)), Ok(StillHeld::Yes)),
            }
        }
        last = Some(store);
    }
    last.unwrap()
}

/// Repeats all requests, and has a new request answered.
fn check_store(dir: &Path) -> Result<Outcome, Error> {
    let new = RUNS * REQUESTS;
    let store = Requests::open(dir)?;
    let mut refused = None;
    for id in 0..new {
        match wait(store.reserve(&refusing(id, 2))) {
            Ok(found) if found == expected(id) => {}
            Ok(found) => return Ok(Outcome::Wrong(format!("{id} is {found:?}"))),
            Err(error) => refused = Some(error),
        }
    }
    if let Some(error) = refused {
        return Err(error);
    }
    wait(store.reserve(&refusing(new, 2)))?;
    wait(store.complete(refusing(new, 2).held, &answer_of(new), DAY))?;
    drop(store);
    let store = Requests::open(dir)?;
    for id in (0..=new).filter(|id| id % 5 < 3) {
        let found = wait(store.reserve(&refusing(id, 3)))?;
        if found != expected(id) {
            return Ok(Outcome::Wrong(format!("{id} is {found:?} after the store was reopened")));
        }
    }
    Ok(Outcome::Same)
}

fn play(theme: &str, whole: &Path) {
    let tally = flips::play(theme, 40, whole, |dir| match check_store(dir) {
        Ok(outcome) => outcome,
        // The error must name the folder.
        Err(error) if error.to_string().contains(&*dir.to_string_lossy()) => Outcome::Noticed(error.to_string()),
        Err(error) => Outcome::Wrong(format!("the error does not name the folder: {error}")),
    });
    let noticed = |kind: &str| tally.contains_key(&(kind.to_owned(), "noticed".to_owned()));
    assert!(noticed("sst") && noticed("MANIFEST") && noticed("log"), "{tally:?}");
}

#[test]
fn flipped_bits_of_a_closed_store_of_requests_are_noticed_or_do_not_matter() {
    let folder = flips::scratch();
    drop(fill_store(folder.path()));
    play("requests, closed", folder.path());
}

/// The log of a killed store is longer: only the log has the writes of the last run.
#[test]
fn flipped_bits_of_a_killed_store_of_requests_are_noticed_or_do_not_matter() {
    let folder = flips::scratch();
    let store = fill_store(folder.path());
    let copy = || {
        let copy = flips::scratch();
        folders::copy_as_it_is(&folder.path().join(DATABASE_DIR), &copy.path().join(DATABASE_DIR));
        is_marked(&copy.path().join(DATABASE_DIR)).then_some(copy)
    };
    let copy = iter::repeat_with(copy).take(10_000).flatten().next().expect("the log is soon marked as synced");
    drop(store);
    std::fs::copy(folder.path().join(".ratchet-requests"), copy.path().join(".ratchet-requests")).unwrap();
    play("requests, killed", copy.path());
}

/// Whether damage of the last response would be noticed, since the response is synced and marked as synced.
fn is_marked(database: &Path) -> bool {
    let (log, last) = (newest_log(database), RUNS * REQUESTS - 1);
    let whole = std::fs::read(&log).unwrap();
    let Some(at) = whole.windows(20).rposition(|bytes| bytes == [last; 20]) else { return false };
    let mut damaged = whole.clone();
    damaged[at] ^= 1;
    std::fs::write(&log, damaged).unwrap();
    let is_marked = crate::logs::check_written(database).unwrap().is_some();
    std::fs::write(&log, whole).unwrap();
    is_marked
}

/// The newest log of a database.
fn newest_log(database: &Path) -> PathBuf {
    let files = std::fs::read_dir(database).unwrap().map(|file| file.unwrap().path());
    files.filter(|file| file.extension() == Some(OsStr::new("log"))).max().unwrap()
}

/// A crash may leave a log that ends anywhere, or has holes where it was not synced.
#[test]
fn log_cut_off_by_a_crash_does_not_count_as_damaged() {
    let (folder, copy) = (flips::scratch(), flips::scratch());
    let store = fill_store(folder.path());
    folders::copy_as_it_is(&folder.path().join(DATABASE_DIR), copy.path());
    drop(store);
    let manifest = std::fs::read_to_string(copy.path().join("CURRENT")).unwrap();
    for path in [newest_log(copy.path()), copy.path().join(manifest.trim_end())] {
        let whole = std::fs::read(&path).unwrap();
        for cut in (0..whole.len()).step_by(1 + whole.len() / 300) {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(crate::logs::check_manifest(copy.path()).unwrap(), None, "{path:?} cut at {cut}");
            assert_eq!(crate::logs::check_written(copy.path()).unwrap(), None, "{path:?} cut at {cut}");
        }
        std::fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn damage_is_noticed_only_in_synced_writes() {
    let folder = flips::scratch();
    let (database, copy) = (super::super::database::Database::open(folder.path()).unwrap(), folder.path().join("copy"));
    let write = |number: u8| {
        let mut batch = rocksdb::WriteBatch::default();
        batch.put(entry_key(Id([number; 32])), [number; 100]);
        database.write(batch, super::super::database::Writing::MayWait).unwrap();
    };
    write(0xa1);
    database.sync().unwrap();
    write(0xa2);
    write(0xa3);
    folders::copy_as_it_is(&folder.path().join(DATABASE_DIR), &copy);
    let log = newest_log(&copy);
    let whole = std::fs::read(&log).unwrap();
    let damage_after_a_flip_in = |number: u8| {
        let at = whole.windows(100).position(|bytes| bytes == [number; 100]).unwrap();
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&log, bytes).unwrap();
        crate::logs::check_written(&copy).unwrap().map(|damage| damage.to_string())
    };
    let message = damage_after_a_flip_in(0xa1).unwrap();
    assert!(message.contains(&*log.to_string_lossy()) && message.contains("is damaged at byte "), "{message}");
    assert_eq!([0xa2, 0xa3].map(damage_after_a_flip_in), [None, None]);
}
