//! A gauge that lanes add up to.

use prometheus::IntGauge;

/// A lane's part of a gauge that lanes add up to. It is taken out when the lane ends.
pub(super) struct Part {
    all: IntGauge,
    own: i64,
}

impl Part {
    /// None of it yet.
    pub fn of(all: IntGauge) -> Self {
        Self { all, own: 0 }
    }

    pub fn set(&mut self, own: i64) {
        // What did not change costs nothing: it is set each time a lane goes round.
        if own != self.own {
            self.all.add(own - self.own);
            self.own = own;
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.set(0);
    }
}
