//! Goal: responses outlive the process, leases do not, and only folders of requests are opened.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::future::Future;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use bytes::Bytes;
use ratchet_testkit::folders;
use rocksdb::{DB, IteratorMode};

use super::database::{DATABASE_DIR, ENTRY_PREFIX, EXPIRY_PREFIX, FORMAT_KEY, entry_key, expiry_key};
use super::options::WRITE_BUFFER_BYTES;
use super::*;
use crate::format::request::{REQUEST_FORMAT, RequestEntry, RequestState};
use crate::request::operator::RequestStatus;
use crate::request::{AnswerBody, Fingerprint, Id, OnInDoubt, Token};

mod flips;

const LONG: Duration = Duration::from_secs(600);

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn wanted(id: u8, token: u8) -> Wanted {
    Wanted {
        held: Reservation { id: Id([id; 32]), token: Token([token; 16]) },
        fingerprint: Fingerprint([0; 32]),
        lease: LONG,
        retention: LONG,
        on_in_doubt: OnInDoubt::Run,
    }
}

fn answer(body: &'static str) -> Answer {
    Answer { status: 200, headers: Vec::new(), body: AnswerBody::Whole(Bytes::from_static(body.as_bytes())) }
}

/// Waits until entries that expire now are due for removal: removal times are rounded up to seconds.
#[expect(clippy::disallowed_methods, reason = "the store goes by the machine's clock")]
fn wait_until_due() {
    std::thread::sleep(Duration::from_millis(1_100));
}

#[test]
fn responses_outlive_the_process_and_leases_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("requests");
    let store = Requests::open(&dir).unwrap();
    let (answered, reserved, doubted) = (wanted(1, 1), wanted(2, 1), wanted(3, 1));
    for wanted in [&answered, &reserved, &doubted] {
        assert_eq!(wait(store.reserve(wanted)), Ok(Found::Reserved { taken_over: false }));
    }
    assert_eq!(wait(store.complete(answered.held, &answer("a"), LONG)), Ok(StillHeld::Yes));
    drop(store);
    let store = Requests::open(&dir).unwrap();
    assert_eq!(wait(store.reserve(&wanted(1, 2))), Ok(Found::Answered(answer("a"))));
    assert_eq!(wait(store.reserve(&wanted(2, 2))), Ok(Found::Reserved { taken_over: true }));
    assert_eq!(wait(store.complete(reserved.held, &answer("late"), LONG)), Ok(StillHeld::Fenced));
    let refusing = Wanted { on_in_doubt: OnInDoubt::Refuse, ..wanted(3, 2) };
    assert_eq!(wait(store.reserve(&refusing)), Ok(Found::InDoubt));
}

/// `ratchet requests` opens the folder of a proxy that has ended, so all of its leases are over.
#[test]
fn operators_decisions_outlive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("requests");
    assert!(matches!(Requests::open_existing(&dir), Err(Error::Refused(_))) && !dir.exists(), "no folder is created");
    let store = Requests::open(&dir).unwrap();
    let (done, forgotten) = (wanted(1, 1), wanted(2, 1));
    for wanted in [&done, &forgotten] {
        let refusing = Wanted { on_in_doubt: OnInDoubt::Refuse, ..*wanted };
        assert_eq!(wait(store.reserve(&refusing)), Ok(Found::Reserved { taken_over: false }));
    }
    let all = ListFilter { id_prefix: String::new(), includes_answered: true, max: 10 };
    let states = |store: &Requests| -> Vec<_> {
        wait(store.list(&all)).unwrap().iter().map(|seen| (seen.id.0[0], seen.state)).collect()
    };
    assert_eq!(states(&store), [(1, RequestStatus::UnderWay), (2, RequestStatus::UnderWay)]);
    drop(store);
    let store = Requests::open_existing(&dir).unwrap();
    assert_eq!(states(&store), [(1, RequestStatus::InDoubt), (2, RequestStatus::InDoubt)]);
    let decision = Decision::Answer(answer("by hand"));
    assert_eq!(wait(store.settle(done.held.id, &decision, Token([9; 16]))), Ok(Settled::Answered));
    let forgets = wait(store.settle(forgotten.held.id, &Decision::Forget, Token([9; 16])));
    assert_eq!(forgets, Ok(Settled::Forgotten(RequestStatus::InDoubt)));
    assert_eq!(states(&store), [(1, RequestStatus::Answered)]);
    drop(store);
    let store = Requests::open(&dir).unwrap();
    assert_eq!(wait(store.reserve(&wanted(1, 2))), Ok(Found::Answered(answer("by hand"))));
    assert_eq!(wait(store.reserve(&wanted(2, 2))), Ok(Found::Reserved { taken_over: false }));
}

