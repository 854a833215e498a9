//! A look at the table that is slower than a handler.

use backstop_testkit::eventually;
use backstop_testkit::handlers::{Recording, Slow};

use crate::harness::{DONE, order, shop};
use crate::watched::Watched;

database_suite! {
    over shop on 1 thread

    /// Rules: O-288, O-331.
    async fn a_row_that_was_read_before_its_event_was_settled_is_not_delivered_again(shop) {
        let (store, gate) = (Watched::around(shop.store.clone()), Slow::gated());
        let recorder = Recording::of(gate.clone());
        let builder = shop.outbox().store(store.clone()).on("Order", "OrderPlaced", recorder.clone());
        let outbox = builder.start().await.unwrap();
        store.first_answered().await;
        let mut tx = outbox.begin().await.unwrap();
        tx.append(order("1")).await.unwrap();
        tx.commit().await.unwrap();
        gate.until_began(1).await;
        // The poller reads the row, which is still NEW, and is held up before it hands the row on.
        store.hold_up_after();
        outbox.nudge();
        eventually("the second look", async || store.asked().len() == 2).await;
        gate.open();
        eventually("the event to be done", async || shop.row("1").await.status == DONE).await;
        eventually("its id to be let go", async || outbox.metrics().dispatch_success.total() == 1).await;
        store.let_go_after();
        outbox.close().await.unwrap();
        assert_eq!(recorder.count_of("1"), 1);
    }
}
