//! Goal: the judge accepts what is right, and for each invariant rejects logs or stores that break it.

use std::collections::BTreeSet;

use crate::disk::{Loads, Memtables, SimulatedDisk};
use ratchet::format::{ChangelogOffset, StoreMeta};
use ratchet::record::TopicPartition;
use ratchet::state::Store;

use super::bytes::{Position, STORE_META_KEY, Token};
use super::model::State;
use super::*;
use crate::input::InputKind;
use crate::profile::{Profile, Upheaval};
use crate::stores::Stores;

mod play;

use play::{DIGEST, Play, Transaction, at, input, letter, position_record, record, settings};

/// A cluster on which everything was read in two transactions.
fn right() -> (Play, Vec<Transaction>) {
    let mut play = Play::new(input());
    let transactions = play.transactions(&[3, 6]);
    transactions.iter().for_each(|transaction| play.write(transaction));
    (play, transactions)
}

/// Asserts that the invariant is broken when `spoil` has changed two right transactions.
#[track_caller]
fn assert_broken(invariant: u8, spoil: impl FnOnce(&mut Vec<Transaction>)) {
    let mut play = Play::new(input());
    let mut transactions = play.transactions(&[3, 6]);
    spoil(&mut transactions);
    transactions.iter().for_each(|transaction| play.write(transaction));
    assert_invariant(invariant, &play.judged());
}

#[track_caller]
fn assert_invariant(invariant: u8, violations: &[Violation]) {
    assert!(violations.iter().any(|violation| violation.invariant == invariant), "not {invariant}: {violations:#?}");
}

fn none() -> Vec<Violation> {
    Vec::new()
}

#[test]
fn right_transactions_pass() {
    for ends in [&[6][..], &[3, 6], &[1, 2, 3, 4, 5, 6], &[3, 3, 6]] {
        let mut play = Play::new(input());
        play.transactions(ends).iter().for_each(|transaction| play.write(transaction));
        assert_eq!(play.judged(), none(), "{ends:?}");
    }
    assert_eq!(Play::new(Vec::new()).judged(), none());
}

#[test]
fn missing_and_surplus_dead_letters_are_caught() {
    let mut records = input();
    records.insert(1, Record { value: None, ..record("a", 1) });
    records.insert(4, Record { value: Some(b"{".as_slice().into()), ..record("a", 1) });
    let mut play = Play::new(records.clone());
    play.transactions(&[4, 8]).iter().for_each(|transaction| play.write(transaction));
    assert_eq!(play.judged(), none());

    let mut play = Play::new(records);
    let mut transactions = play.transactions(&[4, 8]);
    transactions[0].letters.clear();
    let surplus = letter(&record("a", 1), 0, "value_malformed");
    transactions[1].letters.push(surplus);
    transactions.iter().for_each(|transaction| play.write(transaction));
    let violations = play.judged();
    assert_invariant(3, &violations);
    assert_invariant(1, &violations);
}

#[test]
fn dead_letters_of_another_producer_are_caught() {
    let mut records = input();
    records.insert(1, Record { value: None, ..record("a", 1) });
    let mut play = Play::new(records);
    let mut transactions = play.transactions(&[4, 7]);
    let letters = std::mem::take(&mut transactions[0].letters);
    transactions.iter().for_each(|transaction| play.write(transaction));
    play.append(SHOP.dead_letter, 2, &letters);
    play.end(SHOP.dead_letter, 2, true);
    assert_invariant(4, &play.judged());
}