/// Logs are overwritten: the records of an old log behind the end of the new one do not come back.
#[test]
fn crash_loses_nothing_written_and_revives_nothing_older() {
    /// A reservation is released this many requests later, in a later log than the one it was written to.
    const RELEASED_AFTER: u8 = 20;
    const COPIED_AT: [u8; 3] = [70, 95, 120];
    let folder = folders::folder();
    let (dir, copy_dir) = (folder.path().join("requests"), folder.path().join("copy_dir"));
    let (store, body) = (Requests::open(&dir).unwrap(), "a".repeat(WRITE_BUFFER_BYTES / 16));
    let answer = Answer { body: AnswerBody::Whole(body.into()), ..answer("") };
    let is_released = |id: u8| id % 8 == 1;
    let mut logs: BTreeMap<u64, BTreeSet<PathBuf>> = BTreeMap::new();
    for id in 0..=120 {
        assert_eq!(wait(store.reserve(&wanted(id, 1))), Ok(Found::Reserved { taken_over: false }));
        if !is_released(id) {
            assert_eq!(wait(store.complete(wanted(id, 1).held, &answer, LONG)), Ok(StillHeld::Yes));
        }
        if let Some(earlier) = id.checked_sub(RELEASED_AFTER).filter(|earlier| is_released(*earlier)) {
            assert_eq!(wait(store.release(wanted(earlier, 1).held)), Ok(StillHeld::Yes));
        }
        for file in std::fs::read_dir(dir.join(DATABASE_DIR)).unwrap().map(|file| file.unwrap().path()) {
            // The file may be gone by now.
            if let (Some("log"), Ok(log)) = (file.extension().and_then(OsStr::to_str), std::fs::metadata(&file)) {
                logs.entry(log.ino()).or_default().insert(file);
            }
        }
        if !COPIED_AT.contains(&id) {
            continue;
        }
        drop(Requests::open(&copy_dir).unwrap());
        std::fs::remove_dir_all(copy_dir.join(DATABASE_DIR)).unwrap();
        folders::copy_as_it_is(&dir.join(DATABASE_DIR), &copy_dir.join(DATABASE_DIR));
        let crashed = Requests::open(&copy_dir).unwrap();
        for found in 0..=id {
            let expected = match is_released(found) {
                true => Found::Reserved { taken_over: found + RELEASED_AFTER > id },
                false => Found::Answered(answer.clone()),
            };
            assert_eq!(wait(crashed.reserve(&wanted(found, 2))), Ok(expected), "{found} of {id}");
        }
    }
    assert!(logs.values().any(|names| names.len() > 1), "no log was overwritten: {logs:?}");
}

#[test]
fn folder_in_use_is_refused_to_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("requests");
    let store = Requests::open(&dir).unwrap();
    let refused = Requests::open(&dir).err().unwrap();
    assert!(matches!(&refused, Error::Unavailable(text) if text.contains("in use by another process")), "{refused}");
    drop(store);
    assert!(Requests::open(&dir).is_ok());
}

#[test]
fn folder_with_other_files_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("letters"), "mine").unwrap();
    let refused = Requests::open(folder.path()).err().unwrap();
    assert!(matches!(&refused, Error::Refused(text) if text.contains("is not empty")), "{refused}");
    let remaining_files: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(remaining_files, ["letters"]);
}

#[test]
fn folder_of_a_later_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("requests");
    drop(Requests::open(&dir).unwrap());
    let db = DB::open(&options::request_options(), dir.join(DATABASE_DIR)).unwrap();
    db.put(FORMAT_KEY, [REQUEST_FORMAT + 1]).unwrap();
    drop(db);
    let refused = Requests::open(&dir).err().unwrap();
    assert!(matches!(&refused, Error::Refused(text) if text.contains("a later release")), "{refused}");
}

#[test]
fn damaged_entry_fails_only_its_own_request() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("requests");
    drop(Requests::open(&dir).unwrap());
    let db = DB::open(&options::request_options(), dir.join(DATABASE_DIR)).unwrap();
    db.put(entry_key(Id([1; 32])), [REQUEST_FORMAT, 0, 0]).unwrap();
    drop(db);
    let store = Requests::open(&dir).unwrap();
    let refused = wait(store.reserve(&wanted(1, 1))).unwrap_err();
    assert!(matches!(&refused, Error::Refused(text) if text.contains("is damaged")), "{refused}");
    assert_eq!(wait(store.reserve(&wanted(2, 1))), Ok(Found::Reserved { taken_over: false }));
    assert_eq!(wait(store.check()), Ok(()));
}

