//! The way to a fresh PostgreSQL database through `PgBouncer`.

use super::postgres::PostgresDatabase;
use super::service::Service;
use crate::url;

const SERVICE: Service =
    Service { label: "PgBouncer", folder: "pgbouncer", variable: "BACKSTOP_TEST_PGBOUNCER_URL" };

impl PostgresDatabase {
    /// The address of the same database through the `PgBouncer` of `BACKSTOP_TEST_PGBOUNCER_URL`; `None` if
    /// there is none, and then the test is marked as [skipped](crate::skip()).
    ///
    /// That `PgBouncer` stands in front of the server of `BACKSTOP_TEST_POSTGRES_URL` and pools by
    /// transaction: what a session keeps (`SET`, prepared statements, advisory locks, `LISTEN`) stays with
    /// a server connection, and that goes to another client after each transaction.
    ///
    /// ```no_run
    /// # backstop_testkit::suite::block_on(async {
    /// let Some(database) = backstop_testkit::servers::postgres().await else { return };
    /// let Some(url) = database.pooled_url().await else { return };
    /// println!("connect to {url} as a client of the pool, or straight to {}", database.url());
    /// # });
    /// ```
    pub async fn pooled_url(&self) -> Option<String> {
        let pooler = SERVICE.answering_place(6432).await?;
        Some(url::with_database(&pooler, self.name()))
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection as _, PgConnection, Row as _, raw_sql};

    use crate::servers::postgres;

    const SERVER_CONNECTION: &str = "SELECT pg_backend_pid()::text";
    const CONNECTIONS: &str =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'";
    const DATABASES: &str = "SELECT count(*) FROM pg_database WHERE datname = $1";

    /// Asks in the simple protocol, since prepared statements are what such a pool does not keep.
    async fn ask(client: &mut PgConnection, sql: &'static str) -> String {
        raw_sql(sql).fetch_one(client).await.unwrap().get(0)
    }

    async fn tell(client: &mut PgConnection, sql: &'static str) {
        raw_sql(sql).execute(client).await.unwrap();
    }

    async fn count(server: &mut PgConnection, sql: &'static str, database: &str) -> i64 {
        sqlx::query_scalar(sql).bind(database).fetch_one(server).await.unwrap()
    }

    #[tokio::test]
    async fn clients_of_the_pool_share_server_connections_from_transaction_to_transaction() {
        let Some(database) = postgres().await else { return };
        let Some(url) = database.pooled_url().await else { return };
        let mut one = PgConnection::connect(&url).await.unwrap();
        let mut two = PgConnection::connect(&url).await.unwrap();
        assert_eq!(ask(&mut one, "SELECT current_database()::text").await, database.name());

        let shared = ask(&mut one, SERVER_CONNECTION).await;
        assert_eq!(ask(&mut two, SERVER_CONNECTION).await, shared);
        tell(&mut one, "SET lock_timeout = '1234ms'").await;
        assert_eq!(ask(&mut two, "SHOW lock_timeout").await, "1234ms");

        tell(&mut one, "BEGIN").await;
        assert_eq!(ask(&mut one, SERVER_CONNECTION).await, shared);
        assert_ne!(ask(&mut two, SERVER_CONNECTION).await, shared);
        assert_eq!(ask(&mut two, "SHOW lock_timeout").await, "0");
        tell(&mut one, "COMMIT").await;
    }

    #[tokio::test]
    async fn a_database_is_dropped_though_the_pool_still_holds_connections_to_it() {
        let Some(database) = postgres().await else { return };
        let Some(url) = database.pooled_url().await else { return };
        let Some(neighbour) = postgres().await else { return };
        let mut client = PgConnection::connect(&url).await.unwrap();
        tell(&mut client, "CREATE TABLE t (a INT)").await;
        client.close().await.unwrap();

        let mut server = PgConnection::connect(&neighbour.url()).await.unwrap();
        let name = database.name().to_owned();
        assert_eq!(count(&mut server, CONNECTIONS, &name).await, 1);
        drop(database);
        assert_eq!(count(&mut server, CONNECTIONS, &name).await, 0);
        assert_eq!(count(&mut server, DATABASES, &name).await, 0);
    }
}
