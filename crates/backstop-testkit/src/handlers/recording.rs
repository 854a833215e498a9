//! A handler that remembers what came, and signals when enough has come.

use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_core::handler::SharedHandler;
use backstop_core::{Event, Failure, Handler, Outcome};
use tokio::sync::watch;

use crate::{PATIENCE, lock};

/// Remembers every event that comes and every answer given, and lets a test wait for them.
///
/// ```
/// use backstop_core::{Event, Handler};
/// use backstop_testkit::handlers::Recording;
///
/// # backstop_testkit::suite::block_on(async {
/// let recorder = Recording::new();
/// let given_away = recorder.clone();
/// tokio::spawn(async move {
///     for _ in 0..3 {
///         given_away.handle(Event::of_json("OrderPlaced", "{}").unwrap()).await.unwrap();
///     }
/// });
///
/// let events = recorder.until(3).await;
/// assert_eq!(recorder.count_of(events[0].id()), 1);
/// # });
/// ```
#[derive(Clone)]
pub struct Recording {
    inner: Option<SharedHandler>,
    patience: Duration,
    seen: Arc<Seen>,
}

/// What was answered to an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The event's id.
    pub event_id: String,
    /// The outcome, or the failure as an operator would read it: `class: message`.
    pub result: Result<Outcome, String>,
}

#[derive(Default)]
struct Seen {
    events: Mutex<Vec<Event>>,
    answers: Mutex<Vec<Answer>>,
    /// How many events and answers there are; a state, so that a late waiter misses nothing.
    counts: watch::Sender<(usize, usize)>,
}

impl Recording {
    /// Says [`Outcome::Done`] to everything.
    pub fn new() -> Self {
        Self { inner: None, patience: PATIENCE, seen: Arc::default() }
    }

    /// Lets another handler answer.
    pub fn of(handler: impl Handler) -> Self {
        Self { inner: Some(SharedHandler::new(handler)), ..Self::new() }
    }

    /// How long its waits last before they fail the test. Defaults to [`PATIENCE`].
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The events in the order they came, each as often as it came.
    pub fn events(&self) -> Vec<Event> {
        lock(&self.seen.events).clone()
    }

    /// Their ids.
    pub fn ids(&self) -> Vec<String> {
        lock(&self.seen.events).iter().map(|event| event.id().to_owned()).collect()
    }

    /// How often the event of that id came.
    pub fn count_of(&self, event_id: &str) -> usize {
        lock(&self.seen.events).iter().filter(|event| event.id() == event_id).count()
    }

    /// The answers in the order they were given. A handler that was stopped in the middle gave none.
    pub fn answers(&self) -> Vec<Answer> {
        lock(&self.seen.answers).clone()
    }

    /// Waits until at least `count` events have come, counting repeated ones, and returns all there are.
    ///
    /// # Panics
    ///
    /// If they do not come in time; the message lists those that came.
    #[track_caller]
    pub fn until(&self, count: usize) -> impl Future<Output = Vec<Event>> + '_ {
        let caller = Location::caller();
        async move {
            self.wait(move |(events, _)| events >= count, &format!("{count} events"), caller).await;
            self.events()
        }
    }

    /// Waits until at least `count` answers were given, and returns all there are.
    ///
    /// # Panics
    ///
    /// If they are not given in time; the message lists those that came.
    #[track_caller]
    pub fn until_answered(&self, count: usize) -> impl Future<Output = Vec<Answer>> + '_ {
        let caller = Location::caller();
        async move {
            self.wait(move |(_, answers)| answers >= count, &format!("{count} answers"), caller).await;
            self.answers()
        }
    }

    async fn wait(&self, enough: impl Fn((usize, usize)) -> bool, what: &str, caller: &Location<'_>) {
        let mut counts = self.seen.counts.subscribe();
        let arrived = counts.wait_for(|counts| enough(*counts));
        let in_time = tokio::time::timeout(self.patience, arrived).await.is_ok();
        assert!(in_time, "waited {:?} in vain for {what} (at {caller}); {self:?}", self.patience);
    }

    fn note_event(&self, event: &Event) {
        lock(&self.seen.events).push(event.clone());
        self.seen.counts.send_modify(|(events, _)| *events += 1);
    }

    fn note_answer(&self, event_id: String, answer: &Result<Outcome, Failure>) {
        let result = match answer {
            Ok(outcome) => Ok(outcome.clone()),
            Err(failure) => Err(failure.to_string()),
        };
        lock(&self.seen.answers).push(Answer { event_id, result });
        self.seen.counts.send_modify(|(_, answers)| *answers += 1);
    }
}

