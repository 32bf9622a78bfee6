//! Groups: who owns what, whose offsets are accepted, and what a takeover finds.

crate::scripts! {
    /// A stale owner's commit fails because of its generation; the transaction can be aborted, and the producer
    /// continues.
    earlier_generation_cannot_commit: "
        topic in 2
        topic out 1
        member a g in
        share a => 2
        proof a old
        member b g in
        share a b => 1 1
        producer p tx
        begin p
        send p out:0 a=stale
        flush p => 0
        commit p @old in:0@5/stale => abort
        abort p
        begin p
        send p out:0 a=current
        commit p a in:0@1/current
        see out:0 => 2:current | 4
        committed g in:0 => 1/current
    ";
    /// Nor can a member that has left.
    departed_member_cannot_commit: "
        topic in 1
        member a g in
        share a => 1
        proof a gone
        leave a
        producer p tx
        begin p
        commit p @gone in:0@5/ => abort
        committed g in:0 => none
    ";
    /// `Member::metadata`: brokers do not fence clients that have not joined, so these have no proof.
    an_unjoined_member_has_no_proof: "
        topic in 1
        member m g in
        proof m kept => abort
        share m => 1
        proof m kept
    ";
    /// The reason: the offsets of a client that has not joined are accepted, even if others are members.
    offsets_of_an_unjoined_client_are_accepted: "
        topic in 1
        member m g in
        share m => 1
        foreign f begin
        foreign f offset g in:0@9/unfenced
        committed g in:0 => none
        foreign f commit
        committed g in:0 => 9/unfenced
    ";
    /// Cooperative: nobody is assigned what another has not released, and its offsets can be committed until then.
    partition_being_revoked_can_still_be_committed: "
        topic in 2
        member a g in
        share a => 2
        member b g in
        await a => revoked 1
        producer p tx
        begin p
        commit p a in:0@4/mine in:1@6/mine
        share b => 0
        accept a
        share a b => 1 1
        committed g in:0 => 4/mine
        committed g in:1 => 6/mine
    ";
    /// A member that leaves makes room at once.
    partitions_of_a_departed_member_are_reassigned: "
        topic in 4
        member a g in
        share a => 4
        member b g in
        share a b => 2 2
        leave b
        share a => 4
    ";
    /// A group is reset only while it is empty; the reset's text is blank.
    a_group_is_reset_only_when_it_is_empty: "
        topic in 1
        member m g in
        share m => 1
        producer p tx
        begin p
        commit p m in:0@5/token
        committed g in:0 => 5/token
        set g in:0@2/ => no
        committed g in:0 => 5/token
        leave m
        set g in:0@2/
        committed g in:0 => 2/
    ";
    /// A group is deleted with its offsets, and only while it is empty.
    a_group_is_deleted_only_when_it_is_empty: "
        topic in 1
        set g in:0@5/token
        member m g in
        share m => 1
        delete-group g => no
        committed g in:0 => 5/token
        leave m
        delete-group g
        committed g in:0 => none
    ";
    /// The stable offset fetch waits for pending offsets; a plain one does not.
    a_takeover_waits_for_pending_offsets: "
        topic in 1
        topic log 1
        set g in:0@3/first
        foreign f begin
        foreign f offset g in:0@9/theirs
        committed g in:0 => 3/first
        settle s g in:0 log:0
        open s
        foreign f commit
        settled s => 9/theirs 0..0
    ";
    /// Aborted pending offsets leave the committed ones as they were.
    aborted_pending_offsets_are_dropped: "
        topic in 1
        topic log 1
        set g in:0@3/first
        foreign f begin
        foreign f offset g in:0@9/theirs
        settle s g in:0 log:0
        open s
        foreign f abort
        settled s => 3/first 0..0
    ";
    /// Of a plain and a transactional commit the later write wins, not the one that took effect later.
    plain_commit_after_a_pending_one_wins: "
        topic in 1
        topic log 1
        set g in:0@3/first
        foreign f begin
        foreign f offset g in:0@9/theirs
        set g in:0@4/later
        foreign f commit
        settle s g in:0 log:0
        settled s => 4/later 0..0
        committed g in:0 => 4/later
    ";
    /// A takeover succeeds at once if nothing was committed.
    quiet_partition_is_settled_at_once: "
        topic in 1
        topic log 1
        write in:0 k=a k=b
        settle s g in:0 log:0
        settled s => none 0..2
    ";
    /// It waits for an open transaction on the changelog.
    a_takeover_waits_for_the_changelog: "
        topic in 1
        topic log 1
        foreign f begin
        foreign f write log:0 k=open
        settle s g in:0 log:0
        open s
        foreign f abort
        settled s => none 0..0
        see log:0 => | 2
    ";
    /// It waits for a dead owner until its transaction times out.
    a_takeover_waits_for_a_dead_owner: "
        topic in 1
        topic log 1
        brief dead tx
        begin dead
        send dead log:0 k=never
        flush dead => 0
        drop dead
        settle s g in:0 log:0
        open s
        settled s => none 0..0
        see log:0 => | 2
    ";
    /// A missing changelog is refused.
    a_takeover_without_a_changelog_is_refused: "
        topic in 1
        settle s g in:0 missing:0
        settled s => refused
    ";
}
