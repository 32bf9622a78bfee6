//! How far grants reach beyond the read position. A grant permits the calls of all records before an offset: see
//! [`crate::engine::calling::grants`].

/// How far beyond the read position a grant reaches at most, in offsets.
const AHEAD_MAX: i64 = 4096;

/// How far beyond the read position the next grant reaches: twice the distance that was read since the last grant but
/// one, so that under load no call waits for a transaction of its own. When less is read, the distance shrinks
/// gradually. A grant has to suffice until the next grant is committed, which is two transactions later, since the lane
/// continues to read during a commit.
#[derive(Debug)]
pub struct Reach {
    /// The read positions at which the last grant and the grant before it were written.
    read_to: [i64; 2],
    /// How far the last grant reached beyond the read position.
    ahead: i64,
}

impl Reach {
    /// The reach for a task that continues to read at this offset.
    pub fn new(read_to: i64) -> Self {
        Self { read_to: [read_to; 2], ahead: 0 }
    }

    /// The end of a grant that is written at the read position `read_to`.
    pub fn end(&mut self, read_to: i64) -> i64 {
        let [last, before] = self.read_to;
        let read = read_to.saturating_sub(before);
        let shrunk = self.ahead - self.ahead / 8;
        (self.read_to, self.ahead) = ([read_to, last], read.saturating_mul(2).max(shrunk).clamp(1, AHEAD_MAX));
        read_to.saturating_add(self.ahead)
    }
}

#[cfg(test)]
mod tests {
    //! Goal: a grant reaches as far as is useful, and no further.

    use super::*;

    #[test]
    fn reach_grows_and_shrinks_with_the_number_of_records_read() {
        let mut reach = Reach::new(1000);
        assert_eq!(reach.end(1001), 1003, "one record");
        assert_eq!(reach.end(1001), 1003, "nothing more was read: the end is unchanged");
        assert_eq!(reach.end(1501), 1501 + 1000, "a batch");
        assert_eq!(reach.end(1501), 1501 + 1000, "the batch was read while the last grant was being committed");
        assert_eq!(reach.end(1501), 1501 + 875, "nothing was read for a moment");
        assert_eq!(reach.end(1_000_000), 1_000_000 + AHEAD_MAX, "very many records");
        (0..60).for_each(|_| _ = reach.end(1_000_000));
        assert!(reach.end(1_000_000) < 1_000_000 + 10, "nothing was read for a long time: {reach:?}");
        assert_eq!(reach.end(i64::MAX), i64::MAX, "the largest offset");
    }
}
