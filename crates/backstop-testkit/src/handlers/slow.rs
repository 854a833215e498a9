//! A handler that takes its time, or waits at a gate that the test opens.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use backstop_core::handler::SharedHandler;
use backstop_core::{Event, Failure, Handler, Outcome};
use tokio::sync::{Semaphore, watch};

use crate::PATIENCE;

/// Takes long to answer, and signals when it begins.
///
/// With a gate nothing depends on how fast the machine is:
///
/// ```
/// use backstop_core::{Event, Handler, Outcome};
/// use backstop_testkit::handlers::Slow;
///
/// # backstop_testkit::suite::block_on(async {
/// let handler = Slow::gated();
/// let given_away = handler.clone();
/// let answer = tokio::spawn(async move {
///     given_away.handle(Event::of_json("OrderPlaced", "{}").unwrap()).await
/// });
///
/// handler.until_began(1).await; // it is in the middle of handling now, and stays there
/// assert_eq!(handler.in_progress(), 1);
/// handler.open();
/// assert_eq!(answer.await.unwrap().unwrap(), Outcome::Done);
/// # });
/// ```
#[derive(Clone)]
pub struct Slow {
    wait: Wait,
    then: Option<SharedHandler>,
    work: watch::Sender<Work>,
}

#[derive(Clone)]
enum Wait {
    For(Duration),
    /// A permit lets one event through; a closed semaphore holds nobody, so closing it opens the gate.
    At(Arc<Semaphore>),
}

#[derive(Debug, Clone, Copy, Default)]
struct Work {
    began: usize,
    in_progress: usize,
    most_at_once: usize,
}

impl Slow {
    /// Takes this long for each event.
    pub fn by(time: Duration) -> Self {
        Self::new(Wait::For(time))
    }

    /// Waits for each event until the test lets it through.
    pub fn gated() -> Self {
        Self::new(Wait::At(Arc::new(Semaphore::new(0))))
    }

    fn new(wait: Wait) -> Self {
        Self { wait, then: None, work: watch::Sender::default() }
    }

    /// The handler that answers after the wait. Defaults to [`Outcome::Done`].
    pub fn then(mut self, handler: impl Handler) -> Self {
        self.then = Some(SharedHandler::new(handler));
        self
    }

    /// Opens the gate for good. Without a gate it does nothing.
    pub fn open(&self) {
        if let Wait::At(gate) = &self.wait {
            gate.close();
        }
    }

    /// Lets this many events through, those that wait or those to come. Without a gate it does nothing.
    pub fn let_through(&self, count: usize) {
        if let Wait::At(gate) = &self.wait {
            gate.add_permits(count);
        }
    }

    /// How many times handling began.
    pub fn began(&self) -> usize {
        self.work.borrow().began
    }

    /// How many events are being handled now. One whose handling was dropped in the middle is not.
    pub fn in_progress(&self) -> usize {
        self.work.borrow().in_progress
    }

    /// The most events that were ever handled at once.
    pub fn most_at_once(&self) -> usize {
        self.work.borrow().most_at_once
    }

    /// Waits until handling began at least `count` times.
    ///
    /// # Panics
    ///
    /// If that takes longer than [`PATIENCE`].
    #[track_caller]
    pub fn until_began(&self, count: usize) -> impl Future<Output = ()> + '_ {
        let caller = Location::caller();
        async move {
            let mut work = self.work.subscribe();
            let begun = tokio::time::timeout(PATIENCE, work.wait_for(|work| work.began >= count));
            let in_time = begun.await.is_ok();
            assert!(
                in_time,
                "waited {PATIENCE:?} in vain for {count} handlings to begin (at {caller}); {self:?}"
            );
        }
    }
}

impl Handler for Slow {
    async fn handle(&self, event: Event) -> Result<Outcome, Failure> {
        let _in_progress = InProgress::begin(&self.work);
        match &self.wait {
            Wait::For(time) => tokio::time::sleep(*time).await,
            Wait::At(gate) => {
                if let Ok(permit) = gate.acquire().await {
                    permit.forget();
                }
            }
        }
        match &self.then {
            Some(handler) => handler.handle(event).await,
            None => Ok(Outcome::Done),
        }
    }
}

impl fmt::Debug for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slow({:?})", *self.work.borrow())
    }
}

/// Counts an event out again however its handling ends: a time-out drops the future in the middle.
struct InProgress<'a>(&'a watch::Sender<Work>);

impl<'a> InProgress<'a> {
    fn begin(work: &'a watch::Sender<Work>) -> Self {
        work.send_modify(|work| {
            work.began += 1;
            work.in_progress += 1;
            work.most_at_once = work.most_at_once.max(work.in_progress);
        });
        Self(work)
    }
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|work| work.in_progress -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event::of_json("E", "{}").unwrap()
    }

    fn handling(handler: &Slow) -> tokio::task::JoinHandle<Result<Outcome, Failure>> {
        let handler = handler.clone();
        tokio::spawn(async move { handler.handle(event()).await })
    }

    #[tokio::test(start_paused = true)]
    async fn it_takes_the_time_it_was_given() {
        let began = tokio::time::Instant::now();
        Slow::by(Duration::from_secs(7)).handle(event()).await.unwrap();
        assert_eq!(began.elapsed(), Duration::from_secs(7));
    }

    #[tokio::test]
    async fn the_gate_lets_through_as_many_as_it_was_told_and_then_everybody() {
        let handler = Slow::gated();
        let mut tasks: Vec<_> = (0..3).map(|_| handling(&handler)).collect();
        handler.until_began(3).await;
        assert_eq!((handler.in_progress(), handler.most_at_once()), (3, 3));

        handler.let_through(1);
        crate::eventually("one to pass", async || handler.in_progress() == 2).await;

        handler.open();
        for task in tasks.drain(..) {
            assert_eq!(task.await.unwrap().unwrap(), Outcome::Done);
        }
        assert_eq!(handler.handle(event()).await.unwrap(), Outcome::Done);
        assert_eq!((handler.began(), handler.in_progress(), handler.most_at_once()), (4, 0, 3));
    }

    #[tokio::test]
    async fn handling_that_is_dropped_in_the_middle_is_no_longer_in_progress() {
        let handler = Slow::gated();
        let task = handling(&handler);
        handler.until_began(1).await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert_eq!((handler.began(), handler.in_progress()), (1, 0));
    }

    #[tokio::test]
    async fn another_handler_answers_after_the_wait() {
        let handler = Slow::by(Duration::ZERO).then(|_: Event| async { Outcome::dead() });
        assert_eq!(handler.handle(event()).await.unwrap(), Outcome::dead());
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "in vain for 1 handlings to begin")]
    async fn waiting_in_vain_for_a_beginning_fails() {
        Slow::gated().until_began(1).await;
    }
}
