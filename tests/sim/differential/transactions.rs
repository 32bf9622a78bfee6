//! Transactions: visible whole or not at all, for whom, and by whom.

crate::scripts! {
    /// "Nothing torn": output and offset become visible together, and markers take offsets.
    a_commit_shows_all_of_it_at_once: "
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
    /// What was aborted is never visible, and the producer goes on.
    an_abort_hides_for_ever: "
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
    /// The last stable offset: an open transaction hides what others have committed behind it.
    an_open_transaction_hides_what_follows: "
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
    /// A transaction in which nothing was sent leaves no marker anywhere.
    an_empty_transaction_leaves_nothing: "
        topic out 1
        producer p tx
        begin p
        abort p
        begin p
        abort p
        ends out:0 => 0 0 0
    ";
    /// A claim, and records that are all dropped: offsets alone.
    a_transaction_may_hold_offsets_alone: "
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
    /// Fast takeover rests on it: who opens an id ends what is open under it, and fences its owner.
    a_second_producer_ends_the_firsts_transaction: "
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
    /// The same where nothing was open.
    a_second_producer_fences_an_idle_first: "
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
    /// `Cluster::fence`: the effect comes whether or not anybody waits for the answer.
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
    /// What makes a takeover right in the worst case: the transaction's time-out, and the coordinator's scan.
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
    /// A batch that the topic does not take fails alone: the transaction is aborted, and its records are written by another
    /// producer, as the engine does it. On Kafka, the next commit of the same one would be aborted too.
    a_record_that_is_too_large_is_refused: "
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
    /// A compacted topic takes no record without a key.
    a_record_without_a_key_is_refused_by_a_compacted_topic: "
        topic log 1 compacted
        producer p tx
        begin p
        send p log:0 -=1
        flush p => refused
        abort p
        ends log:0 => 0 1 1
    ";
}
