//! Handlers that block the threads of their runtime for longer than a claim lasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use backstop_core::{Event, Shutdown};
use backstop_sql::Outbox;
use backstop_testkit::eventually;
use sqlx::pool::PoolOptions;

use crate::*;

const GRACE: Duration = Duration::from_secs(1);

/// A node with a runtime of its own, which has one thread, and a handler that blocks it.
fn blocking<DB: Supported>(
    pool: &sqlx::Pool<DB>,
    calls: &Arc<AtomicUsize>,
    end: &Shutdown,
) -> JoinHandle<()> {
    let (options, calls, end) = (pool.connect_options(), calls.clone(), end.clone());
    let block = move |_: Event| {
        let calls = calls.clone();
        async move {
            calls.fetch_add(1, Ordering::SeqCst);
            thread::sleep(GRACE * 3);
        }
    };
    let run = async move {
        let pool = PoolOptions::<DB>::new().max_connections(3).connect_with((*options).clone());
        let outbox = Outbox::multi_node(pool.await.unwrap())
            .claim_locking(GRACE)
            .hot_grace(GRACE)
            .interval(SOON)
            .on("Order", "OrderPlaced", block)
            .start();
        let outbox = outbox.await.unwrap();
        end.begun().await;
        outbox.close().await.unwrap();
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    thread::spawn(move || runtime.block_on(run))
}

database_suite! {
    over empty

    /// Each would lose its claim in the handler, its result would come too late, and the next would do the same, for ever.
    async fn an_event_whose_handler_blocks_its_node_for_longer_than_claims_last_is_handled_once(place) {
        let writer = Outbox::writer_only(place.pool.clone()).start().await.unwrap();
        let (calls, end) = (Arc::new(AtomicUsize::new(0)), Shutdown::new());
        let nodes = [(); 3].map(|()| blocking(&place.pool, &calls, &end));
        let mut tx = writer.begin().await.unwrap();
        tx.append(order(1)).await.unwrap();
        tx.commit().await.unwrap();
        eventually("it to be done", async || writer.store().census(10).await.unwrap().done.events == 1).await;
        end.begin();
        for node in nodes {
            tokio::task::spawn_blocking(|| node.join()).await.unwrap().unwrap();
        }
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        writer.close().await.unwrap();
    }
}
