//! Transactions: all or nothing is visible, to which readers, and from which producers.

crate::scripts! {
    /// "Nothing torn": output and offset become visible together, and markers take offsets.
    commit_makes_the_whole_transaction_visible_at_once: "
        topic in 1
        topic out 2
        member m g in
        share m => 1
        producer p tx
        begin p
        send p out:0 a=1 b=2
        send p out:1 c=3
        flush p => 0 1 0
        raw out:0 => 0:1 1:2
        see out:0 => | 0
        ends out:0 => 0 0 2
        committed g in:0 => none
        commit p m in:0@7/text
        see out:0 => 0:1 1:2 | 3
        see out:1 => 0:3 | 2
        ends out:0 => 0 3 3
        committed g in:0 => 7/text
    ";
    /// Aborted records are never visible, and the producer continues.
    aborted_records_are_never_visible: "
        topic in 1
        topic out 1
        member m g in
        share m => 1
        producer p tx
        begin p
        send p out:0 a=lost
        flush p => 0
        abort p
        ends out:0 => 0 2 2
        see out:0 => | 2
        raw out:0 => 0:lost
        begin p
        send p out:0 a=kept
        commit p m in:0@1/
        see out:0 => 2:kept | 4
        committed g in:0 => 1/
    ";
    /// The last stable offset: an open transaction hides what others have committed after it.
    open_transaction_hides_later_records: "
        topic log 1
        write log:0 k=before
        producer p tx
        begin p
        send p log:0 a=open
        flush p => 1
        write log:0 k=behind
        ends log:0 => 0 1 3
        see log:0 => 0:before | 1
        raw log:0 => 0:before 1:open 2:behind
        abort p
        see log:0 => 0:before 2:behind | 4
    ";
    /// A transaction without records leaves no marker anywhere.
    empty_transaction_leaves_no_marker: "
        topic out 1
        producer p tx
        begin p
        abort p
        begin p
        abort p
        ends out:0 => 0 0 0
    ";
    /// A claim, or records that are all dropped: offsets alone.
    transaction_may_contain_only_offsets: "
        topic in 2
        member m g in
        share m => 2
        producer p tx
        begin p
        commit p m in:1@3/claimed
        committed g in:0 => none
        committed g in:1 => 3/claimed
        begin p
        commit p m in:0@9/ in:1@2/back
        committed g in:0 => 9/
        committed g in:1 => 2/back
    ";
    /// Fast takeover relies on it: opening an id aborts its open transaction, and fences its owner.
    second_producer_aborts_the_transaction_of_the_first: "
        topic in 1
        topic out 1
        member m g in
        share m => 1
        producer first tx
        begin first
        send first out:0 a=fenced
        flush first => 0
        producer second tx
        ends out:0 => 0 2 2
        commit first m in:0@5/ => fenced
        see out:0 => | 2
        begin second
        send second out:0 a=mine
        commit second m in:0@1/
        see out:0 => 2:mine | 4
        committed g in:0 => 1/
    ";
    /// The same if nothing was open.
    second_producer_fences_an_idle_first_one: "
        topic in 1
        topic out 1
        member m g in
        share m => 1
        producer first tx
        producer second tx
        begin first
        send first out:0 a=fenced
        commit first m in:0@5/ => fenced
        ends out:0 => 0 0 0
        committed g in:0 => none
    ";
    /// `Cluster::fence`: it takes effect whether or not anybody waits for the response.
    a_dead_owner_is_fenced: "
        topic out 1
        producer dead tx
        begin dead
        send dead out:0 a=1
        flush dead => 0
        drop dead
        ends out:0 => 0 0 1
        fence tx
        ends out:0 => 0 2 2
        see out:0 => | 2
    ";
    /// What makes a takeover right in the worst case: the transaction's timeout, and the coordinator's scan.
    a_dead_owners_transaction_times_out: "
        topic out 1
        brief dead tx
        begin dead
        send dead out:0 a=1
        flush dead => 0
        drop dead
        ends out:0 => 0 0 1
        ends out:0 => 0 2 2
        see out:0 => | 2
    ";
    /// A batch that the topic rejects fails alone: the transaction is aborted, and its records are written by another
    /// producer, as the engine does it. On Kafka, the next commit of the same producer would be aborted too.
    too_large_record_is_rejected: "
        topic in 1
        topic out 1 small
        member m g in
        share m => 1
        producer p tx
        begin p
        large p out:0 5000
        flush p => refused
        abort p
        ends out:0 => 0 1 1
        producer q other
        begin q
        send q out:0 a=1
        commit q m in:0@1/
        see out:0 => 1:1 | 3
    ";
    /// A compacted topic accepts no record without a key.
    compacted_topic_rejects_a_record_without_a_key: "
        topic log 1 compacted
        producer p tx
        begin p
        send p log:0 -=1
        flush p => refused
        abort p
        ends log:0 => 0 1 1
    ";
}
