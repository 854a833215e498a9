//! The dashboard over made-up components, for working on the page: `fake_dashboard [scene] [seconds] [port]`.
//!
//! Scenes: `busy`, `hostile`, `empty`, `alone`, `calm`, `down`. It ends by itself, after a minute unless told otherwise.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use backstop_admin::{Admin, metrics};
use backstop_core::clock::Tick;
use backstop_core::inspect::{Count, Flow, Health, Inspect, Paused, Place, Report, Route, Times, Troubled};
use backstop_core::telemetry::{BUCKETS, Outbox};
use backstop_core::{Clock, Shutdown, SystemClock};

/// A component whose figures follow from the time since it was made.
struct Fake {
    kind: &'static str,
    name: &'static str,
    health: Health,
    born: Tick,
    counts: [Count; 4],
    per_second: [u32; 4],
    troubled: Vec<Troubled>,
    routes: Vec<Route>,
}

impl Fake {
    fn new(kind: &'static str, name: &'static str) -> Self {
        Self {
            kind,
            name,
            health: Health::Up,
            born: SystemClock.ticks(),
            counts: [0, 0, 0, 48_211].map(Count::exactly),
            per_second: [12, 0, 0, 0],
            troubled: vec![],
            routes: vec![],
        }
    }
}

impl Inspect for Fake {
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>> {
        Box::pin(async {
            let elapsed = SystemClock.ticks().since(self.born);
            // A steady rate with a swell in it, so that the bars have a shape.
            let swell = elapsed.as_secs_f64() + 2.5 * (elapsed.as_secs_f64() / 5.0).sin();
            let total = |rate: u32| (Duration::from_secs_f64(swell) * rate).as_secs();
            let [waiting, retrying, dead, done] = self.counts;
            let [delivered, failed, deferred, buried] = self.per_second;
            Report {
                places: vec![
                    place("waiting", "Not tried yet, or due soon.", waiting),
                    place("retrying", "Failed; will be tried again by itself.", retrying),
                    place("dead", "Given up. Nothing happens until someone replays it.", dead),
                    place("done", "Handled, kept until it is purged.", done),
                ],
                flows: vec![
                    flow("delivered", "Events whose handler succeeded.", total(delivered)),
                    flow("failed", "Tries that failed and will be repeated.", total(failed)),
                    flow("deferred", "Events their handler put off.", total(deferred)),
                    flow("buried", "Events given up: no further attempt.", total(buried)),
                    flow("hot", "Events queued right after their commit.", total(delivered)),
                    flow("polled", "Events queued by the poller.", total(failed)),
                ],
                troubled: self.troubled.clone(),
                routes: self.routes.clone(),
                times: vec![Times {
                    name: "waiting",
                    meaning: "From when an event is due until its handler is called.",
                    bounds: &BUCKETS,
                    counts: (0..=16)
                        .map(|bucket| total(self.per_second[0]) / (1 + bucket * bucket))
                        .collect(),
                }],
                ..Report::of(self.kind, self.name, self.health.clone())
            }
        })
    }
}

/// A component whose answer never comes.
struct Hanging;

