//! Event ids: ULIDs that sort in the order they were made.

use std::sync::Mutex;

use ulid::Generator;

use crate::{Clock, SystemClock};

/// Makes the next id. Ids of one process sort in the order they were made, also within a millisecond
/// and when the clock is set back.
///
/// ```
/// use backstop_core::event::next_id;
///
/// let (first, second) = (next_id(), next_id());
/// assert!(first < second);
/// assert_eq!(first.len(), 26);
/// ```
pub fn next_id() -> String {
    static GENERATOR: Mutex<Generator> = Mutex::new(Generator::new());
    // A poisoned lock only means that another thread panicked while holding it; the generator is one number.
    let mut generator = GENERATOR.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let ulid = match generator.generate_from_datetime(SystemClock.now().into()) {
        Ok(ulid) => ulid,
        Err(overflow) => overflow.commit_overflow_increment(),
    };
    ulid.to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Rules: O-139.
    #[test]
    fn ids_sort_in_the_order_they_were_made_also_within_one_millisecond() {
        let ids: Vec<_> = (0..50_000).map(|_| next_id()).collect();
        assert!(ids.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn ids_of_many_threads_are_unique_and_sort_within_each() {
        let threads: Vec<_> = (0..8)
            .map(|_| std::thread::spawn(|| (0..5_000).map(|_| next_id()).collect::<Vec<_>>()))
            .collect();
        let ids: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(ids.iter().all(|own| own.is_sorted()));
        assert_eq!(ids.iter().flatten().collect::<HashSet<_>>().len(), 40_000);
    }

    #[test]
    fn ids_go_on_sorting_when_the_clock_is_set_back() {
        use std::time::{Duration, SystemTime};
        let mut generator = Generator::new();
        let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let first = generator.generate_from_datetime(noon).unwrap();
        let second = generator.generate_from_datetime(noon - Duration::from_secs(3600)).unwrap();
        assert!(first < second);
    }
}