impl Default for Recording {
    fn default() -> Self {
        Self::new()
    }
}

impl Handler for Recording {
    async fn handle(&self, event: Event) -> Result<Outcome, Failure> {
        self.note_event(&event);
        let event_id = event.id().to_owned();
        let answer = match &self.inner {
            Some(handler) => handler.handle(event).await,
            None => Ok(Outcome::Done),
        };
        self.note_answer(event_id, &answer);
        answer
    }
}

/// Reads as the end of a sentence, in the message of a failed wait.
impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (events, answers) = (self.events(), self.answers());
        write!(f, "{} events came and {} were answered", events.len(), answers.len())?;
        for event in events {
            write!(f, "\n  came {} {}", event.id(), event.event_type())?;
        }
        for Answer { event_id, result } in answers {
            write!(f, "\n  answered {event_id} {result:?}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::{Failing, Slow};

    fn event(id: &str) -> Event {
        Event::of("E").id(id).json(&()).unwrap()
    }

    #[tokio::test]
    async fn events_are_kept_in_order_and_as_often_as_they_came() {
        let recorder = Recording::new();
        for id in ["a", "b", "a"] {
            assert_eq!(recorder.handle(event(id)).await.unwrap(), Outcome::Done);
        }
        assert_eq!(recorder.ids(), ["a", "b", "a"]);
        assert_eq!((recorder.count_of("a"), recorder.count_of("b"), recorder.count_of("c")), (2, 1, 0));
        assert_eq!(recorder.until(3).await, recorder.events());
    }

    #[tokio::test]
    async fn answers_of_the_inner_handler_are_kept_and_passed_on() {
        let recorder = Recording::of(Failing::times(1));
        assert!(recorder.handle(event("a")).await.is_err());
        assert!(recorder.handle(event("a")).await.is_ok());
        let results: Vec<_> = recorder.answers().into_iter().map(|answer| answer.result).collect();
        assert_eq!(results, [Err("test: failed on purpose".to_owned()), Ok(Outcome::Done)]);
    }

    #[tokio::test]
    async fn an_event_counts_when_it_comes_and_again_when_it_is_answered() {
        let gate = Slow::gated();
        let recorder = Recording::of(gate.clone());
        let given = recorder.clone();
        tokio::spawn(async move { given.handle(event("a")).await });
        recorder.until(1).await;
        assert!(recorder.answers().is_empty());
        gate.open();
        let answers = recorder.until_answered(1).await;
        assert_eq!(answers, [Answer { event_id: "a".into(), result: Ok(Outcome::Done) }]);
    }

    #[tokio::test]
    async fn a_wait_that_began_early_ends_with_the_last_event() {
        let recorder = Recording::new();
        let waiting = tokio::spawn({
            let recorder = recorder.clone();
            async move { recorder.until(2).await.len() }
        });
        for id in ["a", "b"] {
            tokio::task::yield_now().await;
            recorder.handle(event(id)).await.unwrap();
        }
        assert_eq!(waiting.await.unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "1 events came and 1 were answered\n  came a E\n  answered a Ok(Done)")]
    async fn a_wait_in_vain_fails_telling_what_had_come() {
        let recorder = Recording::new();
        recorder.handle(event("a")).await.unwrap();
        recorder.until(2).await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "waited 60s in vain for 1 answers (at crates/backstop-testkit/src/handlers/")]
    async fn a_wait_lasts_as_long_as_it_was_told_and_names_its_line() {
        Recording::new().patience(Duration::from_secs(60)).until_answered(1).await;
    }
}
