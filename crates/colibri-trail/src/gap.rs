//! Numbers of records that a walk has skipped.

use std::fmt::{self, Display, Formatter};

/// Records that were not met yet: `from..to`, noticed at a place.
pub(crate) struct Gap {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Segment and line.
    pub(crate) place: (Option<String>, Option<u64>),
}

impl Display for Gap {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.to - self.from {
            1 => write!(f, "record {} is not there", self.from),
            _ => write!(f, "records {} to {} are not there", self.from, self.to - 1),
        }
    }
}

impl Gap {
    /// True if record `n` is one of them.
    pub(crate) fn has(&self, n: u64) -> bool {
        (self.from..self.to).contains(&n)
    }

    /// What is left of it when record `n` of it was met.
    pub(crate) fn without(self, n: u64) -> impl Iterator<Item = Gap> {
        let sides = [(self.from, n), (n + 1, self.to)].into_iter();
        let left = sides.filter(|(from, to)| from < to);
        left.map(move |(from, to)| Gap {
            from,
            to,
            place: self.place.clone(),
        })
    }
}