#[test]
fn released_and_expired_requests_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("requests");
    let store = Requests::open(&dir).unwrap();
    for id in 0..200 {
        let wanted = wanted(id, 1);
        assert_eq!(wait(store.reserve(&wanted)), Ok(Found::Reserved { taken_over: false }));
        match id % 4 {
            0 => assert_eq!(wait(store.release(wanted.held)), Ok(StillHeld::Yes)),
            1 => assert_eq!(wait(store.complete(wanted.held, &answer("kept"), LONG)), Ok(StillHeld::Yes)),
            2 => assert_eq!(wait(store.complete(wanted.held, &answer("over"), Duration::ZERO)), Ok(StillHeld::Yes)),
            _ => {
                assert_eq!(wait(store.extend(wanted.held, LONG * 2)), Ok(StillHeld::Yes));
                assert_eq!(wait(store.complete(wanted.held, &answer("over"), Duration::ZERO)), Ok(StillHeld::Yes));
            }
        }
    }
    wait_until_due();
    assert_eq!(wait(store.tidy()), Ok(100));
    assert_eq!(wait(store.tidy()), Ok(0));
    drop(store);
    let db = DB::open(&options::request_options(), dir.join(DATABASE_DIR)).unwrap();
    let keys: Vec<u8> = db.iterator(IteratorMode::Start).map(|item| item.unwrap().0[0]).collect();
    let count = |kind| keys.iter().filter(|key| **key == kind).count();
    assert_eq!(
        (count(0), count(ENTRY_PREFIX), count(EXPIRY_PREFIX)),
        (1, 50, 50),
        "an entry and a time for each kept request"
    );
}

/// An unreadable entry does not block the removal of others, and is removed like any other when its time has come,
/// without being read.
#[test]
fn damaged_entry_is_removed_when_it_expires() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("requests");
    let store = Requests::open(&dir).unwrap();
    let (expired, kept) = (wanted(2, 1), wanted(3, 1));
    for (wanted, retention) in [(&expired, Duration::ZERO), (&kept, LONG)] {
        assert_eq!(wait(store.reserve(wanted)), Ok(Found::Reserved { taken_over: false }));
        assert_eq!(wait(store.complete(wanted.held, &answer("a"), retention)), Ok(StillHeld::Yes));
    }
    drop(store);
    let db = DB::open(&options::request_options(), dir.join(DATABASE_DIR)).unwrap();
    db.put(entry_key(Id([1; 32])), [REQUEST_FORMAT, 0, 0]).unwrap();
    db.put(expiry_key(1, Id([1; 32])), []).unwrap();
    drop(db);
    let store = Requests::open(&dir).unwrap();
    assert!(wait(store.reserve(&wanted(1, 1))).is_err());
    wait_until_due();
    assert_eq!(wait(store.tidy()), Ok(2));
    assert_eq!(wait(store.tidy()), Ok(0));
    for id in [1, 2] {
        assert_eq!(wait(store.reserve(&wanted(id, 1))), Ok(Found::Reserved { taken_over: false }));
    }
    assert_eq!(wait(store.reserve(&wanted(3, 2))), Ok(Found::Answered(answer("a"))));
}

/// An earlier release did not round removal times: such a time is removed when its entry changes.
#[test]
fn removal_time_of_an_earlier_release_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("requests");
    drop(Requests::open(&dir).unwrap());
    let until_ms = 4_000_000_000_123;
    let entry = RequestEntry {
        token: [1; 16],
        fingerprint: [0; 32],
        remembered_until_ms: until_ms,
        state: RequestState::Reserved { lease_until_ms: until_ms, run: [0; 16] },
    };
    let db = DB::open(&options::request_options(), dir.join(DATABASE_DIR)).unwrap();
    db.put(entry_key(Id([1; 32])), entry.encode()).unwrap();
    db.put(expiry_key(until_ms, Id([1; 32])), []).unwrap();
    drop(db);
    let store = Requests::open(&dir).unwrap();
    let taken_over = wanted(1, 2);
    assert_eq!(wait(store.reserve(&taken_over)), Ok(Found::Reserved { taken_over: true }));
    assert_eq!(wait(store.complete(taken_over.held, &answer("a"), LONG)), Ok(StillHeld::Yes));
    drop(store);
    let db = DB::open(&options::request_options(), dir.join(DATABASE_DIR)).unwrap();
    let keys: Vec<_> = db.iterator(IteratorMode::Start).map(|item| item.unwrap().0).collect();
    assert_eq!(keys.iter().filter(|key| key[0] == EXPIRY_PREFIX).count(), 1, "{keys:?}");
    assert!(!keys.iter().any(|key| **key == expiry_key(until_ms, Id([1; 32]))));
}

