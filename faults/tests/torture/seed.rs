//! The name of a run: everything in it follows from this.

use std::fmt;
use std::str::FromStr;

use crate::history::Mode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seed {
    pub(crate) database: Database,
    pub(crate) mode: Mode,
    pub(crate) number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Database {
    Postgres,
    Mariadb,
    Sqlite,
}

pub(crate) const DATABASES: [Database; 3] = [Database::Postgres, Database::Mariadb, Database::Sqlite];
pub(crate) const MODES: [Mode; 3] = [Mode::Single, Mode::Multi, Mode::Ordered];

impl Database {
    fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
            Self::Sqlite => "sqlite",
        }
    }
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Multi => "multi",
            Self::Ordered => "ordered",
        }
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}-{}-{}", self.database.name(), self.mode.name(), self.number))
    }
}

impl FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no seed such as postgres-multi-7");
        let [database, mode, number] = text.split('-').collect::<Vec<_>>()[..] else { return Err(wrong()) };
        let database = DATABASES.into_iter().find(|it| it.name() == database).ok_or_else(wrong)?;
        let mode = MODES.into_iter().find(|it| it.name() == mode).ok_or_else(wrong)?;
        let number = number.parse().map_err(|_| wrong())?;
        Ok(Self { database, mode, number })
    }
}
