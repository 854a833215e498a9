//! Wake-ups by `LISTEN` and `NOTIFY`.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, PgExecutor, PgPool, Row, raw_sql};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::WakeUps;
use crate::{BoxFuture, Error, TableName};

/// How long our own wake-up may take to arrive before we conclude that none does.
const PROBE: Duration = Duration::from_secs(3);

/// A connection that has been silent for this long is asked whether it is still there, and must answer.
const SILENT: Duration = Duration::from_secs(30);
const ANSWER: Duration = Duration::from_secs(5);

/// The channel of one table.
///
/// Its statements are simple ones, so that a wake-up passes a pooler that shares connections. Listening
/// needs a connection of its own; behind such a pooler nothing arrives, which is noticed.
pub(crate) struct Channel {
    /// Its two connections, one to send and one to listen, are its own: neither is missed in the user's pool.
    options: PgConnectOptions,
    /// The connection that sends, and the channel's name. One that is given up in the middle is dropped, and the
    /// next wake-up opens another.
    sending: Mutex<Option<(PgConnection, String)>>,
    /// An expression for its name: the table's, wherever the search path finds it.
    name: String,
}

impl Channel {
    pub(crate) fn new(pool: &PgPool, table: &TableName) -> Self {
        // A table's name is a plain identifier, so it can stand in a text.
        let name = format!(
            "'backstop_' || md5(coalesce((select n.nspname || '.' || c.relname from pg_class c \
             join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass('{table}')), '{table}'))"
        );
        Self { options: (*pool.connect_options()).clone(), sending: Mutex::default(), name }
    }

    async fn notify(&self, payload: &str) -> Result<(), sqlx::Error> {
        let mut sending = self.sending.lock().await;
        let (mut connection, name) = if let Some(ready) = sending.take() {
            ready
        } else {
            let mut connection = PgConnection::connect_with(&self.options).await?;
            let name = self.ask_name(&mut connection).await?;
            (connection, name)
        };
        // Cheap on purpose: it runs about as often as transactions commit.
        let notify = format!("NOTIFY \"{name}\", '{payload}'");
        raw_sql(AssertSqlSafe(notify)).execute(&mut connection).await?;
        *sending = Some((connection, name));
        Ok(())
    }

    async fn ask_name(&self, connection: impl PgExecutor<'_>) -> Result<String, sqlx::Error> {
        let ask = raw_sql(AssertSqlSafe(format!("select {}", self.name)));
        ask.fetch_one(connection).await?.try_get_unchecked(0)
    }

    async fn subscribe(&self) -> Result<PgListener, sqlx::Error> {
        // A pool for this session alone: one that was swallowed must not be in the way of the next.
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .acquire_timeout(ANSWER)
            .connect_lazy_with(self.options.clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        let name = self.ask_name(&mut listener).await?;
        listener.listen(&name).await?;
        Ok(listener)
    }

    /// Listens and calls, until the connection breaks.
    async fn hear(&self, heard: &(dyn Fn() + Send + Sync)) -> Result<(), sqlx::Error> {
        let silent = |_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
        let mut listener = timeout(ANSWER, self.subscribe()).await.map_err(silent)??;
        // Behind a pooler it may arrive at whoever sends, who does not expect it.
        match timeout(ANSWER, self.notify("hello")).await.map_err(silent)? {
            Err(sqlx::Error::Protocol(_)) => return Err(pooled()),
            sent => sent?,
        }
        // Whoever sent it: one that arrives shows that they do.
        if timeout(PROBE, listener.try_recv()).await.map_err(|_| pooled())??.is_none() {
            return Err(sqlx::Error::Io(std::io::ErrorKind::UnexpectedEof.into()));
        }
        heard();
        loop {
            match timeout(SILENT, listener.try_recv()).await {
                Ok(Ok(Some(_))) => heard(),
                Ok(Ok(None)) => return Err(sqlx::Error::Io(std::io::ErrorKind::UnexpectedEof.into())),
                Ok(Err(error)) => return Err(error),
                Err(_) => match timeout(ANSWER, listener.execute(raw_sql("select 1"))).await {
                    Ok(answer) => answer.map(|_| ())?,
                    Err(_) => return Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
                },
            }
        }
    }
}

fn pooled() -> sqlx::Error {
    let why = "no wake-up arrives, which is what happens behind a pooler that shares connections between \
               transactions; if there is one, set `behind_pooler` (in a settings file `database.behind-pooler: \
               true`)";
    sqlx::Error::Protocol(why.to_owned())
}

impl WakeUps for Channel {
    fn send(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { self.notify("").await.map_err(Error::database("waking other nodes")) })
    }

    fn listen<'a>(&'a self, heard: &'a (dyn Fn() + Send + Sync)) -> BoxFuture<'a, Error> {
        Box::pin(async move {
            let broken = self.hear(heard).await.err();
            let broken = broken.unwrap_or(sqlx::Error::PoolClosed);
            Error::Database { doing: "listening for wake-ups", source: broken }
        })
    }
}

#[cfg(test)]
mod tests {
    use backstop_testkit::servers::postgres;

    use super::*;

    #[tokio::test]
    async fn listening_through_a_pooler_is_noticed_to_be_in_vain() {
        let Some(database) = postgres().await else { return };
        let Some(url) = database.pooled_url().await else { return };
        let pool = PgPoolOptions::new().connect(&url).await.unwrap();
        let channel = Channel::new(&pool, &TableName::default());
        let broken = channel.listen(&|| panic!("nothing can be heard here")).await;
        assert!(broken.to_string().contains("behind a pooler"), "{broken}");
    }

    #[tokio::test]
    async fn tables_of_the_same_name_in_two_schemas_have_two_channels() {
        let Some(database) = postgres().await else { return };
        let mut names = Vec::new();
        for schema in ["one", "two"] {
            let pool = database.pool().await;
            let made = format!("create schema {schema}; create table {schema}.outbox_event ()");
            raw_sql(AssertSqlSafe(made)).execute(&pool).await.unwrap();
            let options = (*pool.connect_options()).clone().options([("search_path", schema)]);
            let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
            let channel = Channel::new(&pool, &TableName::default());
            let name = raw_sql(AssertSqlSafe(format!("select {}", channel.name)));
            names.push(name.fetch_one(&pool).await.unwrap().get::<String, _>(0));
        }
        assert!(names.iter().all(|name| name.starts_with("backstop_")));
        assert_ne!(names[0], names[1]);
    }
}
