//! Gathering: events that are delivered at the same time share one request.
//!
//! Nothing waits and nothing is sent here; the caller is told which batches are ready and whether to look again when
//! the batch's time is over.

use std::mem;

use backstop_core::{Failure, Outcome};
use tokio::sync::oneshot;

/// One event on its way into a batch.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) event_id: String,
    /// The event in the JSON format.
    pub(crate) text: String,
    /// Whom to tell the result.
    pub(crate) answer: oneshot::Sender<Result<Outcome, Failure>>,
}

/// The batch that is being gathered.
#[derive(Debug)]
pub(crate) struct Gathering {
    most_events: usize,
    most_bytes: usize,
    /// Raised with every batch that is taken, so that a late look finds nothing that is not its own.
    number: u64,
    items: Vec<Item>,
    bytes: usize,
}

/// What follows from joining.
#[derive(Debug)]
pub(crate) struct Joined {
    /// Batches that are full, to be sent now.
    pub(crate) ready: Vec<Vec<Item>>,
    /// The number of a batch that was begun: ask for it when its time is over.
    pub(crate) begun: Option<u64>,
}

impl Gathering {
    pub(crate) fn new(most_events: usize, most_bytes: usize) -> Self {
        Self { most_events, most_bytes, number: 0, items: Vec::new(), bytes: 0 }
    }

    pub(crate) fn join(&mut self, item: Item) -> Joined {
        let mut ready = Vec::new();
        // A comma or a bracket goes with each event, and one more bracket with the batch.
        let bytes = item.text.len() + 1;
        if !self.items.is_empty() && self.bytes + bytes + 1 > self.most_bytes {
            ready.push(self.take());
        }
        self.items.push(item);
        self.bytes += bytes;
        let mut begun = (self.items.len() == 1).then_some(self.number);
        if self.items.len() >= self.most_events {
            ready.push(self.take());
            begun = None;
        }
        Joined { ready, begun }
    }

    /// The batch of that number, unless it has gone already.
    pub(crate) fn due(&mut self, number: u64) -> Option<Vec<Item>> {
        (self.number == number).then(|| self.take())
    }

    fn take(&mut self) -> Vec<Item> {
        self.number += 1;
        self.bytes = 0;
        mem::take(&mut self.items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(text: &str) -> Item {
        Item { event_id: text.to_owned(), text: text.to_owned(), answer: oneshot::channel().0 }
    }

    fn texts(batch: &[Item]) -> Vec<&str> {
        batch.iter().map(|item| item.text.as_str()).collect()
    }

    #[test]
    fn the_first_begins_a_batch_and_the_last_fills_it() {
        let mut gathering = Gathering::new(3, 1000);
        let begun = gathering.join(item("a")).begun.unwrap();
        assert!(gathering.join(item("b")).begun.is_none());
        let joined = gathering.join(item("c"));
        assert_eq!(texts(&joined.ready[0]), ["a", "b", "c"]);
        assert!(gathering.due(begun).is_none(), "it has gone");
    }

    #[test]
    fn a_batch_goes_when_its_time_is_over() {
        let mut gathering = Gathering::new(3, 1000);
        let first = gathering.join(item("a")).begun.unwrap();
        assert_eq!(texts(&gathering.due(first).unwrap()), ["a"]);
        let second = gathering.join(item("b")).begun.unwrap();
        assert!(gathering.due(first).is_none(), "a late look takes nothing from the next batch");
        assert_eq!(texts(&gathering.due(second).unwrap()), ["b"]);
    }

    #[test]
    fn an_event_that_does_not_fit_sends_the_others_off_and_begins_anew() {
        let mut gathering = Gathering::new(9, 10); // [aaaa,bbb] is ten bytes
        assert!(gathering.join(item("aaaa")).begun.is_some());
        assert!(gathering.join(item("bbb")).ready.is_empty());
        let joined = gathering.join(item("c"));
        assert_eq!(texts(&joined.ready[0]), ["aaaa", "bbb"]);
        assert_eq!(texts(&gathering.due(joined.begun.unwrap()).unwrap()), ["c"]);
    }

    #[test]
    fn a_bound_of_one_makes_every_event_its_own_batch() {
        let mut gathering = Gathering::new(1, 10);
        let joined = gathering.join(item("far longer than the bound"));
        assert_eq!((joined.ready.len(), joined.begun), (1, None));
    }
}
