//! The registry: exactly one handler for each pair, found by the pair and by nothing else.

use backstop_core::event::{AggregateType, EventType, GLOBAL};
use backstop_core::{Event, Failure, Handler, Outcome};
use backstop_sql::Error;
use backstop_sql::outbox::{BoundHandler, Registry};
use backstop_testkit::handlers::Recording;

use crate::harness::order;

struct Orders;

impl AggregateType for Orders {
    fn name(&self) -> &'static str {
        "Order"
    }
}

struct Placed;

impl EventType for Placed {
    fn name(&self) -> &'static str {
        "OrderPlaced"
    }
}

/// Which of the recorders the registry would send an event of that pair to.
async fn asked(registry: &Registry, pair: (&str, &str), recorders: &[&Recording]) -> Option<usize> {
    let before: Vec<_> = recorders.iter().map(|recorder| recorder.events().len()).collect();
    registry.handler_for(pair.0, pair.1)?.handle(order("1")).await.unwrap();
    let now = recorders.iter().map(|recorder| recorder.events().len());
    now.zip(before).position(|(now, before)| now > before)
}

/// Rules: O-006, O-370, O-372, O-373, O-375.
#[tokio::test]
async fn each_pair_leads_to_its_own_handler_and_an_unknown_one_to_none() {
    let registry = Registry::new();
    let (placed, paid, invoiced) = (Recording::new(), Recording::new(), Recording::new());
    registry.register("Order", "OrderPlaced", placed.clone()).unwrap();
    registry.register("Order", "OrderPaid", paid.clone()).unwrap();
    registry.register("Invoice", "OrderPaid", invoiced.clone()).unwrap();
    let recorders = [&placed, &paid, &invoiced];
    assert_eq!(asked(&registry, ("Order", "OrderPlaced"), &recorders).await, Some(0));
    assert_eq!(asked(&registry, ("Order", "OrderPaid"), &recorders).await, Some(1));
    assert_eq!(asked(&registry, ("Invoice", "OrderPaid"), &recorders).await, Some(2));
    for unknown in [("Invoice", "OrderPlaced"), ("order", "OrderPlaced"), ("", ""), (GLOBAL, "OrderPaid")] {
        assert!(registry.handler_for(unknown.0, unknown.1).is_none(), "{unknown:?}");
    }
    assert_eq!(placed.events().len() + paid.events().len() + invoiced.events().len(), 3);
}

/// Rules: O-374, O-383.
#[tokio::test]
async fn a_global_handler_is_for_events_without_an_aggregate_type_and_for_no_others() {
    let registry = Registry::new();
    let global = Recording::new();
    registry.register_global("Tick", global.clone()).unwrap();
    assert_eq!(asked(&registry, (GLOBAL, "Tick"), &[&global]).await, Some(0));
    assert!(registry.handler_for("Order", "Tick").is_none());
    assert_eq!(Event::of_json("Tick", "{}").unwrap().aggregate_type(), GLOBAL);
}

/// Rules: O-376.
#[tokio::test]
async fn types_register_as_their_names_do() {
    let registry = Registry::new();
    let (placed, global) = (Recording::new(), Recording::new());
    registry.register(Orders, Placed, placed.clone()).unwrap();
    registry.register_global(Placed, global.clone()).unwrap();
    assert_eq!(asked(&registry, ("Order", "OrderPlaced"), &[&placed, &global]).await, Some(0));
    assert_eq!(asked(&registry, (GLOBAL, "OrderPlaced"), &[&placed, &global]).await, Some(1));
}

/// Rules: O-377.
#[tokio::test]
async fn a_second_handler_for_a_pair_is_refused_and_the_first_stays() {
    let registry = Registry::new();
    let (first, second) = (Recording::new(), Recording::new());
    registry.register("Order", "OrderPlaced", first.clone()).unwrap();
    let bound = BoundHandler::new(Orders, Placed, second.clone());
    for refused in [
        registry.register("Order", "OrderPlaced", second.clone()),
        registry.register(Orders, Placed, second.clone()),
        registry.register_bound(bound),
    ] {
        let Err(Error::Duplicate { aggregate_type, event_type }) = refused else { panic!("{refused:?}") };
        assert_eq!((aggregate_type.as_str(), event_type.as_str()), ("Order", "OrderPlaced"));
    }
    assert_eq!(asked(&registry, ("Order", "OrderPlaced"), &[&first, &second]).await, Some(0));

    registry.register_global("Tick", first.clone()).unwrap();
    assert!(registry.register(GLOBAL, "Tick", second).is_err());
}

