//! Playing a redo step by step, while the changelog changes under it.

use ratchet::engine::isolate::LaneParts;
use ratchet::engine::process::Scratch;
use ratchet::engine::redoing::{self, RedoReplay};
use ratchet::engine::setback::Setback;
use ratchet::engine::task::{Phase, Task};
use ratchet::format::{CHANGELOG_LOST, POSITION_KEY, PositionRecord, RedoRecord, RedoWriter, Token};
use ratchet::observe::Metrics;

use crate::client::Sim;
use crate::driver::alone;
use crate::kafka::MS;

use super::site::{Lane, Site, entry};

/// A changelog lost its last records after its task had restored. A redo was played all the same, as nobody compared
/// where its records were written: the loss would have been noticed only later, or, had the redo been longer, never.
#[test]
fn redo_is_not_played_where_the_changelog_has_lost_records() {
    let (setback, noted) = alone(1, |process| {
        let site = Site::new(process);
        let first = site.commit(1, &[entry(0, 1)]);
        let lost_from = site.changelog_end();
        let second = site.commit(2, &[entry(1, 2)]);
        let mut task = site.settled_task();
        site.restore(&mut task);
        let token = Token { transaction: 3, ..second };
        assert_ne!(first, second);
        let redo = redo(&site, token);
        process.lock().broker.topics.log_mut(&site.changelog).expect("it exists").lose_tail(lost_from);

        let mut lane = lane(&site, task, redo, token);
        let setback = play(&site, &mut lane).expect_err("the redo is not played").to_string();
        let meta = lane.tasks[&0].state.store.as_ref().expect("it is kept").store.meta().expect("a disk");
        (setback, meta.map(|meta| meta.changelog_offset))
    });
    assert!(setback.contains("its last records were lost"), "{setback}");
    assert_eq!(noted, Some(CHANGELOG_LOST));
}

/// A coordinator showed an older offset, with the transaction that the store was the result of, after a redo had been
/// played. The store passed for the latest, though the redo's transaction followed it in the changelog, and the redo was
/// played again.
#[test]
fn store_is_not_the_latest_once_a_redo_is_played() {
    let is_latest = alone(1, |process| {
        let site = Site::new(process);
        site.commit(1, &[entry(0, 1)]);
        let second = site.commit(2, &[entry(1, 2)]);
        let mut task = site.settled_task();
        site.restore(&mut task);
        // As after a commit of its own.
        task.state.store.as_mut().expect("it is restored").is_latest = true;
        let token = Token { transaction: 3, ..second };
        let redo = redo(&site, token);
        let mut lane = lane(&site, task, redo, token);
        play(&site, &mut lane).expect("nothing is in its way");
        lane.tasks[&0].state.store.as_ref().expect("it is kept").is_latest
    });
    assert!(!is_latest);
}

/// A lane whose only task is about to play this redo.
fn lane<'a>(site: &'a Site<'a>, task: Task<Sim>, redo: Vec<u8>, token: Token) -> Lane<'a> {
    let mut lane = Lane::with(site, task);
    let transactor = std::mem::replace(&mut lane.transactor, Lane::transactor(site, "ratchet.shop.9.1"));
    let task = lane.tasks.get_mut(&0).expect("its only one");
    task.set_phase(Phase::Redoing(Box::new(RedoReplay::new(transactor, redo, token))));
    lane
}

/// Plays the redo of the lane's task to its end.
fn play(site: &Site<'_>, lane: &mut Lane<'_>) -> Result<(), Setback> {
    let metrics = Metrics::new().lane("shop");
    let scratch = &mut Scratch::new(&site.context);
    let Lane { tasks, member, .. } = lane;
    let (context, cluster) = (&site.context, &site.sim);
    let parts = &mut LaneParts { context, cluster, tasks, member, scratch, metrics: &metrics, sink: None };
    loop {
        site.process.sleep(MS);
        if redoing::step(parts, 0)? {
            return Ok(());
        }
    }
}

/// The redo of a transaction that follows what the site has committed.
fn redo(site: &Site<'_>, token: Token) -> Vec<u8> {
    let id = |topic| site.process.lock().broker.topics.get(topic).expect("it was created").id.to_be_bytes();
    let position = PositionRecord {
        token,
        owner: "ratchet.shop.2.0".to_owned(),
        input_id: id(crate::input::INPUT),
        processed: vec![(0, 3)],
        stream_time: ratchet::format::NO_TIME,
        horizon: i64::MIN,
        rules_digest: site.context.rules_digest,
        generation: 1,
        task_count: 1,
        truncates: 0,
        scopes: Vec::new(),
    };
    let mut writer = RedoWriter::default();
    writer.begin();
    let (key, value) = entry(2, 3);
    writer.push(RedoRecord::Changelog { key: &key, value: Some(&value) });
    writer.push(RedoRecord::Changelog { key: POSITION_KEY, value: Some(&position.encode()) });
    writer.finish(2, 3).to_vec()
}
