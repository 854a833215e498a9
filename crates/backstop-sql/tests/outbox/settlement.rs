//! What handlers answer, and what their rows say afterwards.

use std::time::Duration;

use backstop_core::retry::Jitter;
use backstop_core::{Event, Failure, Handler, Outcome};
use backstop_sql::outbox::Queued;
use backstop_sql::outbox::dispatcher::Settings;
use backstop_testkit::handlers::{Failing, Recording};
use tracing::Level;

use crate::harness::{DEAD, DONE, Database, NEW, RETRY, Row, Shop, order, shop};
use crate::logs::Logs;
use crate::steps::{HOUR, dispatch, due_in, tried, until_status};

/// The row of an event that was tried `attempts` times before and is answered so now.
async fn settled(
    shop: &Shop<impl Database>,
    settings: Settings,
    attempts: u32,
    handler: impl Handler,
) -> Row {
    shop.run("delete from outbox_event").await;
    shop.insert(&[order("1")]).await;
    shop.set("1", &format!("attempts = {attempts}, last_error = 'earlier'")).await;
    let dispatcher = dispatch(shop, settings, handler);
    assert!(dispatcher.enqueue(Queued::cold(order("1"), attempts)));
    dispatcher.close().await.unwrap();
    shop.row("1").await
}

fn answering(answer: fn() -> Result<Outcome, Failure>) -> impl Handler {
    move |_: Event| async move { answer() }
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-298.
    async fn a_handled_event_is_done(shop) {
        let row = settled(&shop, Settings::default(), 0, answering(|| Ok(Outcome::Done))).await;
        assert_eq!((row.status, row.attempts, row.locked_by), (DONE, 0, None));
        assert!(row.done_at.is_some());
    }

    /// Rules: O-300, O-301.
    async fn a_deferred_event_waits_for_its_delay_and_counts_no_try(shop) {
        let last_try = Settings::default().max_attempts(3);
        let row = settled(&shop, last_try, 2, answering(|| Ok(Outcome::RetryAfter(HOUR)))).await;
        assert_eq!((row.status, row.attempts), (NEW, 2));
        let due = due_in(&shop, "1").await;
        assert!((3_590.0..3_601.0).contains(&due), "{due}");
    }

    /// Rules: O-394.
    async fn an_event_may_be_deferred_any_number_of_times_also_by_nothing(shop) {
        let recorder = Recording::of({
            let puts_off = std::sync::atomic::AtomicU32::new(0);
            move |_: Event| {
                let n = puts_off.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                async move { if n < 20 { Outcome::RetryAfter(Duration::ZERO) } else { Outcome::Done } }
            }
        });
        let outbox = shop
            .outbox()
            .interval(Duration::from_millis(2))
            .max_attempts(2)
            .on("Order", "OrderPlaced", recorder.clone())
            .start()
            .await
            .unwrap();
        shop.insert(&[order("1")]).await;
        let row = until_status(&shop, "1", DONE).await;
        outbox.close().await.unwrap();
        assert_eq!((row.attempts, recorder.events().len()), (0, 21));
        assert_eq!(outbox.metrics().dispatch_deferred.total(), 20);
    }

    /// Rules: O-303, O-304.
    async fn an_event_given_up_by_its_handler_is_dead_at_once_with_the_reason(shop) {
        let row =
            settled(&shop, Settings::default(), 0, answering(|| Ok(Outcome::dead_because("cancelled")))).await;
        assert_eq!((row.status, row.attempts, row.last_error.as_deref()), (DEAD, 0, Some("cancelled")));
        let row = settled(&shop, Settings::default(), 0, answering(|| Ok(Outcome::dead()))).await;
        assert_eq!((row.status, row.last_error.as_deref()), (DEAD, Some("the handler gave the event up")));
    }

    /// Rules: O-030, O-305, O-306, O-398.
    async fn a_failure_with_its_own_delay_waits_for_that_one_and_counts_as_a_try(shop) {
        let policy = |_: u32, _: Jitter| -> Duration { panic!("the policy is not asked") };
        let settings = Settings::default().retry_policy(policy);
        let row = settled(&shop, settings, 1, answering(|| Err(Failure::retry_after(HOUR)))).await;
        assert_eq!((row.status, row.attempts, row.last_error.as_deref()), (RETRY, 2, Some("retry-after")));
        let due = due_in(&shop, "1").await;
        assert!((3_590.0..3_601.0).contains(&due), "{due}");
    }

    /// Rules: O-306, O-399.
    async fn at_the_last_try_a_failure_with_its_own_delay_is_dead_all_the_same(shop) {
        let settings = Settings::default().max_attempts(3);
        let row = settled(&shop, settings, 2, answering(|| Err(Failure::retry_after(HOUR)))).await;
        assert_eq!((row.status, row.attempts), (DEAD, 2));
    }

    /// Rules: O-028, O-307.
    async fn any_other_failure_waits_as_the_policy_says_for_that_try(shop) {
        let policy = |attempt: u32, _: Jitter| Duration::from_secs(1_000) * attempt;
        let settings = || Settings::default().retry_policy(policy);
        let handler = || answering(|| Err(Failure::transient("timeout", "no answer")));
        for (attempts, expected) in [(0, 1_000.0), (4, 5_000.0)] {
            let row = settled(&shop, settings(), attempts, handler()).await;
            let written = (row.status, row.attempts, row.last_error.as_deref());
            assert_eq!(written, (RETRY, i64::from(attempts) + 1, Some("timeout: no answer")));
            let due = due_in(&shop, "1").await;
            assert!((expected - 10.0..expected + 1.0).contains(&due), "{due}");
        }
    }

    /// Rules: O-308.
    async fn after_the_last_try_a_failing_event_is_dead(shop) {
        let handler = Failing::always();
        let outbox = shop
            .outbox()
            .interval(Duration::from_millis(2))
            .max_attempts(3)
            .retry_policy(|_: u32, _: Jitter| Duration::ZERO)
            .on("Order", "OrderPlaced", handler.clone())
            .start()
            .await
            .unwrap();
        shop.insert(&[order("1")]).await;
        let row = until_status(&shop, "1", DEAD).await;
        outbox.close().await.unwrap();
        assert_eq!((handler.tries_of("1"), row.attempts), (3, 2));
        assert_eq!(outbox.metrics().dispatch_failure.total(), 2);
    }

    /// Rules: O-029, O-031, O-309, O-310.
    async fn a_failure_that_will_not_pass_is_dead_at_the_first_try_without_counting_it(shop) {
        let rejected = answering(|| Err(Failure::permanent("schema", "no total")));
        let row = settled(&shop, Settings::default(), 0, rejected).await;
        assert_eq!((row.status, row.attempts, row.last_error.as_deref()), (DEAD, 0, Some("schema: no total")));

        // So is a payload that cannot be read, because it will be the same next time.
        let unreadable = |event: Event| async move {
            let _: u32 = event.payload()?;
            Ok::<_, Failure>(())
        };
        let row = settled(&shop, Settings::default(), 0, unreadable).await;
        assert_eq!((row.status, row.attempts), (DEAD, 0));
        assert!(row.last_error.unwrap().starts_with("payload: "));
    }
}