/// The model's verdicts on input whose versions restart.
#[test]
fn model_compares_versions_across_epochs() {
    let of = |epoch: u64, version: u64| Record {
        value: Some(format!(r#"{{"id":"a","epoch":{epoch},"version":{version}}}"#).as_bytes().into()),
        ..record("a", version)
    };
    let verdicts = |all: &[(u64, u64)]| -> Vec<bool> {
        let mut model = model::Model::new(rules(InputKind::Epochs));
        let mut apply = |(at, (epoch, version)): (usize, &(u64, u64))| {
            model.apply(at as i64, &of(*epoch, *version), (0, i64::MAX / 2), false) == model::Verdict::Forwarded
        };
        all.iter().enumerate().map(&mut apply).collect()
    };
    // A new epoch is newer, whatever its versions; redelivered records of the previous one are old.
    assert_eq!(verdicts(&[(0, 5), (1, 1), (0, 5), (0, 4), (1, 2), (1, 2)]), [true, true, false, false, true, false]);
    // Above everything that it had reached, the previous epoch has come back.
    assert_eq!(verdicts(&[(0, 5), (1, 1), (0, 6), (1, 1), (0, 6), (1, 3)]), [true, true, true, false, false, true]);
}

#[test]
fn output_differing_from_the_model_is_caught() {
    assert_broken(1, |all| all[0].forwards.swap(0, 1));
    assert_broken(1, |all| all[1].forwards[0].timestamp = None);
    assert_broken(1, |all| all[1].forwards.push(record("c", 1)));
}

#[test]
fn repeated_and_falling_versions_are_caught() {
    assert_broken(2, |all| {
        let again = all[0].forwards[0].clone();
        all[1].forwards.push(again);
    });
    assert_broken(2, |all| all[1].forwards.push(record("a", 2)));
}

#[test]
fn lost_records_are_caught() {
    assert_broken(3, |all| drop(all[1].forwards.pop()));
    assert_broken(3, |all| all.iter_mut().for_each(|one| one.position.processed[0].0 = 1));
    // Committed, but never processed.
    assert_broken(3, |all| {
        let last = all.pop().unwrap();
        all[0].offset = last.offset;
    });
    // Committed first, and processed later.
    assert_broken(3, |all| all[0].offset = 5);
    assert_broken(3, |all| all[1].position.processed = vec![(0, 3), (4, 6)]);
}

#[test]
fn gate_that_drops_what_nobody_has_passed_on_is_caught() {
    let gated = |spoil: fn(&mut Vec<Transaction>)| {
        let mut play = Play::new(input());
        play.history.rules = rules(InputKind::Gated);
        let mut transactions = play.transactions(&[3, 6]);
        spoil(&mut transactions);
        transactions.iter().for_each(|transaction| play.write(transaction));
        play.judged()
    };
    assert_eq!(gated(|_| {}), none());
    assert_invariant(15, &gated(|all| drop(all[0].forwards.remove(0))));
    assert_invariant(15, &gated(|all| drop(all[1].forwards.pop())));
    // What it lets through is the model's, in order.
    assert_invariant(1, &gated(|all| all[1].forwards.push(record("c", 1))));
}

#[test]
fn incomplete_transactions_are_caught() {
    // Output and offset are there, but the changelog's part is not.
    assert_broken(4, |all| all[1].commits = false);
    assert_broken(4, |all| drop(all[0].changes.pop()));
    assert_broken(4, |all| {
        let again = all[0].changes[0].clone();
        all[1].changes.insert(0, again);
    });
    assert_broken(4, |all| all[1].changes[0].value = Some(b"other".as_slice().into()));
    assert_broken(4, |all| all[1].changes[0].value = None);
    assert_broken(4, |all| all[1].position.stream_time += 1);
    assert_broken(4, |all| all[1].position.horizon = 0);
    assert_broken(4, |all| all[1].position.token.partition = 1);
    assert_broken(4, |all| all[1].position.input_id = [9; 16]);
    // The offset of the last record rather than the next.
    assert_broken(4, |all| all[1].offset -= 1);
    assert_broken(4, |all| all[0].offset -= 1);
    assert_broken(4, |all| all[1].position.rules_digest = [4; 32]);
    // The offset went back, and then forward again.
    assert_broken(4, |all| {
        let first = all[0].clone();
        all[0].offset = 5;
        all.insert(1, Transaction { forwards: Vec::new(), changes: Vec::new(), ..first });
    });
}

#[test]
fn records_without_a_position_record_are_caught() {
    let (mut play, transactions) = right();
    play.append(SHOP.changelog, 1, &transactions[0].changes[..1]);
    play.end(SHOP.changelog, 1, true);
    assert_invariant(4, &play.judged());
}

#[test]
fn records_of_another_producer_are_caught() {
    let mut play = Play::new(input());
    let mut transactions = play.transactions(&[3, 6]);
    let forwards = std::mem::take(&mut transactions[1].forwards);
    transactions.iter().for_each(|transaction| play.write(transaction));
    play.append(SHOP.output, 2, &forwards);
    play.end(SHOP.output, 2, true);
    assert_invariant(4, &play.judged());

    let (mut play, transactions) = right();
    let log = play.broker.topics.log_mut(&at(SHOP.changelog)).unwrap();
    log.append([position_record(&transactions[1].position)]);
    assert_invariant(4, &play.judged());
}

#[test]
fn committed_offset_must_name_the_last_transaction() {
    let (mut play, transactions) = right();
    play.commit(6, format!("ratchet/1 {} {DIGEST} released", transactions[1].position.token.text()));
    assert_eq!(play.judged(), none());
    play.commit(6, format!("ratchet/1 {} {DIGEST} released", transactions[0].position.token.text()));
    assert_invariant(4, &play.judged());
    play.commit(6, String::new());
    assert_invariant(4, &play.judged());
    play.commit(6, format!("ratchet/1 {} {DIGEST} mine", transactions[1].position.token.text()));
    assert_invariant(7, &play.judged());
}

#[test]
fn every_committed_offset_must_name_a_transaction() {
    let broken = |text: &dyn Fn(&Position) -> String| {
        let mut play = Play::new(input());
        let transactions = play.transactions(&[3, 6]);
        play.write(&transactions[0]);
        play.commit(3, text(&transactions[0].position));
        play.write(&transactions[1]);
        play.judged()
    };
    let claimed = |position: &Position| format!("ratchet/1 {} {DIGEST} {}.2.0", position.token.text(), SHOP.group);
    assert_eq!(broken(&claimed), none());
    let never = |position: &Position| {
        let token = Token { transaction: 9, ..position.token };
        format!("ratchet/1 {} {DIGEST} released", token.text())
    };
    assert_invariant(4, &broken(&never));
    let other_rules = |position: &Position| format!("ratchet/1 {} 0123456789abcdef released", position.token.text());
    assert_invariant(4, &broken(&other_rules));
    assert_invariant(4, &broken(&|_| String::new()));
    assert_invariant(7, &broken(&|position| format!("ratchet/1 {} {DIGEST} mine", position.token.text())));
}

#[test]
fn truncated_changelog_is_caught() {
    let (mut play, _) = right();
    play.broker.topics.log_mut(&at(SHOP.changelog)).unwrap().delete_before(5).unwrap();
    assert_invariant(6, &play.judged());
}

#[test]
fn continuing_on_a_recreated_changelog_is_caught() {
    let mut play = Play::new(input());
    let first = play.transactions(&[3]);
    play.write(&first[0]);
    play.history.before(Upheaval::ChangelogRecreated, &play.broker);
    play.broker.topics.delete(SHOP.changelog).unwrap();
    play.broker.topics.create(SHOP.changelog, 1, settings()).unwrap();
    assert_invariant(10, &play.judged());
    play.history.refused(BTreeSet::from(["orders:0".to_owned()]));
    // A task whose partition has lost nothing must not be refused.
    assert_invariant(10, &play.judged());
    play.history.lose(0);
    // Refused: less was read, and what was read is right.
    assert_eq!(play.judged(), none());
    play.sequences.remove(&(1, SHOP.changelog));
    let rest = play.transactions(&[3, 6]);
    play.write(&rest[1]);
    assert_invariant(6, &play.judged());
}

#[test]
fn interleaved_owners_are_caught() {
    assert_broken(7, |all| all[1].position.token = all[0].position.token);
    assert_broken(7, |all| all[1].position.token.transaction = 0);
    assert_broken(7, |all| {
        let zombie = all[0].clone();
        let token = Token { lane: 8, ..zombie.position.token };
        all.push(Transaction { producer: 2, position: Position { token, ..zombie.position }, ..zombie });
    });
    let mut play = Play::new(input());
    let transactions = play.transactions(&[3, 6]);
    play.append(SHOP.changelog, 2, &transactions[1].changes[..1]);
    play.write(&transactions[0]);
    play.write(&transactions[1]);
    play.end(SHOP.changelog, 2, true);
    assert_invariant(7, &play.judged());

    // The owner's id has another producer.
    let (mut play, transactions) = right();
    play.broker.coordinator.init(&transactions[1].position.owner.as_str().into(), 0).unwrap();
    assert_invariant(7, &play.judged());
}

#[test]
fn aborted_records_are_ignored() {
    let (mut play, transactions) = right();
    for topic in [SHOP.output, SHOP.changelog] {
        play.append(topic, 2, &transactions[0].changes);
        play.end(topic, 2, false);
    }
    assert_eq!(play.judged(), none());
}

#[test]
fn unread_records_and_open_transactions_are_caught() {
    let (mut play, _) = right();
    play.append(SHOP.output, 2, &[record("c", 1)]);
    assert_invariant(10, &play.judged());
    play.end(SHOP.output, 2, false);
    assert_eq!(play.judged(), none());
    play.broker.topics.log_mut(&at(SHOP.input)).unwrap().append([record("c", 1)]);
    assert_invariant(10, &play.judged());
}

#[test]
fn upheavals_excuse_their_consequences() {
    // Reset, and read again: what was processed before has no effect.
    let (mut play, transactions) = right();
    play.history.before(Upheaval::GroupReset, &play.broker);
    play.commit(1, String::new());
    let again = Transaction { forwards: Vec::new(), changes: Vec::new(), ..transactions[1].clone() };
    let mut position = again.position.clone();
    position.token.transaction = 3;
    play.write(&Transaction { position, ..again });
    assert_eq!(play.judged(), none());

    let (mut play, _) = right();
    play.history.before(Upheaval::GroupDeleted, &play.broker);
    play.broker.groups.delete(SHOP.group).unwrap();
    let violations = play.judged();
    assert!(violations.iter().all(|violation| violation.invariant == 10), "{violations:#?}");
}

#[test]
fn grown_input_excuses_partitions_without_a_reader() {
    let (mut play, _) = right();
    play.history.before(Upheaval::InputGrown, &play.broker);
    play.broker.topics.log_mut(&at(SHOP.input)).unwrap().append([record("c", 1)]);
    assert_invariant(10, &play.judged());
    play.history.start_refused = true;
    assert_eq!(play.judged(), none());
    play.append(SHOP.output, 2, &[record("c", 1)]);
    assert_invariant(10, &play.judged());
}

#[test]
fn compacted_changelog_passes() {
    let (mut play, _) = right();
    let log = play.broker.topics.log_mut(&at(SHOP.changelog)).unwrap();
    log.compact(log.end(), 0, 0);
    assert_eq!(play.judged(), none());
}

#[test]
fn stores_differing_from_the_changelog_are_caught() {
    let (mut play, transactions) = right();
    let (first, both) = (play.store(&transactions[..1]), play.store(&transactions));
    assert_eq!(
        play.judged_stores(vec![first, both.clone(), both.clone(), State::new()]).messages(),
        Vec::<String>::new()
    );

    let mut other = both.clone();
    other.remove(transactions[1].changes[0].key.as_deref().unwrap());
    assert_invariant(5, &play.judged_stores(vec![other.clone()]).violations);
    // Stores are compared with each other first, independently of the changelog.
    let differ = play.judged_stores(vec![both.clone(), other]).violations;
    assert_eq!(differ.iter().map(|violation| violation.invariant).collect::<Vec<_>>(), [9, 5]);
    // It names the first transaction and has its bytes, at the second one's position.
    let mut torn = play.store(&transactions[..1]);
    torn.remove(STORE_META_KEY);
    let torn = play.with_meta(torn, Some(transactions[0].position.token), 8);
    assert_invariant(5, &play.judged_stores(vec![torn]).violations);
    let mut nameless = both;
    nameless.remove(STORE_META_KEY);
    assert_invariant(5, &play.judged_stores(vec![nameless]).violations);
}

/// Stores that the engine could not open are judged too.
#[test]
fn damaged_store_on_a_simulated_disk_can_be_judged() {
    let disk = SimulatedDisk::new(Loads::default(), Memtables::UNBOUNDED);
    let dir = disk.state_slot().task_dir(SHOP.name, &TopicPartition::new(SHOP.input, 0));
    let mut store = Store::open(&dir, &disk.memory()).unwrap();
    let meta = StoreMeta {
        changelog_id: [1; 16],
        partition: 0,
        changelog_offset: ChangelogOffset(0),
        token: None,
        synced_at: 0,
        position_offset: None,
    };
    store.set_meta(&meta).unwrap();
    drop(store);
    assert!(disk.damage(&dir, 0));
    let held = stores::read(&Stores::Simulated(disk), &SHOP, 1);
    let state = State::from([(STORE_META_KEY.to_vec(), meta.encode())]);
    assert_eq!(held.into_iter().map(|one| (one.folder, one.state)).collect::<Vec<_>>(), [(at(SHOP.input), state)]);
}

#[test]
fn uncommitted_content_of_stores_is_caught() {
    let (mut play, transactions) = right();
    let never = Token { transaction: 9, ..transactions[1].position.token };
    let mut state = play.store(&transactions);
    state.remove(STORE_META_KEY);
    let of_nothing = play.with_meta(state.clone(), Some(never), 8);
    assert_invariant(8, &play.judged_stores(vec![of_nothing]).violations);

    // In a restore, being ahead of the position is fine; values that were never committed, or are older, are not.
    let ahead = play.with_meta(state.clone(), None, 4);
    let ruling = play.judged_stores(vec![ahead]);
    assert_eq!(ruling.messages(), Vec::<String>::new());
    assert_eq!(ruling.seen.get(coverage::STORE_AHEAD), Some(&1));
    let key = transactions[0].changes[0].key.as_deref().unwrap().to_vec();
    let mut aborted = state.clone();
    aborted.insert(key.clone(), b"aborted".to_vec());
    let aborted = play.with_meta(aborted, None, 4);
    assert_invariant(8, &play.judged_stores(vec![aborted]).violations);
    state.remove(&key);
    let lacking = play.with_meta(state, None, 4);
    assert_invariant(5, &play.judged_stores(vec![lacking]).violations);
}

#[test]
fn losing_a_store_before_another_is_whole_is_caught() {
    let (mut play, transactions) = right();
    let (first, both) = (play.store(&transactions[..1]), play.store(&transactions));
    let mut entries = first.clone();
    entries.remove(STORE_META_KEY);
    // A store of another, unknown changelog, which cannot be built upon.
    let old = play.with_meta(entries.clone(), Some(transactions[0].position.token), 4);
    let fresh = play.with_meta(State::new(), None, 0);
    assert_eq!(play.judged_life(&old, &fresh, Some(&old)), []);
    assert_eq!(play.judged_life(&old, &both, None), [], "another is whole");
    assert_invariant(11, &play.judged_life(&old, &fresh, None));
    assert_invariant(11, &play.judged_life(&old, &State::new(), Some(&fresh)));
    // Usable, and behind: what was committed since has replaced what was there.
    let mut later = both.clone();
    later.remove(STORE_META_KEY);
    let later = play.with_meta(later, None, 4);
    let in_restore = play.with_meta(entries, None, 0);
    assert_eq!(play.judged_life(&in_restore, &later, None), []);
    let mut lacking = later.clone();
    lacking.remove(transactions[0].changes[0].key.as_deref().unwrap());
    assert_invariant(11, &play.judged_life(&in_restore, &lacking, None));
    // A store that was the result of a transaction still is, or a copy of it is.
    assert_eq!(play.judged_life(&old, &later, Some(&old)), []);
    assert_invariant(11, &play.judged_life(&old, &later, None));
    assert_invariant(11, &play.judged_life(&old, &later, Some(&in_restore)));
}

#[test]
fn situation_names_are_unique() {
    let mut names: Vec<&str> = coverage::situations().map(|situation| situation.name).collect();
    let reached: BTreeMap<&'static str, u64> = coverage::situations().map(|one| (one.name, 1)).collect();
    assert_eq!(names.len(), reached.len());
    let is_unknown = |profile: &&str| Profile::named(profile).is_none();
    assert_eq!(coverage::situations().map(|one| one.by).find(is_unknown), None);
    assert_eq!(coverage::missing("sick", &reached), Vec::<&str>::new());
    names.retain(|name| coverage::missing("sick", &BTreeMap::new()).contains(name));
    assert!(names.contains(&"a disk was full"));
    assert_eq!(coverage::report(&BTreeMap::from([("other", 2)])).len(), coverage::situations().count() + 1);
}
