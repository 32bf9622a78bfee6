//! Seeds of the writer, and the mistakes that their judge has to notice.

use std::time::{Duration, Instant};

use super::super::client::mistakes::Mistake;
use super::super::client::writer::{Transactions, WriteSettings};
use super::super::noticing::{self, Noticed};
use super::super::seeds;
use super::{Profile, SECOND, Tally, World, run};

/// How many seeds are run, unless more are wanted.
const SEEDS: u64 = 120;

#[expect(clippy::disallowed_methods, reason = "a base for the simulated clock, of which only differences count")]
fn base() -> Instant {
    Instant::now()
}

#[test]
fn what_is_committed_is_what_the_app_was_told() {
    let (seeds, reach_all) = seeds(SEEDS);
    let mut total = Tally::default();
    let mut failed = Vec::new();
    for seed in seeds {
        let (tally, judged) = run(seed, Profile::draw(seed), base());
        if let Err(wrong) = judged {
            failed.push(format!("seed {seed}: {wrong}"));
        }
        total.add(&tally);
    }
    println!("{total:?}");
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
    if reach_all {
        total.assert_reached();
    }
}

#[test]
fn no_writer_is_lost_without_trouble() {
    for seed in 0..SEEDS {
        assert_eq!(run(seed, Profile::draw_calm(seed), base()).1, Ok(()), "seed {seed}");
    }
}

/// At any moment, so that something is asked of it now and nothing then; and for longer than any patience. The others may
/// name it as the coordinator for a while after it is gone, and then do not know it any more.
#[test]
fn coordinator_that_is_gone_is_looked_for_elsewhere() {
    const GONE: i32 = 2;
    for (moment, is_named) in (0..60).flat_map(|moment| [(moment, false), (moment, true)]) {
        let mut world = World::new(moment, Profile::draw(moment), base());
        world.calm();
        world.run_until(SECOND + moment * 777, |world| world.committed() > 30);
        if is_named {
            world.cluster.broker.nodes.seats = [(GONE, 0); 2];
            world.run_until(world.now + SECOND, |_| false);
        }
        for partition in world.cluster.broker.nodes.partitions() {
            world.cluster.elect(&partition, 3, None, false);
        }
        world.cluster.broker.nodes.node(GONE).is_up = false;
        world.links.cut_node(GONE, world.now);
        [1, 3].into_iter().for_each(|node| world.cluster.broker.gossip(node));
        if is_named {
            world.run_until(world.now + 3 * SECOND, |_| false);
        }
        world.cluster.broker.nodes.node(GONE).is_given_up = true;
        world.run_until(world.now + u64::from(is_named) * 3 * SECOND, |_| false);
        world.cluster.broker.nodes.seats = [(3, 0); 2];
        let before = world.committed();
        world.run_until(world.now + 40 * SECOND, |world| world.committed() > before + 3);
        let what = format!("seed {moment}, named: {is_named}: {before}, then {}", world.committed());
        assert!(world.committed() > before + 3, "{what}");
    }
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.unknown += other.unknown;
        self.unknown_committed += other.unknown_committed;
        self.writers += other.writers;
        self.cuts += other.cuts;
        self.late += other.late;
        self.timed_out += other.timed_out;
        self.zombies += other.zombies;
        self.duplicates_refused += other.duplicates_refused;
        self.splits += other.splits;
        self.gaps += other.gaps;
        self.moved += other.moved;
        self.throttles += other.throttles;
    }

    /// A run that does not reach what it is for is worth nothing.
    fn assert_reached(&self) {
        let reached = [
            self.committed,
            self.aborted,
            self.unknown,
            self.unknown_committed,
            self.cuts,
            self.late,
            self.timed_out,
            self.zombies,
            self.splits,
            self.gaps,
            self.moved,
            self.throttles,
        ];
        assert!(reached.iter().all(|count| *count > 0), "not all situations were reached: {self:?}");
    }
}

/// Plays seeds with a mistake until the judge notices it.
pub fn notice(mistake: Mistake) -> Noticed {
    noticing::notice(mistake, judgement(mistake), |seed| run(seed, drawn(mistake, seed), base()).1)
}

/// A part of the judgement that a mistake has to cause.
fn judgement(mistake: Mistake) -> &'static str {
    match mistake {
        // Brokers refuse all requests with the former epoch: the only wrong is that no writer lasts.
        Mistake::FormerEpoch => "although all was calm",
        Mistake::DoubtIgnored => "its offsets were committed again, or late",
        _ => "",
    }
}

/// The profile of a seed that can show a mistake.
fn drawn(mistake: Mistake, seed: u64) -> Profile {
    let drawn = Profile::draw(seed);
    match mistake {
        Mistake::FormerEpoch => Profile::draw_calm(seed),
        Mistake::EpochNotRaised => {
            let write = WriteSettings { transactions: Transactions::V1, ..drawn.write };
            Profile { is_v2: false, poisons: true, cuts: 0, moves: 0, deaths: 0, freezes: 0, write, ..drawn }
        }
        Mistake::DoubtIgnored => {
            let write = WriteSettings { transactions: Transactions::V1, linger: Duration::ZERO, ..drawn.write };
            Profile {
                is_v2: false,
                verifies: false,
                cuts: 10,
                late_max: 200_000,
                poisons: false,
                trouble: 4_000_000,
                deaths: 0,
                freezes: 0,
                moves: 0,
                write,
                ..drawn
            }
        }
        _ => drawn,
    }
}

macro_rules! noticed {
    ($($name:ident: $mistake:ident,)+) => {
        $(#[test]
        fn $name() {
            notice(Mistake::$mistake);
        })+
    };
}

noticed! {
    sequence_that_is_not_raised_after_a_retry_is_noticed: SequenceNotRaised,
    epoch_of_a_former_transaction_is_noticed: FormerEpoch,
    epoch_that_is_not_raised_after_an_abort_is_noticed: EpochNotRaised,
    batch_sent_under_two_sequences_is_noticed: TwoSequences,
    offsets_without_generation_are_noticed: NoGeneration,
    partition_of_the_wrong_transaction_is_noticed: AddedBefore,
    answer_to_another_request_is_noticed: WrongAnswer,
    batches_sent_again_out_of_order_are_noticed: LastFirst,
    success_of_an_unknown_end_is_noticed: UnknownIsSuccess,
    abort_of_an_unknown_end_is_noticed: UnknownIsAbort,
    skipped_refusal_is_noticed: RefusedIsSkipped,
    transaction_after_a_doubt_is_noticed: DoubtIgnored,
    end_before_the_records_are_written_is_noticed: EndBeforeFlush,
}
