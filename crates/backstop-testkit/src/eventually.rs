//! Waiting for something that sends no signal: it is asked for again and again, up to a limit.

use std::panic::Location;
use std::time::Duration;

use crate::PATIENCE;

/// Short enough that nobody waits for it, long enough that asking a database is no load.
const BETWEEN_POLLS: Duration = Duration::from_millis(10);

/// Asks until the condition holds; fails the test after [`PATIENCE`], naming `what` it waited for.
///
/// Prefer a signal where there is one, such as [`Recording::until`](crate::handlers::Recording::until).
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use backstop_testkit::eventually;
///
/// # backstop_testkit::suite::block_on(async {
/// let asked = AtomicU32::new(0);
/// eventually("the third question", async || asked.fetch_add(1, Ordering::Relaxed) == 2).await;
/// # });
/// ```
///
/// # Panics
///
/// If the condition does not hold in time.
#[track_caller]
pub fn eventually<C: AsyncFnMut() -> bool>(what: &str, condition: C) -> impl Future<Output = ()> {
    eventually_within(PATIENCE, what, condition)
}

/// [`eventually()`] with your own time limit.
///
/// # Panics
///
/// If the condition does not hold in time.
#[track_caller]
pub fn eventually_within<C: AsyncFnMut() -> bool>(
    limit: Duration,
    what: &str,
    mut condition: C,
) -> impl Future<Output = ()> {
    // An async fn knows no caller, and the line of the test is what its reader needs.
    let caller = Location::caller();
    async move {
        let holds = async {
            while !condition().await {
                tokio::time::sleep(BETWEEN_POLLS).await;
            }
        };
        // Around the whole loop, so that a condition that never answers is noticed too.
        let in_time = tokio::time::timeout(limit, holds).await.is_ok();
        assert!(in_time, "waited {limit:?} in vain for: {what} (at {caller})");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_returns_as_soon_as_the_condition_holds() {
        let began = tokio::time::Instant::now();
        let mut asked = 0;
        eventually("three questions", async || {
            asked += 1;
            asked == 3
        })
        .await;
        assert_eq!((asked, began.elapsed()), (3, 2 * BETWEEN_POLLS));
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(
        expected = "waited 10s in vain for: a miracle (at crates/backstop-testkit/src/eventually.rs"
    )]
    async fn it_fails_naming_what_it_waited_for_and_where() {
        eventually("a miracle", async || false).await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "waited 3s in vain for: an answer")]
    async fn it_fails_when_the_condition_never_answers() {
        eventually_within(Duration::from_secs(3), "an answer", std::future::pending::<bool>).await;
    }
}
