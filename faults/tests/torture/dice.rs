//! Dice that fall alike for the same seed, whatever the machine and the versions of libraries.

use std::ops::RangeInclusive;

/// `SplitMix64`: a counter, well stirred.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut stirred = self.0;
        stirred = (stirred ^ (stirred >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        stirred = (stirred ^ (stirred >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        stirred ^ (stirred >> 31)
    }

    /// A number of a range.
    pub(crate) fn of(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.roll() % (range.end() - range.start() + 1)
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.of(0..=99) < chance
    }

    /// One of several.
    pub(crate) fn one_of<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }

    /// An index into so many.
    pub(crate) fn index(&mut self, of: usize) -> usize {
        usize::try_from(self.of(0..=of as u64 - 1)).expect("an index")
    }
}
