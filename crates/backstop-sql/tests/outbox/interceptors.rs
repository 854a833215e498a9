//! Interceptors: around every handler, in their orders, and never a second handler.

use std::sync::Arc;

use backstop_core::{Event, Failure, Handler, Outcome};
use backstop_sql::outbox::dispatcher::Settings;
use backstop_sql::outbox::{Interceptor, Queued, Registry, interceptor};
use backstop_testkit::handlers::{Failing, Recording};
use tracing::Level;

use crate::harness::{DEAD, DONE, NEW, RETRY, Shop, metrics, order};
use crate::logs::Logs;
use crate::steps::{HOUR, Log, dispatch, orders};

/// Notes both steps under its name; the step after with the error it was given.
struct Noting {
    name: &'static str,
    log: Log,
}

impl Interceptor for Noting {
    fn before_dispatch(&self, event: &Event) -> Result<(), Failure> {
        self.log.note(format!("{} before {}", self.name, event.id()));
        Ok(())
    }

    fn after_dispatch(&self, event: &Event, error: Option<&Failure>) -> Result<(), Failure> {
        let error = error.map(ToString::to_string).unwrap_or_default();
        self.log.note(format!("{} after {} {error}", self.name, event.id()).trim_end().to_owned());
        Ok(())
    }
}

type Answer = fn() -> Result<Outcome, Failure>;

/// The interceptor that neither step was written for.
struct Silent;

impl Interceptor for Silent {}

fn noting(name: &'static str, log: &Log) -> Noting {
    Noting { name, log: log.clone() }
}

/// Handles one event and gives back the status of its row.
async fn handled(shop: &Shop, settings: Settings, handler: impl Handler) -> i64 {
    shop.insert(&[order("1")]).await;
    let dispatcher = dispatch(shop, settings, handler);
    assert!(dispatcher.enqueue(Queued::cold(order("1"), 0)));
    dispatcher.close().await.unwrap();
    shop.row("1").await.status
}

/// Rules: O-279, O-280, O-289, O-294, O-313, O-384.
#[tokio::test]
async fn they_run_in_their_order_before_the_handler_and_in_reverse_after_it() {
    let shop = Shop::open().await;
    let log = Log::default();
    let list: [Arc<dyn Interceptor>; 2] = [Arc::new(noting("b", &log)), Arc::new(noting("c", &log))];
    let settings =
        Settings::default().interceptor(noting("a", &log)).interceptors(list).interceptor(noting("d", &log));
    let handler = log.clone();
    let status = handled(&shop, settings, move |_: Event| {
        handler.note("handler");
        async {}
    })
    .await;
    assert_eq!(status, DONE);
    assert_eq!(
        log.entries(),
        [
            "a before 1",
            "b before 1",
            "c before 1",
            "d before 1",
            "handler",
            "d after 1",
            "c after 1",
            "b after 1",
            "a after 1"
        ]
    );
}

/// Rules: O-384.
#[tokio::test]
async fn one_interceptor_sees_the_events_of_every_handler() {
    let shop = Shop::open().await;
    let log = Log::default();
    let outbox = shop
        .outbox()
        .interceptor(noting("audit", &log))
        .on("Order", "OrderPlaced", Recording::new())
        .on_global("Tick", Recording::new())
        .start()
        .await
        .unwrap();
    let tick = Event::of("Tick").id("2").json(&()).unwrap();
    crate::steps::commit(&outbox, vec![order("1")]).await;
    crate::steps::commit(&outbox, vec![tick]).await;
    outbox.close().await.unwrap();
    let mut seen = log.entries();
    seen.sort_unstable();
    assert_eq!(seen, ["audit after 1", "audit after 2", "audit before 1", "audit before 2"]);
}

/// Rules: O-295, O-296.
#[tokio::test]
async fn after_an_answer_they_see_no_error_and_after_a_failure_the_failure() {
    let answers: [(Answer, &str); 6] = [
        (|| Ok(Outcome::Done), "a after 1"),
        (|| Ok(Outcome::RetryAfter(HOUR)), "a after 1"),
        (|| Ok(Outcome::dead_because("cancelled")), "a after 1"),
        (|| Err(Failure::transient("timeout", "no answer")), "a after 1 timeout: no answer"),
        (|| Err(Failure::permanent("schema", "no total")), "a after 1 schema: no total"),
        (|| panic!("on purpose"), "a after 1 panic: the handler panicked: on purpose"),
    ];
    for (answer, expected) in answers {
        let shop = Shop::open().await;
        let log = Log::default();
        let settings = Settings::default().interceptor(noting("a", &log));
        handled(&shop, settings, move |_: Event| async move { answer() }).await;
        assert_eq!(log.entries()[1], expected);
    }
}

