//! The filter of aborted transactions against a model of a log.

use super::*;

/// One step of a log: who does what.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Writes a batch of that many records, in a transaction or outside of one.
    Write { producer: i64, records: usize, transactional: bool },
    /// Ends the producer's transaction, if it has one.
    End { producer: i64, commit: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let producer = 0..4_i64;
    prop_oneof![
        5 => (producer.clone(), 1..4_usize, prop::bool::weighted(0.8))
            .prop_map(|(producer, records, transactional)| Step::Write { producer, records, transactional }),
        3 => (producer, any::<bool>()).prop_map(|(producer, commit)| Step::End { producer, commit }),
    ]
}

/// A batch of the log: its bytes, its first and last offset, and whether a reader at read_committed gets it: `None`
/// while its transaction is open.
struct Entry {
    bytes: Vec<u8>,
    first: i64,
    last: i64,
    visible: Option<bool>,
}

/// An aborted transaction, and where its marker is.
struct Gone {
    transaction: AbortedTransaction,
    marker: i64,
}

#[derive(Default)]
struct Log {
    entries: Vec<Entry>,
    gone: Vec<Gone>,
    end: i64,
}

impl Log {
    fn of(steps: &[Step]) -> Self {
        let mut log = Self::default();
        // The open transactions: the producer, and the first entry.
        let mut open: Vec<(i64, usize)> = Vec::new();
        for step in steps {
            match *step {
                Step::Write { producer, records, transactional } => {
                    // A producer with an open transaction writes only within it.
                    let is_open = open.iter().any(|(of, _)| *of == producer);
                    let transactional = transactional || is_open;
                    if transactional && !is_open {
                        open.push((producer, log.entries.len()));
                    }
                    let seal = SealAs { producer_id: producer, transactional, ..SEAL };
                    let bytes = batch(log.end, &vec![Owned::default(); records], Codec::None, seal);
                    log.push(bytes, records, (!transactional).then_some(true));
                }
                Step::End { producer, commit } => {
                    let Some(at) = open.iter().position(|(of, _)| *of == producer) else { continue };
                    let (_, from) = open.remove(at);
                    log.end_transaction(producer, from, commit);
                }
            }
        }
        log
    }

    fn push(&mut self, bytes: Vec<u8>, records: usize, visible: Option<bool>) {
        let first = self.end;
        self.end += records as i64;
        self.entries.push(Entry { bytes, first, last: self.end - 1, visible });
    }

    fn end_transaction(&mut self, producer_id: i64, from: usize, commit: bool) {
        let first_offset = self.entries[from].first;
        for entry in &mut self.entries[from..] {
            let batch = Batches::new(&entry.bytes).next().unwrap().unwrap();
            if batch.producer_id == producer_id && entry.visible.is_none() {
                entry.visible = Some(commit);
            }
        }
        if !commit {
            let transaction = AbortedTransaction { producer_id, first_offset };
            self.gone.push(Gone { transaction, marker: self.end });
        }
        let control = if commit { Control::Commit } else { Control::Abort };
        self.push(marker(self.end, producer_id, control), 1, Some(false));
    }

    /// How many entries are before the last stable offset.
    fn stable(&self) -> usize {
        self.entries.iter().position(|entry| entry.visible.is_none()).unwrap_or(self.entries.len())
    }

    /// The transactions that a broker lists for a fetch from one offset up to another.
    fn listed(&self, from: i64, to: i64) -> Vec<AbortedTransaction> {
        let reaches = |gone: &&Gone| gone.marker >= from && gone.transaction.first_offset < to;
        self.gone.iter().filter(reaches).map(|gone| gone.transaction).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn readers_get_committed_batches_only(steps in vec(step(), 1..60), rotate: usize) {
        let log = Log::of(&steps);
        let stable = log.stable();
        let mut aborted = Aborted::default();
        // Every possible fetch: from each offset, mid-batch and mid-transaction, up to each batch.
        for from in 0..stable {
            for to in from + 1..=stable {
                let fetched = &log.entries[from..to];
                for offset in fetched[0].first..=fetched[0].last {
                    let mut list = log.listed(offset, fetched[fetched.len() - 1].last + 1);
                    let middle = rotate % list.len().max(1);
                    list.rotate_left(middle);
                    aborted.begin(list);
                    for entry in fetched {
                        let batch = Batches::new(&entry.bytes).next().unwrap().unwrap();
                        let is_visible = entry.visible == Some(true);
                        prop_assert_eq!(aborted.admits(&batch).unwrap(), is_visible, "{}", entry.first);
                    }
                }
            }
        }
    }
}

#[test]
fn unreadable_control_batch_is_an_error_and_an_empty_one_is_ignored() {
    let list = [AbortedTransaction { producer_id: 77, first_offset: 0 }];
    let mut aborted = Aborted::default();
    let admits = |aborted: &mut Aborted, bytes: &[u8]| aborted.admits(&Batches::new(bytes).next().unwrap().unwrap());
    let data = batch(2, &[Owned::default()], Codec::None, SEAL);
    // A key that is too short, a key of a negative version, and no key.
    for key in [Some(vec![0, 0, 0]), Some(vec![0xff, 0xff, 0, 0]), None] {
        let mut broken = batch(1, &[Owned { key, ..Owned::default() }], Codec::None, SEAL);
        rewrite(&mut broken, CHECKED_FROM, &(CONTROL_BIT | TRANSACTIONAL_BIT).to_be_bytes());
        aborted.begin(list);
        assert!(matches!(admits(&mut aborted, &broken), Err(Error::Damaged(_))));
    }
    let mut empty = BatchBuilder::new().seal(SEAL, &mut Packer::new(Codec::None, None).unwrap());
    rewrite(&mut empty, CHECKED_FROM, &(CONTROL_BIT | TRANSACTIONAL_BIT).to_be_bytes());
    aborted.begin(list);
    assert_eq!(admits(&mut aborted, &empty), Ok(false));
    assert_eq!(admits(&mut aborted, &data), Ok(false), "its transaction goes on");
    let other = batch(3, &[Owned::default()], Codec::None, SealAs { producer_id: 78, ..SEAL });
    assert_eq!(admits(&mut aborted, &other), Ok(true));
    // The next response begins with a list of its own.
    aborted.begin([]);
    assert_eq!(admits(&mut aborted, &data), Ok(true));
}

/// As in Java's client: if a broker's index of transactions points into a batch, all of the batch is meant.
#[test]
fn transaction_that_begins_within_a_batch_covers_all_of_it() {
    let bytes = batch(10, &vec![Owned::default(); 3], Codec::None, SEAL);
    let batch = Batches::new(&bytes).next().unwrap().unwrap();
    let mut aborted = Aborted::default();
    for (first_offset, expected) in [(10, false), (12, false), (13, true)] {
        aborted.begin([AbortedTransaction { producer_id: SEAL.producer_id, first_offset }]);
        assert_eq!(aborted.admits(&batch), Ok(expected), "from {first_offset}");
    }
    // Batches outside of transactions are for every reader.
    let bytes = self::batch(10, &[Owned::default()], Codec::None, SealAs { transactional: false, ..SEAL });
    aborted.begin([AbortedTransaction { producer_id: SEAL.producer_id, first_offset: 0 }]);
    assert_eq!(aborted.admits(&Batches::new(&bytes).next().unwrap().unwrap()), Ok(true));
}
