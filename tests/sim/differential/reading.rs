//! Reading: positions pass markers and gaps, and stop before an open transaction.

use crate::differential::{compare, expect, support};

crate::scripts! {
    /// "The restore has ended when the reader's position has reached the end": markers and aborted records have offsets.
    a_reader_passes_markers_and_aborted_records: "
        topic log 1
        foreign f begin
        foreign f write log:0 a=kept
        foreign f commit
        foreign f begin
        foreign f write log:0 a=lost
        foreign f abort
        see log:0 => 0:kept | 4
        see log:0 from 1 => | 4
        see log:0 from 3 => | 4
        see log:0 from 4 => | 4
    ";
    /// The same for a member.
    a_member_passes_markers_and_aborted_records: "
        topic in 1
        foreign f begin
        foreign f write in:0 a=kept
        foreign f commit
        foreign f begin
        foreign f write in:0 a=lost
        foreign f abort
        member m g in
        share m => 1
        start m in:0 0
        poll m => 0:kept
        position m in:0 => 4
        end m in:0 => 4
    ";
    /// A member stops before an open transaction, and learns of the end beyond it.
    member_stops_before_an_open_transaction: "
        topic in 1
        write in:0 k=a
        foreign f begin
        foreign f write in:0 k=open
        write in:0 k=b
        member m g in
        share m => 1
        start m in:0 0
        poll m => 0:a
        quiet m => nothing
        position m in:0 => 1
        end m in:0 => 3
        foreign f commit
        poll m => 1:open 2:b
        position m in:0 => 4
    ";
    /// Nothing is read that was not started, and nothing stale after another start.
    member_reads_only_what_was_started: "
        topic in 1
        write in:0 k=a k=b
        member m g in
        share m => 1
        quiet m => nothing
        start m in:0 1
        poll m => 1:b
        pause m in:0
        write in:0 k=c
        quiet m => nothing
        start m in:0 0
        poll m => 0:a 1:b 2:c
    ";
    /// Removed records are never skipped silently.
    reading_removed_records_is_refused: "
        topic log 1
        write log:0 k=a k=b k=c
        delete-records log:0 2
        ends log:0 => 2 3 3
        see log:0 => 2:c | 3
        see log:0 from 1 => refused
        see log:0 from 3 => | 3
        see log:0 from 4 => refused
    ";
    /// If an open transaction's first record was removed, the last stable offset is the log's start.
    records_of_an_open_transaction_can_be_removed: "
        topic log 1
        foreign f begin
        foreign f write log:0 k=open
        write log:0 k=b
        delete-records log:0 1
        ends log:0 => 1 1 2
        foreign f abort
        ends log:0 => 1 3 3
        see log:0 => 1:b | 3
    ";
    /// Compaction keeps the last record of a key, leaves gaps in place of others, and does not move the log's start.
    compaction_keeps_the_last_record_of_each_key: "
        topic log 1 compacted
        write log:0 k=1 k=2
        sleep 300
        write log:0 k=3
        sleep 300
        write log:0 other=x
        compact log:0 3
        see log:0 => 2:3 3:x | 4
        ends log:0 => 0 4 4
        see log:0 from 1 => 2:3 3:x | 4
    ";
    /// A tombstone is kept for `delete.retention.ms`, and hides what it removes.
    compaction_keeps_tombstones_for_the_delete_retention: "
        topic log 1 compacted
        write log:0 k=1
        sleep 300
        write log:0 k=-
        sleep 300
        write log:0 other=x
        compact log:0 2
        see log:0 => 1:- 2:x | 3
    ";
    /// If a log ends in a marker, a position after the last record is not yet the end.
    a_reader_passes_a_marker_at_the_end: "
        topic log 1
        write log:0 k=a
        foreign f begin
        foreign f write log:0 k=b
        foreign f commit
        ends log:0 => 0 3 3
        see log:0 => 0:a 1:b | 3
        see log:0 from 2 => | 3
    ";
}

/// A member whose position does not exist says so.
const REFUSED: &str = "
    topic in 1
    write in:0 k=a k=b k=c
    delete-records in:0 2
    member m g in
    share m => 1
    start m in:0 0
    fails m => refused
";

/// Another one reads what is there.
#[test]
fn member_started_at_removed_records_is_refused() {
    compare(&format!("{REFUSED} leave m\n member n g in\n share n => 1\n start n in:0 2\n poll n => 2:c"));
}

/// By librdkafka it must be replaced, and so must a simulated one, though one on the wire could go on.
#[test]
fn refused_member_is_replaced_unless_it_is_on_the_wire() {
    if support::is_on_the_wire() {
        expect(&format!("{REFUSED} start m in:0 2\n poll m => 2:c"));
    } else {
        compare(&format!("{REFUSED} start m in:0 2 => fenced"));
    }
}
