//! The four servers by name.

use std::env;
use std::fmt;

use clap::ValueEnum;

/// A server that tests talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// PostgreSQL 15 or newer.
    Postgres,
    /// MariaDB, which stands for the MySQL family.
    Mysql,
    /// Redis.
    Redis,
    /// Apache Kafka, one node without `ZooKeeper`.
    Kafka,
}

impl Name {
    pub(super) const ALL: [Self; 4] = [Self::Postgres, Self::Mysql, Self::Redis, Self::Kafka];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Redis => "redis",
            Self::Kafka => "kafka",
        }
    }

    /// The environment variable that tests read its address from.
    pub(super) fn variable(self) -> &'static str {
        match self {
            Self::Postgres => "BACKSTOP_TEST_POSTGRES_URL",
            Self::Mysql => "BACKSTOP_TEST_MYSQL_URL",
            Self::Redis => "BACKSTOP_TEST_REDIS_URL",
            Self::Kafka => "BACKSTOP_TEST_KAFKA_BOOTSTRAP",
        }
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