/// In a runtime with several threads, once some writes were fast, the caller's thread makes the reservation.
#[test]
fn caller_reserves_at_once_if_it_need_not_wait() {
    let folder = tempfile::tempdir().unwrap();
    let store = Requests::open(&folder.path().join("requests")).unwrap();
    let at_once = |wanted: &Wanted| store.shared.reserve_at_once(wanted);
    assert_eq!(at_once(&wanted(0, 1)), None, "it is not known yet whether the disk is fast");
    // Writes may be slow on a busy machine.
    let known = (1..=250).find(|id| {
        wait(store.reserve(&wanted(*id, 1))).unwrap();
        at_once(&wanted(0, 1)).is_some()
    });
    assert!(known.is_some(), "no 16 writes in a row were fast");
    assert_eq!(wait(store.reserve(&wanted(0, 2))), Ok(Found::InProgress), "the caller has reserved it");
    let refusing = Wanted { on_in_doubt: OnInDoubt::Refuse, ..wanted(251, 1) };
    assert_eq!(at_once(&refusing), None, "the reservation has to be synced");
    let held = store.shared.writer();
    std::thread::scope(|scope| {
        let elsewhere = scope.spawn(|| at_once(&wanted(252, 1)));
        assert_eq!(elsewhere.join().unwrap(), None, "another thread holds the writer");
    });
    drop(held);
    assert_eq!(wait(store.reserve(&refusing)), Ok(Found::Reserved { taken_over: false }));
}

/// At the bound no new requests are accepted, and known ones are answered. Once enough entries are removed, there is
/// room again, although no writes cause a compaction.
#[test]
fn store_at_its_bound_still_serves_known_requests() {
    const BOUND: u64 = 96 << 20;
    let folder = tempfile::tempdir().unwrap();
    let store = Requests::open(&folder.path().join("requests")).unwrap().bytes_max(BOUND);
    let body: Bytes = (0..1 << 20).map(|_| rand::random::<u8>()).collect();
    let answer = Answer { body: AnswerBody::Whole(body), ..answer("") };
    let at_work = wanted(255, 1);
    assert_eq!(wait(store.reserve(&at_work)), Ok(Found::Reserved { taken_over: false }));
    let is_kept = |id: u8| id.is_multiple_of(8);
    let first_refused = (0..200).find(|id| match wait(store.reserve(&wanted(*id, 1))) {
        Ok(found) => {
            assert_eq!(found, Found::Reserved { taken_over: false });
            let retention = if is_kept(*id) { LONG } else { Duration::ZERO };
            assert_eq!(wait(store.complete(wanted(*id, 1).held, &answer, retention)), Ok(StillHeld::Yes));
            false
        }
        Err(error) => {
            assert!(matches!(&error, Error::Full(text) if text.contains("its bound of 100663296 bytes")), "{error}");
            true
        }
    });
    let first_refused = first_refused.expect("the bound is reached");
    assert!(store.bytes() >= BOUND / 8 * 7 && store.bytes() < BOUND * 2, "{}", store.bytes());
    for id in (0..first_refused).filter(|id| is_kept(*id)) {
        assert_eq!(wait(store.reserve(&wanted(id, 2))), Ok(Found::Answered(answer.clone())), "{id}");
    }
    assert_eq!(wait(store.extend(at_work.held, LONG)), Ok(StillHeld::Yes));
    assert_eq!(wait(store.complete(at_work.held, &answer, LONG)), Ok(StillHeld::Yes), "a known request");
    assert_eq!(wait(store.check()), Ok(()));
    assert!(matches!(wait(store.reserve(&wanted(first_refused, 1))), Err(Error::Full(_))));
    wait_until_due();
    assert!(wait(store.tidy()).unwrap() > usize::from(first_refused) / 2);
    let began = writer::now();
    while wait(store.reserve(&wanted(first_refused, 1))) != Ok(Found::Reserved { taken_over: false }) {
        assert!(began.elapsed() < Duration::from_secs(60), "there is still no room: {} bytes", store.bytes());
        wait_until_due();
    }
    assert!(store.bytes() < BOUND, "{}", store.bytes());
    for id in (0..first_refused).filter(|id| is_kept(*id)) {
        assert_eq!(wait(store.reserve(&wanted(id, 3))), Ok(Found::Answered(answer.clone())), "{id}");
    }
}

/// A crash during a trial leaves its file behind.
#[test]
fn file_of_an_interrupted_trial_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    drop(Requests::open(folder.path()).unwrap());
    let trial = folder.path().join("room");
    std::fs::write(&trial, [0; 100]).unwrap();
    drop(Requests::open(folder.path()).unwrap());
    assert!(!trial.exists());
}
