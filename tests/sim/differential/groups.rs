//! Groups: who has what, whose offsets are taken, and what a takeover is told.

crate::scripts! {
    /// A stale owner's commit fails by its generation; the transaction can be aborted, and the producer goes on.
    a_former_generation_cannot_commit: "
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
    /// Nor can who has left.
    a_departed_member_cannot_commit: "
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
    /// `Member::metadata`: brokers do not fence those who have not joined, so they have no proof.
    an_unjoined_member_has_no_proof: "
        topic in 1
        member m g in
        proof m kept => abort
        share m => 1
        proof m kept
    ";
    /// Why: the offsets of a client that has not joined are taken, whoever else is a member.
    an_unjoined_clients_offsets_are_taken: "
        topic in 1
        member m g in
        share m => 1
        foreign f begin
        foreign f offset g in:0@9/unfenced
        committed g in:0 => none
        foreign f commit
        committed g in:0 => 9/unfenced
    ";
    /// Cooperative: nobody is given what another has not let go, whose offsets can be committed until then.
    a_partition_that_is_asked_for_can_still_be_committed: "
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
    /// Who leaves makes room at once.
    what_one_leaves_the_other_gets: "
        topic in 4
        member a g in
        share a => 4
        member b g in
        share a b => 2 2
        leave b
        share a => 4
    ";
    /// The group is reset only while nobody is in it; the reset's text is blank.
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
    /// A group is deleted with its offsets, and only while nobody is in it.
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
    /// The stable offset fetch waits for pending offsets, a plain one does not.
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
    /// Pending offsets that are aborted leave what was.
    pending_offsets_go_with_an_abort: "
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
    /// Of a plain and a transactional commit the one that was written later wins, not the one that took effect later.
    a_plain_commit_behind_a_pending_one_wins: "
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
    /// A takeover is told what there is where nothing was committed.
    a_quiet_partition_is_settled_at_once: "
        topic in 1
        topic log 1
        write in:0 k=a k=b
        settle s g in:0 log:0
        settled s => none 0..2
    ";
    /// It waits for what is open on the changelog.
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
    /// A changelog that is not there is refused.
    a_takeover_without_a_changelog_is_refused: "
        topic in 1
        settle s g in:0 missing:0
        settled s => refused
    ";
}
