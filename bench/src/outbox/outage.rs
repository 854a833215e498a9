//! An outage: what a backlog costs while its target is away, what a second route of the same outbox notices of that, and
//! how fast the backlog flows once the target is back.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use backstop_http::Webhook;
use backstop_sql::Outbox;
use sqlx::{PgPool, Postgres};
use tokio::net::TcpSocket;
use tokio::time::{sleep, timeout};

use super::http::{IN_FLIGHT, Server, webhook};
use super::{Options, Part, ours};
use crate::contender::Drained;
use crate::counter::Counter;
use crate::postgres::Fresh;
use crate::report::{Report, Unit, thousands};

const GROUP: &str = "a target that is away, on PostgreSQL";

/// PostgreSQL's processes tell what they wrote up to 10 s late; and the first probes come at short intervals.
const WARM_UP: Duration = Duration::from_secs(15);

/// When the events of the second route become due: time enough to insert them and for the database to settle down.
const DUE_IN: Duration = Duration::from_secs(15);

/// The circuit opens for 30 s.
const BACK_WITHIN: Duration = Duration::from_secs(60);

/// What is measured in one mode, by name.
pub(super) struct Names {
    mode: Mode,
    /// Before the outage: the backlog of the one route, and then that of the other.
    pub(super) backlog_before: &'static str,
    pub(super) second_route_before: &'static str,
    /// While the target is away.
    pub(super) row_writes: &'static str,
    pub(super) log: &'static str,
    pub(super) second_route: &'static str,
    /// When it is back.
    pub(super) backlog: &'static str,
}

#[derive(Debug, Clone, Copy)]
enum Mode {
    Single,
    Multi,
}

pub(super) const SINGLE: Names = Names {
    mode: Mode::Single,
    backlog_before: "single_node: plain burn-down",
    second_route_before: "single_node: second route, no outage",
    row_writes: "single_node: row writes in an outage",
    log: "single_node: WAL in an outage",
    second_route: "single_node: second route in an outage",
    backlog: "single_node: burn-down after an outage",
};

pub(super) const MULTI: Names = Names {
    mode: Mode::Multi,
    backlog_before: "multi_node: plain burn-down",
    second_route_before: "multi_node: second route, no outage",
    row_writes: "multi_node: row writes in an outage",
    log: "multi_node: WAL in an outage",
    second_route: "multi_node: second route in an outage",
    backlog: "multi_node: burn-down after an outage",
};

pub(super) async fn measure(options: &Options<Part>, round: usize, report: &mut Report) -> Result<()> {
    let away = Duration::from_secs(60) * options.minutes;
    for names in [SINGLE, MULTI].into_iter().filter(|names| names.backlog.contains(&options.only)) {
        let before = without_outage(names.mode, options.events).await?;
        let outage = with_outage(names.mode, options.events, away).await?;
        let mut add = |name, unit, against, value: f64| {
            let shown = if value < 100.0 { format!("{value:.3}") } else { thousands(value) };
            eprintln!("round {round}: {name}: {shown}");
            report.add(GROUP, name, unit, against, value);
        };
        add(names.backlog_before, Unit::EventsPerSecond, None, before.backlog);
        add(names.backlog, Unit::EventsPerSecond, Some(names.backlog_before), outage.flow.backlog);
        add(names.second_route_before, Unit::EventsPerSecond, None, before.second_route);
        let second_route = outage.flow.second_route;
        add(names.second_route, Unit::EventsPerSecond, Some(names.second_route_before), second_route);
        add(names.row_writes, Unit::RowsPerSecond, None, outage.row_writes);
        add(names.log, Unit::MegabytesPerMinute, None, outage.log);
    }
    Ok(())
}

/// Events in a second.
struct Flow {
    backlog: f64,
    second_route: f64,
}

struct Outage {
    flow: Flow,
    /// In a second.
    row_writes: f64,
    /// Megabytes in a minute.
    log: f64,
}

/// The target is there: its backlog is drained, then that of the second route.
async fn without_outage(mode: Mode, events: u32) -> Result<Flow> {
    let database = Fresh::create().await?;
    database.fill_ours(events, &[]).await?;
    let target = Away::new()?;
    let address = target.address;
    target.come_back()?;
    let outbox = mode.start(database.pool.clone(), webhook(address).build()?, events).await?;
    let backlog = settled(&outbox, 0, events).await?;
    let second_route = drain_second_route(&outbox, &database, events, events).await?;
    ours::closed(outbox, Instant::now(), events).await?;
    database.drop().await?;
    Ok(Flow { backlog, second_route })
}

