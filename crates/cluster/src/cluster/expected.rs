//! Where a transaction's reported records must be, unless their partition has lost records.

use std::collections::HashMap;

/// Where a sender expects the reported records of one transaction and one [`Ticket::number`], all in one partition.
///
/// Two losses show in their offsets. A partition that has lost its end before the transaction writes the records below
/// [`Expected::from`]. A partition that loses its end during the transaction has the first and the last record closer
/// together than the records between them allow: a leader that knows nothing else of a producer accepts a batch with any
/// sequence number, so the broker does not notice that the batches before it are gone.
///
/// [`Ticket::number`]: super::Ticket::number
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The lowest offset of a reported record.
    pub from: i64,
    /// How many records the transaction writes, from the first reported one to the last. If only one is reported, only
    /// [`Expected::from`] is checked.
    pub count: usize,
}

impl Expected {
    /// Finds a delivered record, as its number and its offset, that shows that its partition has lost records. `of`
    /// returns the expectation for the records with a number; an offset of -1 means that the broker returned none.
    pub fn find_loss(of: impl Fn(u64) -> Option<Self>, delivered: &[(u64, i64)]) -> Option<(u64, i64)> {
        let mut others: HashMap<u64, i64> = HashMap::new();
        delivered.iter().copied().find(|&(number, offset)| {
            let Some(expected) = of(number) else { return false };
            let other = others.insert(number, offset);
            let is_too_near = |other: i64| other.abs_diff(offset) < (expected.count as u64).saturating_sub(1);
            offset < expected.from || other.is_some_and(is_too_near)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_shows_in_low_offsets_and_in_short_distances() {
        let expected = |count| move |number| (number == 7).then_some(Expected { from: 10, count });
        let cases: [(usize, &[i64], Option<i64>); 9] = [
            (3, &[10, 10], Some(10)),
            (3, &[10, 11], Some(11)),
            (3, &[10, 12], None),
            (3, &[10, 15], None),
            // The position record may be acknowledged first.
            (3, &[12, 10], None),
            (3, &[9, 12], Some(9)),
            (1, &[10], None),
            (1, &[9], Some(9)),
            (1, &[-1], Some(-1)),
        ];
        for (count, offsets, lost) in cases {
            let delivered: Vec<_> = [(6, 0)].into_iter().chain(offsets.iter().map(|offset| (7, *offset))).collect();
            let found = Expected::find_loss(expected(count), &delivered);
            assert_eq!(found, lost.map(|offset| (7, offset)), "{count} records, {offsets:?}");
        }
    }
}