/// Rules: O-378, O-379, O-380, O-381.
#[tokio::test]
async fn a_bound_handler_knows_its_pair_and_registers_by_itself() {
    let (by_name, by_type) = (Recording::new(), Recording::new());
    let named = BoundHandler::new("Order", "OrderPaid", by_name.clone());
    let typed = BoundHandler::new(Orders, Placed, by_type.clone());
    assert_eq!((named.aggregate_type(), named.event_type()), ("Order", "OrderPaid"));
    assert_eq!((typed.aggregate_type(), typed.event_type()), ("Order", "OrderPlaced"));
    let registry = Registry::new();
    registry.register_bound(named).unwrap();
    registry.register_bound(typed).unwrap();
    assert_eq!(asked(&registry, ("Order", "OrderPaid"), &[&by_name, &by_type]).await, Some(0));
    assert_eq!(asked(&registry, ("Order", "OrderPlaced"), &[&by_name, &by_type]).await, Some(1));
}

/// Rules: O-382.
#[tokio::test]
async fn colons_in_names_do_not_make_two_pairs_one() {
    let registry = Registry::new();
    let (first, second) = (Recording::new(), Recording::new());
    registry.register("a:b", "c", first.clone()).unwrap();
    registry.register("a", "b:c", second.clone()).unwrap();
    assert_eq!(asked(&registry, ("a:b", "c"), &[&first, &second]).await, Some(0));
    assert_eq!(asked(&registry, ("a", "b:c"), &[&first, &second]).await, Some(1));
}

/// A handler that is a type of its own.
struct Shipping;

impl Handler for Shipping {
    async fn handle(&self, event: Event) -> Result<Outcome, Failure> {
        match event.id() {
            "refused" => Err(Failure::permanent("refused", "no such order")),
            _ => Ok(Outcome::Done),
        }
    }
}

/// Rules: O-371.
#[tokio::test]
async fn a_handler_takes_an_event_and_returns_an_outcome_or_a_failure() {
    let registry = Registry::new();
    registry.register("Order", "OrderPlaced", Shipping).unwrap();
    let handler = registry.handler_for("Order", "OrderPlaced").unwrap();
    assert_eq!(handler.handle(order("1")).await.unwrap(), Outcome::Done);
    assert_eq!(handler.handle(order("refused")).await.unwrap_err().class(), "refused");
}

/// Rules: O-449.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handlers_are_registered_and_looked_up_at_the_same_time() {
    let registry = Registry::new();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let registry = registry.clone();
        tasks.spawn(async move {
            let mut refused = 0;
            for n in 0..100 {
                // Each pair is tried by two tasks; one of them is too late.
                let name = format!("E{}-{n}", task / 2);
                refused += u32::from(registry.register("Order", name.as_str(), Shipping).is_err());
                assert!(registry.handler_for("Order", &name).is_some());
                tokio::task::yield_now().await;
            }
            refused
        });
    }
    let refused: u32 = tasks.join_all().await.into_iter().sum();
    assert_eq!(refused, 400);
    assert!((0..100).all(|n| registry.handler_for("Order", &format!("E3-{n}")).is_some()));
}

#[tokio::test]
async fn one_handler_may_be_for_all_that_no_other_is_for_and_there_is_one_at_most() {
    let registry = Registry::new();
    let (placed, rest) = (Recording::new(), Recording::new());
    registry.register("Order", "OrderPlaced", placed.clone()).unwrap();
    registry.otherwise(rest.clone()).unwrap();
    let both = [&placed, &rest];
    assert_eq!(asked(&registry, ("Order", "OrderPlaced"), &both).await, Some(0));
    assert_eq!(asked(&registry, ("Order", "OrderPaid"), &both).await, Some(1));
    assert_eq!(asked(&registry, (GLOBAL, "Tick"), &both).await, Some(1));
    assert!(matches!(registry.otherwise(rest), Err(Error::Duplicate { .. })));
}