/// Rules: O-028, O-029, O-030, O-031.
#[tokio::test]
async fn the_kinds_of_failures_differ_in_whether_trying_again_can_help() {
    let unreadable = order("1").payload::<u32>().unwrap_err();
    let kinds = [
        (Failure::transient("timeout", "no answer"), true, None),
        (Failure::permanent("schema", "no total"), false, None),
        (Failure::retry_after(HOUR), true, Some(HOUR)),
        (Failure::from(unreadable), false, None),
        (Failure::from(std::io::Error::other("reset")), true, None),
    ];
    for (failure, recoverable, delay) in kinds {
        assert_eq!((failure.is_recoverable(), failure.delay()), (recoverable, delay), "{failure}");
    }
}

database_suite! {
    over shop on 1 thread

    /// Rules: O-014, O-299, O-302.
    async fn every_answer_settles_its_row_exactly_once_and_lets_go_of_its_id(shop) {
        let answers: [fn() -> Result<Outcome, Failure>; 6] = [
            || Ok(Outcome::Done),
            || Ok(Outcome::RetryAfter(HOUR)),
            || Ok(Outcome::dead()),
            || Err(Failure::transient("timeout", "no answer")),
            || Err(Failure::permanent("schema", "no total")),
            || panic!("on purpose"),
        ];
        for (answer, status) in answers.into_iter().zip([DONE, NEW, DEAD, RETRY, DEAD, RETRY]) {
            let shop = shop.another().await;
            shop.note_updates("status").await;
            shop.insert(&[order("1")]).await;
            let recorder = Recording::of(answering(answer));
            let dispatcher = dispatch(&shop, Settings::default(), recorder.clone());
            assert!(dispatcher.enqueue(Queued::cold(order("1"), 0)));
            backstop_testkit::eventually("a settlement", async || !shop.noted().await.is_empty()).await;
            assert_eq!(shop.noted().await, [status.to_string()]);
            // Its id is free, so the same event is handled again when it is offered again.
            backstop_testkit::eventually("another delivery", async || {
                dispatcher.enqueue(Queued::cold(order("1"), 0));
                tokio::task::yield_now().await;
                recorder.events().len() > 1
            })
            .await;
            dispatcher.close().await.unwrap();
        }
    }
}

/// Rules: O-439.
#[tokio::test]
async fn a_death_is_an_error_in_the_log_and_a_retry_is_worth_knowing_but_neither_tells_the_payload() {
    let logs = Logs::catch();
    let shop = Shop::open().await;
    let secret = || Event::of("OrderPlaced").id("1").aggregate("Order", "42").json(&"secret").unwrap();
    shop.insert(&[secret()]).await;
    tried(&shop, "1", 2).await;
    for (max_attempts, level) in [(5, Level::INFO), (3, Level::ERROR)] {
        let dispatcher = dispatch(&shop, Settings::default().max_attempts(max_attempts), Failing::always());
        assert!(dispatcher.enqueue(Queued::cold(secret(), 2)));
        dispatcher.close().await.unwrap();
        tried(&shop, "1", 2).await;
        let lines = logs.having(level, "event_id=\"1\"");
        assert_eq!(lines.len(), 1, "{}", logs.all());
        for part in ["OrderPlaced", "aggregate_type=\"Order\"", "42", "attempt=3", "failed on purpose"] {
            assert!(lines[0].contains(part), "{part} in {}", lines[0]);
        }
    }
    assert!(!logs.all().contains("secret"), "{}", logs.all());
}
