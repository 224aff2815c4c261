//! Chance that repeats itself: SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
//! Generators", 2014).

use std::time::Duration;

/// A source of chance. Each actor has its own, so that what one does never depends on how often
/// another asked.
#[derive(Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Another source.
    pub(crate) fn fork(&mut self) -> Rng {
        Rng(self.next())
    }

    /// A number from 0 to `end`, which is not among them.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A number from `least` to `most`, both among them.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True `hundredths` times in a hundred.
    pub(crate) fn chance(&mut self, hundredths: u64) -> bool {
        self.below(100) < hundredths
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// A time up to `most` milliseconds; often none at all, so that things happen together.
    pub(crate) fn millis(&mut self, most: u64) -> Duration {
        if self.chance(30) {
            return Duration::ZERO;
        }
        Duration::from_millis(self.below(most + 1))
    }
}