impl Inspect for Hanging {
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

fn place(name: &'static str, meaning: &'static str, count: Count) -> Place {
    Place { name, meaning, count }
}

fn flow(name: &'static str, meaning: &'static str, total: u64) -> Flow {
    Flow { name, meaning, total }
}

/// An event in trouble; `next` is in seconds from now.
fn troubled(
    nth: u64,
    what: &str,
    about: (&str, &str),
    attempts: u32,
    error: &str,
    next: Option<u64>,
) -> Troubled {
    let now = SystemClock.now();
    Troubled {
        id: format!("01K3ZQ8F4M7XBD2V9TNH6PR{nth:03}"),
        event_type: what.into(),
        aggregate_type: about.0.into(),
        aggregate_id: (!about.1.is_empty()).then(|| about.1.into()),
        place: if next.is_some() { "retrying" } else { "dead" },
        attempts,
        error: Some(error.into()),
        occurred_at: now - Duration::from_secs(40 + 97 * nth),
        next_attempt_at: next.map(|seconds| now + Duration::from_secs(seconds)),
    }
}

/// A route; `away` says why its target is not called.
fn route(name: &str, [waiting, retrying, dead]: [u64; 3], away: Option<&str>) -> Route {
    let ago = |seconds| SystemClock.now() - Duration::from_secs(seconds);
    Route {
        name: name.into(),
        waiting: Count::exactly(waiting),
        retrying: Count::exactly(retrying),
        dead: Count::exactly(dead),
        oldest_due: (waiting > 0).then(|| ago(41)),
        paused: away.map(|why| Paused {
            target: Some("billing".to_owned()),
            next_probe: Some(SystemClock.now() + Duration::from_secs(4)),
            ..Paused::since(ago(300), "held", why)
        }),
    }
}

fn busy() -> Fake {
    let long = "http-503: the warehouse answered 503 Service Unavailable to POST /v2/reservations\n\
                {\"error\":\"overloaded\",\"detail\":\"the reservation service sheds load; retry after 30 s\",\
                \"trace\":\"4bf92f3577b34da6a3ce929d0e0e4736\"}\n\
                caused by: connection pool exhausted after 5000 ms (20 of 20 in use)";
    Fake {
        health: Health::Degraded(
            "the oldest due event has waited for 41 s; more than 30 s is too long".into(),
        ),
        counts: [Count::exactly(37), Count::exactly(4), Count::exactly(3), Count::up_to(100_000, 100_000)],
        per_second: [12, 2, 1, 1],
        routes: vec![
            route("Order/OrderPlaced", [4, 1, 1], None),
            route("Payment/PaymentCaptured", [33, 3, 1], Some("connection refused")),
            route("Order/OrderPaid", [0, 0, 0], None),
            route("no handler", [0, 0, 1], None),
        ],
        troubled: vec![
            troubled(
                1,
                "OrderPlaced",
                ("Order", "42"),
                10,
                "schema: `total` is a string, a number was expected",
                None,
            ),
            troubled(2, "PaymentCaptured", ("Payment", "pay_9f31"), 10, long, None),
            troubled(
                3,
                "OrderCancelled",
                ("Order", "1187"),
                1,
                "no handler is registered for OrderCancelled",
                None,
            ),
            troubled(
                4,
                "OrderPlaced",
                ("Order", "1203"),
                2,
                "timeout: the warehouse did not answer within 5 s",
                Some(24),
            ),
            troubled(5, "InvoiceIssued", ("Invoice", ""), 4, "http-429: too many requests", Some(310)),
        ],
        ..Fake::new("outbox", "orders")
    }
}

fn hostile() -> Fake {
    let mut nasty = troubled(
        1,
        "<script>document.title='owned'</script>",
        ("<b>Order</b>", "'\"><svg onload=alert(2)>"),
        3,
        "<img src=x onerror=alert(1)> </td></table><style>*{display:none}</style>",
        Some(9),
    );
    nasty.id = "javascript:alert(3)".into();
    let reversed = "\u{202e}gnp.exe\u{0000}\u{200b} ".repeat(6) + &"Wide".repeat(600);
    Fake {
        name: "<h1>orders</h1>",
        routes: vec![route("<b>Order</b>/\u{202e}gnp", [1, 1, 1], Some("<img src=x onerror=alert(1)>"))],
        counts: [Count::exactly(1_204), Count::exactly(61), Count::exactly(1), Count::exactly(0)],
        troubled: vec![
            nasty,
            troubled(2, &"LongType".repeat(16), ("Order", &"9".repeat(120)), 1, &reversed, None),
            troubled(3, "الطلب", ("注文", "№ 42"), 1, "فشل الاتصال بالخادم", Some(3)),
        ],
        ..Fake::new("outbox", "")
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let scene = arguments.next().unwrap_or_else(|| "busy".into());
    let seconds = arguments.next().map_or(Ok(60), |seconds| seconds.parse())?;
    let port: u16 = arguments.next().map_or(Ok(0), |port| port.parse())?;

    let prometheus = metrics::install()?;
    Outbox::new("fake.outbox").dispatch_success.add(3);
    let empty =
        |kind, name| Fake { counts: [Count::exactly(0); 4], per_second: [0; 4], ..Fake::new(kind, name) };
    let components: Vec<Arc<dyn Inspect>> = match scene.as_str() {
        "busy" => vec![Arc::new(busy()), Arc::new(Fake::new("queue", "emails")), Arc::new(Hanging)],
        "hostile" => vec![Arc::new(hostile())],
        "empty" => vec![Arc::new(empty("outbox", "orders"))],
        "alone" => vec![],
        "down" => vec![Arc::new(Fake {
            health: Health::Down("the database refused the connection: disk full".into()),
            ..busy()
        })],
        _ => vec![Arc::new(Fake::new("outbox", "orders")), Arc::new(Fake::new("queue", "emails"))],
    };
    let admin = components.into_iter().fold(Admin::new(), Admin::watch).metrics(move || prometheus.render());

    let dashboard = admin.bind(([127, 0, 0, 1], port).into()).await?;
    println!("{}", dashboard.url());
    let shutdown = Shutdown::new();
    let serving = tokio::spawn(dashboard.serve(shutdown.child()));
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    shutdown.begin();
    serving.await?;
    Ok(())
}
