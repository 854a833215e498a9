//! The servers by name.

use std::env;
use std::fmt;

use clap::ValueEnum;

/// A server that tests talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// PostgreSQL 15 or newer.
    Postgres,
    /// `PgBouncer` in front of PostgreSQL, pooling by transaction.
    Pgbouncer,
    /// MariaDB, the server of the MySQL family that Debian has.
    Mysql,
    /// Oracle's MySQL, in a newer Debian.
    OracleMysql,
    /// PostgreSQL 18, in a newer Debian.
    NewerPostgres,
    /// Apache Kafka, one node without `ZooKeeper`.
    Kafka,
}

impl Name {
    /// All servers. The rows start side by side; within a row each one needs the one before.
    pub(super) const ROWS: [&[Self]; 5] = [
        &[Self::Postgres, Self::Pgbouncer],
        &[Self::Mysql],
        &[Self::Kafka],
        &[Self::OracleMysql],
        &[Self::NewerPostgres],
    ];

    /// All servers, one after the other.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        Self::ROWS.into_iter().flatten().copied()
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Pgbouncer => "pgbouncer",
            Self::Mysql => "mysql",
            Self::OracleMysql => "oracle-mysql",
            Self::NewerPostgres => "newer-postgres",
            Self::Kafka => "kafka",
        }
    }

    /// The environment variable that tests read its address from.
    pub(super) fn variable(self) -> &'static str {
        match self {
            Self::Postgres => "BACKSTOP_TEST_POSTGRES_URL",
            Self::Pgbouncer => "BACKSTOP_TEST_PGBOUNCER_URL",
            Self::Mysql => "BACKSTOP_TEST_MYSQL_URL",
            Self::OracleMysql => "BACKSTOP_TEST_ORACLE_MYSQL_URL",
            Self::NewerPostgres => "BACKSTOP_TEST_NEWER_POSTGRES_URL",
            Self::Kafka => "BACKSTOP_TEST_KAFKA_BOOTSTRAP",
        }
    }

    /// Whether it runs in the folder with a newer Debian.
    pub(super) fn is_newer(self) -> bool {
        matches!(self, Self::OracleMysql | Self::NewerPostgres)
    }

    /// The address in the environment, if someone has set one.
    pub(super) fn given(self) -> Option<String> {
        env::var(self.variable()).ok().filter(|value| !value.is_empty())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_stands_in_one_row() {
        let all: Vec<Name> = Name::all().collect();
        assert_eq!(all.len(), Name::value_variants().len());
        assert!(Name::value_variants().iter().all(|name| all.contains(name)));
    }
}