/// Rules: O-296.
#[tokio::test]
async fn an_event_without_a_handler_goes_through_them_too() {
    let shop = Shop::open().await;
    let log = Log::default();
    let settings = Settings::default().interceptor(noting("a", &log));
    let dispatcher = settings.start(shop.store.clone(), Registry::new(), metrics()).unwrap();
    assert!(dispatcher.enqueue(Queued::cold(order("1"), 0)));
    dispatcher.close().await.unwrap();
    assert!(log.entries()[1].starts_with("a after 1 unroutable: "), "{:?}", log.entries());
}

/// Rules: O-296, O-315, O-316.
#[tokio::test]
async fn one_that_fails_before_keeps_the_handler_from_running_and_counts_as_its_failure() {
    let closed = || Failure::transient("closed", "come back");
    let banned = || Failure::permanent("banned", "never");
    let failures: [fn() -> Failure; 3] = [closed, closed, banned];
    for (failure, (max_attempts, status)) in failures.into_iter().zip([(10, RETRY), (1, DEAD), (10, DEAD)]) {
        let shop = Shop::open().await;
        let log = Log::default();
        let settings = Settings::default()
            .max_attempts(max_attempts)
            .interceptor(noting("a", &log))
            .interceptor(interceptor::before(move |_| Err(failure())))
            .interceptor(noting("c", &log));
        let recorder = Recording::new();
        assert_eq!(handled(&shop, settings, recorder.clone()).await, status);
        assert!(recorder.events().is_empty());
        // Only those that had got through see the end.
        assert_eq!(log.entries(), ["a before 1".to_owned(), format!("a after 1 {}", failure())]);
        assert_eq!(shop.row("1").await.last_error, Some(failure().to_string()));
    }
}

#[tokio::test]
async fn one_that_panics_before_has_failed_and_the_worker_goes_on() {
    let shop = Shop::open().await;
    shop.insert(&orders(3)).await;
    let picky = |event: &Event| {
        assert!(event.id() == "0002", "on purpose");
        Ok(())
    };
    let settings = Settings::default().worker_count(1).interceptor(interceptor::before(picky));
    let dispatcher = dispatch(&shop, settings, Recording::new());
    for order in orders(3) {
        assert!(dispatcher.enqueue(Queued::hot(order)));
    }
    dispatcher.close().await.unwrap();
    assert_eq!((shop.count(RETRY).await, shop.count(DONE).await), (2, 1));
    assert_eq!(
        shop.row("0000").await.last_error.as_deref(),
        Some("panic: an interceptor panicked: on purpose")
    );
}

/// Rules: O-317.
#[tokio::test]
async fn one_that_fails_or_panics_after_is_logged_and_the_outcome_stays() {
    let logs = Logs::catch();
    for panics in [false, true] {
        for (handler, status) in [(Failing::times(0), DONE), (Failing::always(), RETRY)] {
            let shop = Shop::open().await;
            let log = Log::default();
            let settings = Settings::default().interceptor(noting("a", &log)).interceptor(
                interceptor::after(move |_, _| {
                    assert!(!panics, "spilled ink");
                    Err(Failure::permanent("audit", "spilled ink"))
                }),
            );
            assert_eq!(handled(&shop, settings, handler).await, status);
            assert!(log.entries()[1].starts_with("a after 1"), "{:?}", log.entries());
        }
    }
    assert_eq!(logs.having(Level::WARN, "spilled ink").len(), 4, "{}", logs.all());
}

/// Rules: O-314, O-318, O-319.
#[tokio::test]
async fn either_step_may_be_left_out() {
    let shop = Shop::open().await;
    let log = Log::default();
    let (before, after) = (log.clone(), log.clone());
    let settings = Settings::default()
        .interceptor(Silent)
        .interceptor(interceptor::before(move |event| {
            before.note(format!("before {}", event.id()));
            Ok(())
        }))
        .interceptor(interceptor::after(move |event, error| {
            after.note(format!("after {} {:?}", event.id(), error.map(Failure::class)));
            Ok(())
        }));
    assert_eq!(handled(&shop, settings, Failing::always()).await, RETRY);
    assert_eq!(log.entries(), ["before 1", "after 1 Some(\"test\")"]);
    assert_eq!(shop.count(NEW).await, 0);
}
