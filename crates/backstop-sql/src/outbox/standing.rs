//! Whether this node is the one that delivers.

use std::sync::atomic::{AtomicU64, Ordering};

/// Up, or down while another node has the table. Counts the changes, so that what was taken before one is known after
/// it: odd means down.
#[derive(Debug, Default)]
pub(super) struct Standing(AtomicU64);

impl Standing {
    /// Tells whether that is news.
    pub(super) fn stand_down(&self) -> bool {
        self.turn_if(self.turn(), |turn| turn.is_multiple_of(2))
    }

    /// Tells whether that is news.
    pub(super) fn stand_up(&self) -> bool {
        self.turn_if(self.turn(), |turn| !turn.is_multiple_of(2))
    }

    pub(super) fn is_down(&self) -> bool {
        !self.turn().is_multiple_of(2)
    }

    /// How often it has changed.
    pub(super) fn turn(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Whether this node has been up ever since that turn.
    pub(super) fn is_up_since(&self, turn: u64) -> bool {
        turn.is_multiple_of(2) && self.turn() == turn
    }

    fn turn_if(&self, turn: u64, wanted: impl Fn(u64) -> bool) -> bool {
        wanted(turn) && self.0.compare_exchange(turn, turn + 1, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_before_a_change_is_known_after_it() {
        let standing = Standing::default();
        assert!(!standing.is_down() && !standing.stand_up());
        let before = standing.turn();
        assert!(standing.stand_down() && standing.is_down());
        assert!(!standing.stand_down(), "no news");
        let while_down = standing.turn();
        assert!(!standing.is_up_since(before) && !standing.is_up_since(while_down));
        assert!(standing.stand_up() && !standing.is_down());
        assert!(!standing.is_up_since(before) && !standing.is_up_since(while_down));
        assert!(standing.is_up_since(standing.turn()));
    }
}
