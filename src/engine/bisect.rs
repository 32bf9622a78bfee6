//! Finds the record that an output refuses without naming it: the output names only the transaction or the batch.
//!
//! Each attempt has half as many records, until a single record is refused. After an accepted attempt the caller either
//! doubles the number ([`Bisect::on_success`]) or ends the search ([`Bisect::end`]).

/// How many records one attempt may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bisect {
    records_max: usize,
    limit: usize,
}

impl Bisect {
    /// No search yet: an attempt may have up to `limit` records.
    pub fn new(limit: usize) -> Self {
        Self { records_max: limit, limit }
    }

    /// How many records the next attempt may have.
    pub fn records_max(&self) -> usize {
        self.records_max
    }

    /// Whether attempts are limited to fewer records than usual.
    pub fn is_searching(&self) -> bool {
        self.records_max < self.limit
    }

    /// Called when an attempt with this many records was refused.
    pub fn on_refused(&mut self, attempted: usize) {
        self.records_max = (attempted / 2).max(1);
    }

    /// Called when an attempt was accepted.
    pub fn on_success(&mut self) {
        self.records_max = self.records_max.saturating_mul(2).min(self.limit);
    }

    /// Ends the search.
    pub fn end(&mut self) {
        self.records_max = self.limit;
    }
}

#[cfg(test)]
mod tests {
    //! Goal: a refused record is found in few attempts, whichever records are attempted with it.

    use super::*;

    /// Finds the refused record in at most `attempts` attempts, and the other records are accepted.
    fn search(records: usize, refused: usize, limit: usize, attempts: usize) {
        let (mut bisect, mut next, mut found) = (Bisect::new(limit), 0, None);
        for _ in 0..attempts {
            assert!(bisect.records_max() <= limit, "{}", bisect.records_max());
            let attempted = bisect.records_max().min(records - next);
            if found.is_none() && (next..next + attempted).contains(&refused) {
                match attempted {
                    1 => found = Some(next),
                    _ => bisect.on_refused(attempted),
                }
                continue;
            }
            next += attempted;
            bisect.on_success();
            if next == records {
                break;
            }
        }
        assert_eq!((found, next), (Some(refused), records), "{records} {limit}");
    }

    #[test]
    fn refused_record_is_found_and_the_other_records_are_accepted() {
        for refused in [0, 1, 511, 512, 998, 999] {
            search(1_000, refused, usize::MAX, 60);
            search(1_000, refused, 64, 60);
        }
        search(1, 0, 64, 3);
    }

    #[test]
    fn ended_search_restores_the_limit() {
        let mut bisect = Bisect::new(64);
        assert!(!bisect.is_searching());
        bisect.on_refused(10);
        assert!(bisect.is_searching() && bisect.records_max() == 5);
        bisect.end();
        assert!(!bisect.is_searching() && bisect.records_max() == 64);
    }
}
