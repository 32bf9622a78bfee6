//! Goal: write access to ratchet's table in the database gives no access to Kafka topics of others.

use ratchet::format::{POSITION_KEY, PositionRecord, RedoRecord, RedoWriter, Token};
use ratchet::record::Headers;

use crate::load::thing;
use crate::operator::Operator;
use crate::sinks::shop::Shop;
use crate::until::{DEADLINE, within};

/// The last position record in the changelog of partition 0.
fn recorded(shop: &Shop) -> PositionRecord {
    let records = shop.job.kafka.read(&shop.job.changelog()).remove(&0).expect("it has been written to");
    let last = records.into_iter().rev().find(|record| record.key.as_deref() == Some(POSITION_KEY));
    PositionRecord::decode(&last.and_then(|record| record.value).expect("each transaction has one"))
        .expect("it is ours")
}

/// Makes the row say that it is one transaction ahead of Kafka, which wrote to `topic`.
fn forge(shop: &Shop, topic: &str) {
    let recorded = recorded(shop);
    let next = recorded.processed.last().expect("something was processed").1;
    let token = Token { transaction: recorded.token.transaction + 1, ..recorded.token };
    let mut writer = RedoWriter::default();
    writer.begin();
    let (headers, key, value) = (Headers::default(), None, Some(&b"forged"[..]));
    writer.push(RedoRecord::Topic { topic, partition: 0, timestamp: None, headers, key, value });
    let former = recorded.token;
    let position = PositionRecord { token, ..recorded }.encode();
    writer.push(RedoRecord::Changelog { key: POSITION_KEY, value: Some(&position) });
    let redo: String = writer.finish(next, next).iter().map(|byte| format!("{byte:02x}")).collect();
    shop.database.run(&format!(
        "update ratchet.position set token = '{token}', former_token = '{former}', redo = decode('{redo}', 'hex')"
    ));
}

#[test]
fn forged_redo_reaches_no_topic_of_others() {
    let shop = Shop::new("forged", 1);
    let victim = format!("{}.victim", shop.job.input);
    shop.job.kafka.create(&victim, 1, &[]);
    shop.job.send((0..20).map(|id| thing(0, &format!("o-{id}"), 1)));
    let mut operator = Operator::start(&shop.job, "a");
    shop.check(DEADLINE);
    operator.stop();

    forge(&shop, &victim);
    let mut operator = Operator::start(&shop.job, "a");
    operator.await_error(&["this task cannot have written the redo", &victim]);
    operator.kill();
    assert_eq!(shop.job.kafka.bounds(&victim, 0).end, 0, "{:?}", shop.job.kafka.read(&victim));

    // The same for the topology's own topic is written, so it is the topic that was refused.
    forge(&shop, &shop.job.dead_letter());
    let mut operator = Operator::start(&shop.job, "a");
    within(DEADLINE, "the redo to be played", || {
        let letters = shop.job.kafka.read(&shop.job.dead_letter()).into_values().flatten().collect::<Vec<_>>();
        letters.iter().any(|letter| letter.value.as_deref() == Some(b"forged")).then_some(())
    });
    operator.stop();
}
