//! A SQLite file of its own for each test.

use std::path::{Path, PathBuf};

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

use super::{Directory, directory};

/// A fresh SQLite database: a file in a directory of its own, removed when this value is dropped.
///
/// ```
/// # backstop_testkit::suite::block_on(async {
/// let database = backstop_testkit::servers::sqlite();
/// let pool = database.pool().await;
/// sqlx::query("CREATE TABLE orders (id INTEGER PRIMARY KEY)").execute(&pool).await.unwrap();
/// assert!(database.url().starts_with("sqlite://"));
/// # });
/// ```
#[derive(Debug)]
pub struct SqliteDatabase {
    directory: Directory,
}

/// Makes a place for a fresh SQLite database. The file itself appears with the first connection.
///
/// # Panics
///
/// If no temporary directory can be made.
pub fn sqlite() -> SqliteDatabase {
    SqliteDatabase { directory: directory() }
}

impl SqliteDatabase {
    /// The file.
    pub fn path(&self) -> PathBuf {
        self.directory.file("test.db")
    }

    /// The directory that holds nothing but the file and what SQLite puts beside it.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The address for a driver, which makes the file if it is missing.
    pub fn url(&self) -> String {
        format!("sqlite://{}?mode=rwc", escaped(&self.path().display().to_string()))
    }

    /// A small pool of connections.
    ///
    /// # Panics
    ///
    /// If the file cannot be opened.
    pub async fn pool(&self) -> SqlitePool {
        let options = SqliteConnectOptions::new().filename(self.path()).create_if_missing(true);
        let pool = SqlitePoolOptions::new().max_connections(5).connect_with(options).await;
        pool.unwrap_or_else(|error| panic!("cannot open {}: {error}", self.path().display()))
    }
}

/// A temporary directory may be anywhere, also under a name that means something in a URL.
fn escaped(path: &str) -> String {
    path.replace('%', "%25").replace('?', "%3F").replace('#', "%23")
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection as _, SqliteConnection};

    use super::*;

    #[tokio::test]
    async fn pool_and_url_lead_to_the_same_file_which_goes_with_its_value() {
        let database = sqlite();
        assert!(!database.path().exists());
        sqlx::query("CREATE TABLE t (a INTEGER)").execute(&database.pool().await).await.unwrap();

        let mut connection = SqliteConnection::connect(&database.url()).await.unwrap();
        sqlx::query("INSERT INTO t VALUES (1)").execute(&mut connection).await.unwrap();

        let directory = database.directory().to_owned();
        assert!(directory.join("test.db").exists());
        drop(database);
        assert!(!directory.exists());
    }

    #[test]
    fn signs_that_mean_something_in_a_url_are_escaped() {
        assert_eq!(escaped("/tmp/50% off?#1/t.db"), "/tmp/50%25 off%3F%231/t.db");
    }
}
