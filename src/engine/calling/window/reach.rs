//! How far grants reach ahead of what was read: see [`crate::engine::calling::grants`].

/// How far ahead of what was read a grant reaches at most, in offsets.
const AHEAD_MAX: i64 = 4096;

/// How far ahead of what was read the next grant reaches: twice as far as was read since the last grant but one, so
/// that under load no call waits for a transaction of its own; when less is read, it shrinks little by little. A grant
/// has to last until the next one is committed, which is two transactions later, since the lane goes on while it
/// commits.
#[derive(Debug)]
pub struct Reach {
    /// How far had been read when the last grant was written, and when the one before it was.
    read_to: [i64; 2],
    ahead: i64,
}

impl Reach {
    /// The reach for a task that goes on reading at this offset.
    pub fn new(read_to: i64) -> Self {
        Self { read_to: [read_to; 2], ahead: 0 }
    }

    /// The end of a grant that is written now, when everything before `read_to` is read.
    pub fn end(&mut self, read_to: i64) -> i64 {
        let [last, before] = self.read_to;
        let read = read_to.saturating_sub(before);
        let less = self.ahead - self.ahead / 8;
        (self.read_to, self.ahead) = ([read_to, last], read.saturating_mul(2).max(less).clamp(1, AHEAD_MAX));
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
        assert_eq!(reach.end(1001), 1003, "nothing more was read: the same end");
        assert_eq!(reach.end(1501), 1501 + 1000, "a batch");
        assert_eq!(reach.end(1501), 1501 + 1000, "the batch was read while the last grant was being committed");
        assert_eq!(reach.end(1501), 1501 + 875, "nothing was read for a moment");
        assert_eq!(reach.end(1_000_000), 1_000_000 + AHEAD_MAX, "very many records");
        (0..60).for_each(|_| _ = reach.end(1_000_000));
        assert!(reach.end(1_000_000) < 1_000_000 + 10, "nothing was read for long: {reach:?}");
        assert_eq!(reach.end(i64::MAX), i64::MAX, "the largest offset");
    }
}