/// The target is away, its backlog waits, the second route flows; then the target is back.
async fn with_outage(mode: Mode, events: u32, length: Duration) -> Result<Outage> {
    let database = Fresh::create().await?;
    database.fill_ours(events, &[]).await?;
    let target = Away::new()?;
    let outbox = mode.start(database.pool.clone(), webhook(target.address).build()?, events).await?;
    until_held(&outbox).await?;
    sleep(WARM_UP).await;
    let (before, began) = (Written::so_far(&database.pool).await?, Instant::now());
    sleep(length).await;
    let (after, took) = (Written::so_far(&database.pool).await?, began.elapsed().as_secs_f64());
    let second_route = drain_second_route(&outbox, &database, 0, events).await?;

    database.settle_down().await?;
    target.come_back()?;
    let backlog = settled(&outbox, u64::from(second_route_of(events)), events).await?;
    ours::closed(outbox, Instant::now(), events).await?;
    database.drop().await?;
    Ok(Outage {
        flow: Flow { backlog, second_route },
        row_writes: (after.rows - before.rows) / took,
        log: (after.log_bytes - before.log_bytes) / 1e6 / (took / 60.0),
    })
}

/// Gives the second route a backlog that becomes due all at once, and waits until it is drained.
async fn drain_second_route(
    outbox: &Outbox<Postgres>,
    database: &Fresh,
    settled_before: u32,
    events: u32,
) -> Result<f64> {
    let own = second_route_of(events);
    let began = Instant::now();
    database.fill_second_route(own, DUE_IN).await?;
    ensure!(began.elapsed() < DUE_IN, "the database was too slow to be ready in time");
    settled(outbox, settled_before.into(), own).await
}

/// How many events the second route gets.
fn second_route_of(events: u32) -> u32 {
    events / 2
}

/// Waits until so many more events are settled than before, and tells the rate from the first of them on.
async fn settled(outbox: &Outbox<Postgres>, before: u64, events: u32) -> Result<f64> {
    let metrics = outbox.metrics();
    let more = async |than: u64| {
        let mut so_far = metrics.dispatch_success.total();
        while so_far <= than {
            sleep(Duration::from_millis(2)).await;
            so_far = metrics.dispatch_success.total();
        }
        so_far
    };
    let first = timeout(BACK_WITHIN, more(before)).await.context("nothing is delivered")?;
    let start = Instant::now();
    let last = more(before + u64::from(events) - 1).await;
    let dead = metrics.dispatch_dead.total();
    ensure!(dead == 0, "{dead} events died on the way");
    let counted = Drained { events: u32::try_from(last - first)?, took: start.elapsed() };
    Ok(counted.rate())
}

async fn until_held(outbox: &Outbox<Postgres>) -> Result<()> {
    let metrics = outbox.metrics();
    let held = async {
        while metrics.dispatch_held.total() == 0 {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(Duration::from_secs(30), held).await.context("the route is not held")
}

impl Mode {
    async fn start(self, pool: PgPool, webhook: Webhook, events: u32) -> Result<Outbox<Postgres>> {
        let invoices = Counter::new(events).handler();
        let outbox = match self {
            Self::Single => {
                let outbox = Outbox::single_node(pool).batch_size(500).worker_count(IN_FLIGHT);
                outbox
                    .on("Order", "OrderPlaced", webhook)
                    .on("Invoice", "InvoiceSent", invoices)
                    .start()
                    .await
            }
            Self::Multi => {
                let outbox = Outbox::multi_node(pool).batch_size(500).worker_count(IN_FLIGHT);
                let outbox = outbox.claim_locking(Duration::from_secs(300));
                outbox
                    .on("Order", "OrderPlaced", webhook)
                    .on("Invoice", "InvoiceSent", invoices)
                    .start()
                    .await
            }
        };
        Ok(outbox?)
    }
}

/// A target that refuses connections until it is back: its port is taken, and nobody listens.
struct Away {
    socket: TcpSocket,
    address: SocketAddr,
}

impl Away {
    fn new() -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind("127.0.0.1:0".parse()?)?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address })
    }

    fn come_back(self) -> Result<()> {
        Server::AtOnce.start_on(self.socket.listen(1024)?.into_std()?)
    }
}

/// What the database has written.
struct Written {
    /// Into the table.
    rows: f64,
    /// Into the log of the whole server.
    log_bytes: f64,
}

impl Written {
    async fn so_far(pool: &PgPool) -> Result<Self> {
        let (rows, log_bytes) = sqlx::query_as(
            "select (n_tup_ins + n_tup_upd + n_tup_del)::float8,
                    pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8
             from pg_stat_user_tables where relname = 'outbox_event'",
        )
        .fetch_one(pool)
        .await?;
        Ok(Self { rows, log_bytes })
    }
}
