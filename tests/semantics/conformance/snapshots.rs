//! Snapshot reads, replayed watermarks, and what sinks for lake tables expect.

use ratchet::dedup::{Reason, Verdict};
use serde_json::{Value, json};

use Verdict::{Forwarded, Invalid, Stale};

use crate::task::{Given, Task, keyed, value};

/// debezium-server-iceberg's order: `__source_ts_ms`, then the operation.
const UPSERT: &str = "
input: {topics: [cdc], key_format: json}
identity: {content: key}
version: {of: value.__source_ts_ms, as: integer}
kinds: {of: value.__op, delete: [d], read: [r]}
";

fn flat(op: &str, ts: i64) -> Given {
    keyed(json!({"id": 1}), json!({"id": 1, "__op": op, "__source_ts_ms": ts}))
}

fn last_op(task: &Task) -> Value {
    task.values().last().expect("something was forwarded")["__op"].clone()
}

/// debezium-server-iceberg, `IcebergChangeConsumerUpsertTest`: a create at 1 and an update at 3 leave the update, in
/// either order.
#[test]
fn debezium_server_iceberg_upsert_the_later_wins() {
    let mut task = Task::of(UPSERT);
    assert_eq!(task.verdicts([flat("c", 1), flat("u", 3)]), [Forwarded, Forwarded]);
    assert_eq!(last_op(&task), "u");
    let mut task = Task::of(UPSERT);
    assert_eq!(task.verdicts([flat("u", 3), flat("c", 1)]), [Forwarded, Stale]);
    assert_eq!(last_op(&task), "u");
}

/// debezium-server-iceberg: a read and an update at the same time leave the update, in either order.
#[test]
fn debezium_server_iceberg_upsert_a_tie_of_read_and_update() {
    let mut task = Task::of(UPSERT);
    assert_eq!(task.verdicts([flat("r", 3), flat("u", 3)]), [Forwarded, Forwarded]);
    assert_eq!(last_op(&task), "u");
    let mut task = Task::of(UPSERT);
    assert_eq!(task.reasons([flat("u", 3), flat("r", 3)]), [Reason::First, Reason::SnapshotRead]);
    assert_eq!(last_op(&task), "u");
}

/// debezium-server-iceberg: a null key is an error. Here the record is invalid and dead-lettered.
#[test]
fn debezium_server_iceberg_upsert_a_null_key_is_an_error() {
    let mut task = Task::of(UPSERT);
    let decision = task.give(value(json!({"id": 1, "__op": "c", "__source_ts_ms": 1})));
    assert_eq!((decision.verdict, decision.reason), (Invalid, Reason::IdentityMissing));
}

/// TiCDC's rows by commit time, which many rows may share.
const COMMIT_TS: &str = "
identity: [value.table, value.id]
version: {of: value.commitTs, as: integer}
on_equal: forward
";

fn committed(id: i64, ts: u64) -> Given {
    value(json!({"table": "t", "id": id, "commitTs": ts}))
}

/// TiCDC, `cdc kafka consumer`: a row below the resolved time is dropped, an equal one is kept. Here that time is per
/// row, not per partition. **Decided otherwise** for other rows: one that was never seen is forwarded even below the
/// stream's highest commit time, since dropping by a stream-wide mark loses changes.
#[test]
fn ticdc_consumer_rows_below_the_watermark() {
    let mut task = Task::of(COMMIT_TS);
    let (high, low) = (449_536_000_000_000_002, 449_536_000_000_000_001);
    let given = [committed(1, high), committed(1, low), committed(1, high), committed(2, low)];
    assert_eq!(task.verdicts(given), [Forwarded, Stale, Forwarded, Forwarded]);
}

/// TiCDC, `cdc kafka consumer`: an older watermark replayed at a newer offset is ignored, without a panic. Here a
/// partition's watermarks have one identity, and an older one is stale.
#[test]
fn ticdc_consumer_a_replayed_older_watermark() {
    let mut task = Task::of("preset: ticdc@1\n");
    let watermark = |ts: u64| {
        let extension = json!({"watermarkTs": ts});
        value(json!({"id": 0, "database": "", "table": "", "pkNames": null, "isDdl": false, "type": "TIDB_WATERMARK",
            "es": 1_640_007_049_196_u64, "ts": 1_640_007_050_284_u64, "sql": "", "data": null, "old": null,
            "_tidb": extension}))
    };
    let (older, newer) = (429_918_007_904_436_225, 429_918_007_904_436_226);
    let verdicts = task.verdicts([watermark(older), watermark(newer), watermark(older)]);
    assert_eq!(verdicts, [Forwarded, Forwarded, Stale]);
}
