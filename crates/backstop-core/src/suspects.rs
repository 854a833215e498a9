//! Events that were answered with *unavailable*, and whether that is their own trouble: others succeed, again and again, and
//! they do not.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Tick;

/// This many are remembered. More are no single bad events.
const MOST: usize = 1_000;

/// What was answered so long ago says nothing any more.
const OLD: Duration = Duration::from_secs(600);

/// How often others must have succeeded in between: an event may meet two outages and be well.
const ENOUGH: u32 = 2;

/// Remembers events that were answered with *unavailable*.
///
/// ```
/// use backstop_core::clock::Tick;
/// use backstop_core::suspects::Suspects;
///
/// let mut suspects = Suspects::default();
/// let mut answers = (1..=3).map(|others| suspects.is_its_own("bad", others, Tick::ZERO));
/// assert!(answers.by_ref().take(2).all(|own| !own));
/// assert_eq!(answers.next(), Some(true));
/// ```
#[derive(Debug, Default)]
pub struct Suspects(HashMap<String, Suspect>);

#[derive(Debug, Clone, Copy)]
struct Suspect {
    /// How many others had succeeded when it was last answered.
    others: u64,
    /// How often others had succeeded between two of its answers.
    times: u32,
    at: Tick,
}

impl Suspects {
    /// An event was answered with *unavailable*, when this many others had succeeded. Tells whether that is its own trouble: others
    /// have succeeded between its answers, more than once.
    pub fn is_its_own(&mut self, id: &str, others: u64, now: Tick) -> bool {
        if self.0.len() >= MOST && !self.0.contains_key(id) {
            self.0.clear();
        }
        let before = self.0.get(id).filter(|before| now.since(before.at) < OLD);
        let times = before.map_or(0, |before| before.times + u32::from(before.others < others));
        self.0.insert(id.to_owned(), Suspect { others, times, at: now });
        times >= ENOUGH
    }

    /// It has succeeded.
    pub fn clear(&mut self, id: &str) {
        if !self.0.is_empty() {
            self.0.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(others: &[u64]) -> Vec<bool> {
        let mut suspects = Suspects::default();
        others.iter().map(|others| suspects.is_its_own("a", *others, Tick::ZERO)).collect()
    }

    #[test]
    fn an_outage_is_nobodys_own_trouble_and_neither_are_two() {
        assert_eq!(answers(&[5, 5, 5, 5]), [false; 4]);
        assert_eq!(answers(&[5, 6, 6, 6]), [false; 4]);
        assert_eq!(answers(&[5, 6, 7, 7]), [false, false, true, true]);
    }

    #[test]
    fn what_was_long_ago_or_has_succeeded_since_is_forgotten() {
        let mut suspects = Suspects::default();
        let mut now = Tick::ZERO;
        for others in 0..9 {
            assert!(!suspects.is_its_own("rare", others, now));
            now = now + OLD;
        }
        for others in 0..9 {
            assert!(!suspects.is_its_own("well", others, now));
            suspects.clear("well");
        }
    }

    #[test]
    fn no_more_than_a_thousand_are_remembered() {
        let mut suspects = Suspects::default();
        for number in 0..2_500 {
            suspects.is_its_own(&number.to_string(), 0, Tick::ZERO);
        }
        assert!(suspects.0.len() <= MOST);
    }
}
