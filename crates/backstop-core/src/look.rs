//! A look that many share: everybody gets what the last look found, for as long as that is good.

use std::time::Duration;

use tokio::sync::Mutex;

use crate::clock::Tick;
use crate::{Clock, SystemClock};

/// What a look found is good for at least this long, and at most for [`STALE`].
pub const FRESH: Duration = Duration::from_millis(500);
/// See [`FRESH`].
pub const STALE: Duration = Duration::from_secs(15);

/// In between it is good for this many times as long as the look took, so looking costs a database or a disk a
/// hundredth of its time.
const COST: u32 = 100;

/// How long a look that took this long is good for.
pub fn good_for(took: Duration) -> Duration {
    took.saturating_mul(COST).clamp(FRESH, STALE)
}

/// Looks, and tells how long what was found is [good for](good_for).
pub async fn timed<T, E>(look: impl Future<Output = Result<T, E>>) -> Result<(T, Duration), E> {
    let began = SystemClock.ticks();
    let found = look.await?;
    Ok((found, good_for(SystemClock.ticks().since(began))))
}

/// What the last look found, for everybody who asks. If many ask at once, there is one look.
///
/// ```
/// use backstop_core::look::{Shared, timed};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let waiting = Shared::default();
/// assert_eq!(waiting.ask(timed(async { Ok::<_, &str>(3) })).await, Ok(3));
/// // Nobody counts again so soon.
/// assert_eq!(waiting.ask(async { Err("the database is unavailable") }).await, Ok(3));
/// # });
/// ```
#[derive(Debug)]
pub struct Shared<T> {
    /// Locked while somebody looks.
    last: Mutex<Option<(T, Tick)>>,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self { last: Mutex::new(None) }
    }
}

impl<T: Clone> Shared<T> {
    /// What the last look found, while that is good; otherwise looks. A look says what it found and how long that is
    /// good for. After a look that failed, or whose caller gave up, the next caller looks again.
    pub async fn ask<E>(&self, look: impl Future<Output = Result<(T, Duration), E>>) -> Result<T, E> {
        let mut last = self.last.lock().await;
        if let Some((found, _)) = last.as_ref().filter(|(_, until)| SystemClock.ticks() < *until) {
            return Ok(found.clone());
        }
        let (found, good_for) = look.await?;
        *last = Some((found.clone(), SystemClock.ticks() + good_for));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    #[test]
    fn a_look_is_good_for_a_hundred_times_what_it_took_within_bounds() {
        let good_for = [0, 4, 5, 20, 150, 151, u64::MAX].map(|took| good_for(Duration::from_millis(took)));
        assert_eq!(good_for.map(|good| good.as_millis()), [500, 500, 500, 2_000, 15_000, 15_000, 15_000]);
    }

    /// Counts its looks, and lets others run meanwhile.
    async fn counted(looks: &AtomicUsize, good_for: Duration) -> Result<(usize, Duration), Infallible> {
        tokio::task::yield_now().await;
        Ok((looks.fetch_add(1, Ordering::Relaxed) + 1, good_for))
    }

    #[tokio::test]
    async fn many_who_ask_at_once_look_once() {
        let (shared, looks) = (Shared::default(), AtomicUsize::new(0));
        let ask = || shared.ask(counted(&looks, LONG));
        assert_eq!(tokio::join!(ask(), ask(), ask()), (Ok(1), Ok(1), Ok(1)));
        assert_eq!(ask().await, Ok(1));
    }

    #[tokio::test]
    async fn what_is_no_longer_good_is_looked_for_again() {
        let (shared, looks) = (Shared::default(), AtomicUsize::new(0));
        for look in 1..=3 {
            assert_eq!(shared.ask(counted(&looks, Duration::ZERO)).await, Ok(look));
        }
    }

    #[tokio::test]
    async fn a_failure_is_told_and_not_kept() {
        let shared = Shared::default();
        assert_eq!(shared.ask(async { Err("away") }).await, Err("away"));
        assert_eq!(shared.ask(timed(async { Ok::<_, &str>(1) })).await, Ok(1));
        assert_eq!(shared.ask(async { Err("away") }).await, Ok(1));
    }

    #[tokio::test]
    async fn a_look_that_its_asker_gave_up_keeps_nobody_from_looking() {
        let (shared, looks) = (Shared::default(), AtomicUsize::new(0));
        let never = shared.ask(timed(std::future::pending::<Result<_, Infallible>>()));
        assert!(tokio::time::timeout(Duration::ZERO, never).await.is_err());
        assert_eq!(shared.ask(counted(&looks, LONG)).await, Ok(1));
    }
}
