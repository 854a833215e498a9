//! A place of its own for each test, so that tests run side by side: a fresh database, prefix or directory.
//!
//! The servers are those that the variables `BACKSTOP_TEST_POSTGRES_URL`, `BACKSTOP_TEST_PGBOUNCER_URL`,
//! `BACKSTOP_TEST_MYSQL_URL`, `BACKSTOP_TEST_ORACLE_MYSQL_URL` and `BACKSTOP_TEST_KAFKA_BOOTSTRAP` name, or else the
//! file `target/services/env` of the workspace, one `NAME=value` per line. Where a server does not answer, the test is
//! [marked as skipped](crate::skip()) and gets `None`:
//!
//! ```no_run
//! # #[cfg(feature = "postgres")]
//! #[tokio::test]
//! async fn an_order_survives_a_restart() {
//!     let Some(database) = backstop_testkit::servers::postgres().await else { return };
//!     let pool = database.pool().await;
//!     // … the database is empty, nobody else knows it, and it is gone when `database` is dropped
//! }
//! ```

#[cfg(all(any(feature = "postgres", feature = "mysql"), unix))]
mod account;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod database;
mod directory;
#[cfg(all(any(feature = "kafka", feature = "postgres", feature = "mysql"), unix))]
mod guarded;
mod kafka;
#[cfg(feature = "kafka")]
mod kafka_client;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod left_behind;
#[cfg(feature = "mysql")]
mod mysql;
mod name;
#[cfg(feature = "postgres")]
mod pgbouncer;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_schema;
#[cfg(all(feature = "kafka", unix))]
mod private_kafka;
#[cfg(all(feature = "mysql", unix))]
mod private_mysql;
#[cfg(all(feature = "postgres", unix))]
mod private_postgres;
mod python;
mod service;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use directory::{Directory, directory};
pub use kafka::{KafkaSpace, kafka};
#[cfg(feature = "kafka")]
pub use kafka_client::FoundRecord;
#[cfg(feature = "mysql")]
pub use mysql::{MysqlDatabase, mysql, oracle_mysql};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresDatabase, postgres};
#[cfg(feature = "postgres")]
pub use postgres_schema::{PostgresSchema, postgres_schema};
#[cfg(all(feature = "kafka", unix))]
pub use private_kafka::{PrivateKafka, private_kafka};
#[cfg(all(feature = "mysql", unix))]
pub use private_mysql::{PrivateMysql, private_mysql};
#[cfg(all(feature = "postgres", unix))]
pub use private_postgres::{PrivatePostgres, private_postgres};
pub use python::python;
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteDatabase, sqlite};
