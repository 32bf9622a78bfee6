//! The filter of aborted transactions, compared with a model of a log.

use super::*;

/// One step in the history of a log.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A producer writes a batch of `records` records, in a transaction or outside of one.
    Write { producer: i64, records: usize, transactional: bool },
    /// A producer ends its transaction, if it has one.
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

/// A batch of the log.
struct Entry {
    bytes: Vec<u8>,
    first_offset: i64,
    last_offset: i64,
    /// Whether a reader with read_committed receives it; `None` while its transaction is open.
    visible: Option<bool>,
}

/// An aborted transaction, and the offset of its marker.
struct AbortedSpan {
    transaction: AbortedTransaction,
    marker_offset: i64,
}

#[derive(Default)]
struct Log {
    entries: Vec<Entry>,
    aborted: Vec<AbortedSpan>,
    end_offset: i64,
}

impl Log {
    fn from_steps(steps: &[Step]) -> Self {
        let mut log = Self::default();
        // The open transactions: the producer, and the first entry.
        let mut open: Vec<(i64, usize)> = Vec::new();
        for step in steps {
            match *step {
                Step::Write { producer, records, transactional } => {
                    // A producer with an open transaction writes only within it.
                    let is_open = open.iter().any(|(owner, _)| *owner == producer);
                    let transactional = transactional || is_open;
                    if transactional && !is_open {
                        open.push((producer, log.entries.len()));
                    }
                    let seal = BatchProducer { producer_id: producer, transactional, ..SEAL };
                    let bytes = batch(log.end_offset, &vec![OwnedRecord::default(); records], Codec::None, seal);
                    log.push(bytes, records, (!transactional).then_some(true));
                }
                Step::End { producer, commit } => {
                    let Some(index) = open.iter().position(|(owner, _)| *owner == producer) else { continue };
                    let (_, from) = open.remove(index);
                    log.end_transaction(producer, from, commit);
                }
            }
        }
        log
    }

    fn push(&mut self, bytes: Vec<u8>, records: usize, visible: Option<bool>) {
        let first_offset = self.end_offset;
        self.end_offset += records as i64;
        self.entries.push(Entry { bytes, first_offset, last_offset: self.end_offset - 1, visible });
    }

    fn end_transaction(&mut self, producer_id: i64, from: usize, commit: bool) {
        let first_offset = self.entries[from].first_offset;
        for entry in &mut self.entries[from..] {
            let batch = Batches::new(&entry.bytes).next().unwrap().unwrap();
            if batch.producer_id == producer_id && entry.visible.is_none() {
                entry.visible = Some(commit);
            }
        }
        if !commit {
            let transaction = AbortedTransaction { producer_id, first_offset };
            self.aborted.push(AbortedSpan { transaction, marker_offset: self.end_offset });
        }
        let control = if commit { Control::Commit } else { Control::Abort };
        self.push(marker(self.end_offset, producer_id, control), 1, Some(false));
    }

    /// How many entries are before the last stable offset.
    fn stable_count(&self) -> usize {
        self.entries.iter().position(|entry| entry.visible.is_none()).unwrap_or(self.entries.len())
    }

    /// The aborted transactions that a broker lists for a fetch of the offsets in `from..to`.
    fn aborted_between(&self, from: i64, to: i64) -> Vec<AbortedTransaction> {
        let overlaps = |span: &&AbortedSpan| span.marker_offset >= from && span.transaction.first_offset < to;
        self.aborted.iter().filter(overlaps).map(|span| span.transaction).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn readers_get_committed_batches_only(steps in vec(step(), 1..60), rotate: usize) {
        let log = Log::from_steps(&steps);
        let stable = log.stable_count();
        let mut aborted = AbortedFilter::default();
        // Every possible fetch: from each offset, mid-batch and mid-transaction, up to each batch.
        for from in 0..stable {
            for to in from + 1..=stable {
                let fetched = &log.entries[from..to];
                for offset in fetched[0].first_offset..=fetched[0].last_offset {
                    let mut list = log.aborted_between(offset, fetched[fetched.len() - 1].last_offset + 1);
                    let middle = rotate % list.len().max(1);
                    list.rotate_left(middle);
                    aborted.begin(list);
                    for entry in fetched {
                        let batch = Batches::new(&entry.bytes).next().unwrap().unwrap();
                        let is_visible = entry.visible == Some(true);
                        prop_assert_eq!(aborted.admits(&batch).unwrap(), is_visible, "{}", entry.first_offset);
                    }
                }
            }
        }
    }
}

#[test]
fn unreadable_control_batch_is_an_error_and_an_empty_one_is_ignored() {
    let list = [AbortedTransaction { producer_id: 77, first_offset: 0 }];
    let mut aborted = AbortedFilter::default();
    let admits =
        |aborted: &mut AbortedFilter, bytes: &[u8]| aborted.admits(&Batches::new(bytes).next().unwrap().unwrap());
    let data = batch(2, &[OwnedRecord::default()], Codec::None, SEAL);
    // A key that is too short, a key of a negative version, and no key.
    for key in [Some(vec![0, 0, 0]), Some(vec![0xff, 0xff, 0, 0]), None] {
        let mut broken = batch(1, &[OwnedRecord { key, ..OwnedRecord::default() }], Codec::None, SEAL);
        rewrite(&mut broken, CHECKED_FROM, &(CONTROL_BIT | TRANSACTIONAL_BIT).to_be_bytes());
        aborted.begin(list);
        assert!(matches!(admits(&mut aborted, &broken), Err(Error::Damaged(_))));
    }
    let mut empty = BatchBuilder::new().seal(SEAL, &mut Packer::new(Codec::None, None).unwrap());
    rewrite(&mut empty, CHECKED_FROM, &(CONTROL_BIT | TRANSACTIONAL_BIT).to_be_bytes());
    aborted.begin(list);
    assert_eq!(admits(&mut aborted, &empty), Ok(false));
    assert_eq!(admits(&mut aborted, &data), Ok(false), "its transaction has not ended");
    let other = batch(3, &[OwnedRecord::default()], Codec::None, BatchProducer { producer_id: 78, ..SEAL });
    assert_eq!(admits(&mut aborted, &other), Ok(true));
    // The next response has a list of its own.
    aborted.begin([]);
    assert_eq!(admits(&mut aborted, &data), Ok(true));
}

/// As in Java's client: if a broker's index of transactions points into a batch, the whole batch belongs to the
/// transaction.
#[test]
fn transaction_that_begins_within_a_batch_covers_all_of_it() {
    let bytes = batch(10, &vec![OwnedRecord::default(); 3], Codec::None, SEAL);
    let batch = Batches::new(&bytes).next().unwrap().unwrap();
    let mut aborted = AbortedFilter::default();
    for (first_offset, expected) in [(10, false), (12, false), (13, true)] {
        aborted.begin([AbortedTransaction { producer_id: SEAL.producer_id, first_offset }]);
        assert_eq!(aborted.admits(&batch), Ok(expected), "from {first_offset}");
    }
    // Every reader receives batches outside of transactions.
    let bytes = self::batch(10, &[OwnedRecord::default()], Codec::None, BatchProducer { transactional: false, ..SEAL });
    aborted.begin([AbortedTransaction { producer_id: SEAL.producer_id, first_offset: 0 }]);
    assert_eq!(aborted.admits(&Batches::new(&bytes).next().unwrap().unwrap()), Ok(true));
}
