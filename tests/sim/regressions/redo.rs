//! Playing a redo step by step, while the changelog changes under it.

use ratchet::engine::isolate::Means;
use ratchet::engine::process::Scratch;
use ratchet::engine::redoing::{self, Redoing};
use ratchet::engine::task::Phase;
use ratchet::format::{CHANGELOG_LOST, POSITION_KEY, PositionRecord, RedoRecord, RedoWriter, Token};
use ratchet::observe::Metrics;

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

        let mut lane = Lane::with(&site, task);
        let transactor = std::mem::replace(&mut lane.transactor, Lane::transactor(&site, "ratchet.shop.9.1"));
        lane.tasks
            .get_mut(&0)
            .expect("its only one")
            .set_phase(Phase::Redoing(Box::new(Redoing::new(transactor, redo, token))));
        let metrics = Metrics::new().lane("shop");
        let scratch = &mut Scratch::new(&site.context);
        let Lane { tasks, member, .. } = &mut lane;
        let (context, cluster) = (&site.context, &site.sim);
        let means = &mut Means { context, cluster, tasks, member, scratch, metrics: &metrics, sink: None };
        let setback = loop {
            process.sleep(MS);
            match redoing::step(means, 0) {
                Ok(is_played) => assert!(!is_played, "the redo is played"),
                Err(setback) => break setback.to_string(),
            }
        };
        let meta = lane.tasks[&0].held.as_ref().expect("it is kept").store.meta().expect("a disk");
        (setback, meta.map(|meta| meta.changelog_offset))
    });
    assert!(setback.contains("its last records were lost"), "{setback}");
    assert_eq!(noted, Some(CHANGELOG_LOST));
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
