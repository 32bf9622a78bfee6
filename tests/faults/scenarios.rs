//! The list of faults, in the order in which they are injected and listed in the table.

use crate::report::Report;
use crate::{apart, brokers, crowd, disk, elections, epochs, kills, network, records, topics};

/// One fault.
pub struct Scenario {
    /// Selects it on the command line.
    pub name: &'static str,
    /// What happens, for the table.
    pub fault: &'static str,
    pub play: fn(&mut Report),
    /// Whether `make test` runs it too, some with a single round.
    pub brief: bool,
}

impl Scenario {
    /// Whether this word selects it: a part of its name, or `=` and the whole name.
    pub fn is_called(&self, word: &str) -> bool {
        word.strip_prefix('=').map_or_else(|| self.name.contains(word), |whole| self.name == whole)
    }
}

const fn fault(name: &'static str, fault: &'static str, play: fn(&mut Report)) -> Scenario {
    Scenario { name, fault, play, brief: false }
}

/// One that `make test` runs too.
const fn brief(name: &'static str, fault: &'static str, play: fn(&mut Report)) -> Scenario {
    Scenario { name, fault, play, brief: true }
}

pub static SCENARIOS: &[Scenario] = &[
    fault(
        "kill-random",
        "SIGKILL at any time, every other one within a transaction, every fourth with the loss of the disk",
        kills::at_random,
    ),
    fault("kill-after-sends", "SIGKILL before a commit", kills::after_the_sends),
    brief("kill-after-commit", "SIGKILL between the commit and the store's write", kills::after_the_commit),
    fault("kill-store-write", "SIGKILL during the store's write", kills::during_the_stores_write),
    fault("kill-restore", "SIGKILL during a restore", kills::during_the_restore),
    fault("zombie", "SIGSTOP for longer than a session, then SIGCONT", kills::zombies),
    fault(
        "transaction-timeout",
        "the broker ends a transaction that stands open for too long",
        kills::transaction_timeouts,
    ),
    fault("endtxn-cut-before", "connection cut, EndTxn lost", network::cut_before_the_end),
    fault("endtxn-cut-after", "connection cut, EndTxn's answer lost", network::cut_after_the_end),
    fault("endtxn-late", "EndTxn 1.5 s late", network::late_end),
    fault("endtxn-very-late", "EndTxn 5 s late, beyond the transaction's time-out", network::very_late_end),
    fault("endtxn-past", "EndTxn arrives 0.7 s after its connection was cut", network::end_out_of_the_past),
    fault(
        "offsets-past",
        "TxnOffsetCommit arrives 0.7 s after its connection was cut",
        network::offsets_out_of_the_past,
    ),
    fault("records-past", "Produce arrives 0.7 s after its connection was cut", network::records_out_of_the_past),
    fault("black-hole", "nothing passes for 5 s, to one broker or all", network::black_hole),
    fault("resets", "all connections reset every 0.3 s, for 5 s", network::resets),
    fault("refusing", "no connection comes about for 5 s", network::refused_connections),
    fault("throttle", "10 kB a second and connection for 10 s", network::throttle),
    fault("broker-kill", "one of three brokers killed (SIGKILL), and back", brokers::killed),
    fault("broker-freeze", "one of three brokers frozen until it is given up, and back", brokers::frozen),
    fault("broker-stall", "one of three brokers frozen for 1.5 s", brokers::stalled),
    fault(
        "broker-restart",
        "one of three brokers restarted in good order: its leaders move away and back",
        brokers::restarted,
    ),
    fault("broker-controller", "the broker that is the controller killed, and back", brokers::controller_killed),
    fault(
        "broker-and-instance",
        "an instance killed, and at once a broker killed, frozen or stopped, and back",
        brokers::leaving_with_an_instance,
    ),
    fault(
        "broker-in-restore",
        "a broker that leads a part of the changelog killed, frozen or stopped during a restore, and back",
        brokers::leaving_during_a_restore,
    ),
    fault(
        "brokers-cut-off",
        "one of three brokers cut off from the others and the controller, not from its clients, for 6 s and more",
        apart::broker_alone,
    ),
    fault("brokers-cut-apart", "two of three brokers cut off from each other", apart::two_brokers_apart),
    fault(
        "brokers-cut-controller",
        "the controller cut off from the two other brokers, not from its clients",
        apart::controller_alone,
    ),
    fault("unclean-input", "a replica that lags elected for the input", elections::of_the_input),
    fault("unclean-input-frozen", "the same under an instance that sees it late", elections::of_the_input_frozen),
    fault("unclean-input-later", "the same before an instance starts", elections::of_the_input_later),
    fault("unclean-changelog", "a replica that lags elected for the changelog", elections::of_the_changelog),
    fault(
        "unclean-changelog-frozen",
        "the same under an instance that sees it late",
        elections::of_the_changelog_frozen,
    ),
    fault("unclean-changelog-later", "the same before an instance starts", elections::of_the_changelog_later),
    fault(
        "unclean-changelog-regrown",
        "the same before an instance starts, and as much written in its place",
        elections::of_the_changelog_regrown,
    ),
    fault("disk-full", "no space left while stores are rebuilt, until some is made", disk::full),
    fault("disk-full-at-work", "no space left under stores at work, until some is made", disk::full_at_work),
    fault("disk-corrupted", "every table of every store overwritten", disk::corrupted_tables),
    brief("disk-manifest", "every store's MANIFEST deleted", disk::deleted_manifests),
    fault("disk-old-copy", "an old copy of the state folder put back", disk::old_copy),
    fault("disk-swapped", "stores swapped between partitions", disk::swapped_folders),
    fault(
        "cleaner",
        "the cleaner at work on tiny segments and soon on tombstones, instances killed, half of the time with the disk",
        topics::cleaner,
    ),
    fault("input-short", "DeleteRecords on the input, as soon as they are processed", topics::short_input),
    fault("input-unread", "DeleteRecords on the input, unread", topics::unread_records_removed),
    fault("input-transactions", "the input's writers abort, or die", topics::transactional_input),
    fault("input-recreated", "the input deleted and recreated, as long as before", topics::recreated_input),
    brief("input-recreated-running", "the same under a task at work", topics::input_recreated_at_work),
    fault("input-partitions", "partitions added to the input", topics::more_partitions),
    fault("input-partitions-running", "the same under a task at work", topics::more_partitions_at_work),
    fault("changelog-short", "DeleteRecords on the changelog, stores kept", topics::truncated_changelog),
    fault(
        "changelog-short-wiped",
        "DeleteRecords on the changelog, the store lost",
        topics::truncated_changelog_without_a_store,
    ),
    fault("changelog-deleted", "the changelog deleted, the store lost", topics::deleted_changelog),
    fault(
        "changelog-recreated-running",
        "the changelog recreated under a task at work",
        topics::changelog_recreated_at_work,
    ),
    fault("group-deleted", "the group deleted", topics::group_deleted),
    brief("group-earliest", "the group reset to earliest", topics::group_reset_to_earliest),
    fault("group-latest", "the group reset to latest", topics::group_reset_to_latest),
    fault("rebalance-storm", "an instance comes or goes every 1.5 s", crowd::rebalance_storm),
    fault("epochs-used-up", "32,767 transactions and more: a producer's id has no epoch left", epochs::used_up),
    brief("stolen-id", "another client takes a transactional id that is in use", crowd::stolen_ids),
    fault(
        "foreign-transaction",
        "a stranger's transaction open on the changelog, for 3 s of a restore",
        crowd::strangers_transaction,
    ),
    fault("poison", "records that cannot be read", records::poison),
    fault("oversized", "records larger than the output takes, and than ratchet takes", records::oversized),
    fault("bombs", "records of some kB that unpack to 6 MB", records::decompression_bombs),
    fault(
        "bomb-beyond-reading",
        "a batch that unpacks to 24 MB, more than `unpacked` allows, until it may",
        records::bomb_beyond_reading,
    ),
    fault("clock-skew", "senders whose clocks are wrong, from a day behind to a year ahead", records::clock_skew),
];
