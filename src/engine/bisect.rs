//! Finds the record that an output refuses without naming it: the output names only the transaction or the batch.
//!
//! Half as many records are tried each time, until one alone is refused. After a try that worked, its user either
//! doubles the number again ([`Bisect::on_success`]) or ends the search ([`Bisect::end`]).

/// How many records are tried at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bisect {
    records_max: usize,
    limit: usize,
}

impl Bisect {
    /// No search yet: up to `limit` records are tried.
    pub fn new(limit: usize) -> Self {
        Self { records_max: limit, limit }
    }

    /// How many records may be tried at once.
    pub fn records_max(&self) -> usize {
        self.records_max
    }

    /// Whether fewer records are tried than could be.
    pub fn is_searching(&self) -> bool {
        self.records_max < self.limit
    }

    /// A try of this many records was refused.
    pub fn on_refused(&mut self, tried: usize) {
        self.records_max = (tried / 2).max(1);
    }

    /// A try has worked.
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
    //! Goal: a record is found in few tries, whatever else is tried with it.

    use super::*;

    /// The record that is refused is found in at most `tries` tries, and the others get through.
    fn search(records: usize, refused: usize, limit: usize, tries: usize) {
        let (mut bisect, mut next, mut found) = (Bisect::new(limit), 0, None);
        for _ in 0..tries {
            assert!(bisect.records_max() <= limit, "{}", bisect.records_max());
            let tried = bisect.records_max().min(records - next);
            if found.is_none() && (next..next + tried).contains(&refused) {
                match tried {
                    1 => found = Some(next),
                    _ => bisect.on_refused(tried),
                }
                continue;
            }
            next += tried;
            bisect.on_success();
            if next == records {
                break;
            }
        }
        assert_eq!((found, next), (Some(refused), records), "{records} {limit}");
    }

    #[test]
    fn refused_record_is_found_and_the_others_get_through() {
        for refused in [0, 1, 511, 512, 998, 999] {
            search(1_000, refused, usize::MAX, 60);
            search(1_000, refused, 64, 60);
        }
        search(1, 0, 64, 3);
    }

    #[test]
    fn ended_search_tries_as_many_as_before() {
        let mut bisect = Bisect::new(64);
        assert!(!bisect.is_searching());
        bisect.on_refused(10);
        assert!(bisect.is_searching() && bisect.records_max() == 5);
        bisect.end();
        assert!(!bisect.is_searching() && bisect.records_max() == 64);
    }
}
