//! Who burns a backlog down.

use super::{Part, mariadb, postgres, sqlite, sqlxmq};
use crate::contender::{Contender, contender};
use crate::peers;

pub(super) const WORKER: &str = "queue, defaults";
pub(super) const RAW: &str = "raw claim + move, two connections";
pub(super) const GRAPHILE_ONE: &str = "graphile_worker, one local queue";
pub(super) const GRAPHILE_TWO: &str = "graphile_worker, two local queues";
pub(super) const RIVER_1_000: &str = "riverqueue, 1,000 workers";
pub(super) const RIVER_10_000: &str = "riverqueue, 10,000 workers";
pub(super) const SQLXMQ_1_000: &str = "sqlxmq, 1,000 jobs at once";
pub(super) const SQLXMQ_10_000: &str = "sqlxmq, 10,000 jobs at once";
pub(super) const MARIADB_WORKER: &str = "MariaDB: queue, defaults";
pub(super) const MARIADB_RAW: &str = "MariaDB: raw claim + move, two connections";
pub(super) const SQLITE_WORKER: &str = "SQLite: queue, defaults";
pub(super) const SQLITE_RAW: &str = "SQLite: raw claim + move";

const POSTGRES: &str = "a backlog on PostgreSQL";
const PEERS: &str = "the same backlog, other libraries";
const MARIADB: &str = "a backlog on MariaDB";
const SQLITE: &str = "a backlog on SQLite";

use Part::{Backlog, Mariadb, Peers, Sqlite};

#[rustfmt::skip]
pub(super) const ALL: &[Contender<Part>] = &[
    contender!(RAW, POSTGRES, [Backlog], None, |events| postgres::raw_overlapped(events)),
    contender!(WORKER, POSTGRES, [Backlog, Peers], Some(RAW), |events| postgres::worker(events)),
    contender!("raw claim + move, one connection", POSTGRES, [Backlog], Some(RAW),
        |events| postgres::raw_one_connection(events)),
    contender!("raw claim + move, two connections, claims not synced", POSTGRES, [Backlog], Some(RAW),
        |events| postgres::raw_overlapped_lazy(events)),

    contender!(SQLXMQ_1_000, PEERS, [Peers], Some(WORKER), |events| sqlxmq::drain(events, 1_000)),
    contender!(SQLXMQ_10_000, PEERS, [Peers], Some(WORKER), |events| sqlxmq::drain(events, 10_000)),
    contender!(RIVER_1_000, PEERS, [Peers], Some(WORKER), |events| peers::riverqueue(events, 1_000)),
    contender!(RIVER_10_000, PEERS, [Peers], Some(WORKER), |events| peers::riverqueue(events, 10_000)),
    contender!(GRAPHILE_ONE, PEERS, [Peers], Some(WORKER), |events| peers::graphile_worker(events, 1, 5_000)),
    contender!(GRAPHILE_TWO, PEERS, [Peers], Some(WORKER), |events| peers::graphile_worker(events, 2, 500)),

    contender!(MARIADB_RAW, MARIADB, [Mariadb], None, |events| mariadb::raw_overlapped(events)),
    contender!(MARIADB_WORKER, MARIADB, [Mariadb], Some(MARIADB_RAW), |events| mariadb::worker(events)),

    contender!(SQLITE_RAW, SQLITE, [Sqlite], None, |events| sqlite::raw(events)),
    contender!(SQLITE_WORKER, SQLITE, [Sqlite], Some(SQLITE_RAW), |events| sqlite::worker(events)),
];
