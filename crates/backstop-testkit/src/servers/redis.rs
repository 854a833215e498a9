//! A prefix of its own for each test's keys in Redis.

use super::name;
use super::service::Service;

const SERVICE: Service = Service { label: "Redis", folder: "redis", variable: "BACKSTOP_TEST_REDIS_URL" };

/// A part of a Redis server that nobody else uses: all keys with a prefix of its own.
///
/// Keys are not removed, since that would need a client; give them a time to live.
///
/// ```no_run
/// # backstop_testkit::suite::block_on(async {
/// let Some(redis) = backstop_testkit::servers::redis().await else { return };
/// println!("connect to {} and write {}", redis.url(), redis.key("lock"));
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct RedisSpace {
    url: String,
    prefix: String,
}

/// Finds the server of `BACKSTOP_TEST_REDIS_URL`; `None` if there is none, and then the test is marked as
/// [skipped](crate::skip()).
pub async fn redis() -> Option<RedisSpace> {
    let url = SERVICE.answering_place(6379).await?;
    Some(RedisSpace { url, prefix: format!("{}:", name::fresh(':')) })
}

impl RedisSpace {
    /// The address for a client.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What every key begins with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The key of that name.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;
    use crate::url;

    #[tokio::test]
    async fn a_redis_answers_there_and_each_test_has_keys_of_its_own() {
        let (Some(one), Some(two)) = tokio::join!(redis(), redis()) else { return };
        assert_ne!(one.prefix(), two.prefix());
        assert_ne!(one.key("lock"), two.key("lock"));

        let mut server = TcpStream::connect(url::address(one.url(), 6379)).await.unwrap();
        server.write_all(b"PING\r\n").await.unwrap();
        let mut first = [0];
        server.read_exact(&mut first).await.unwrap();
        // `+PONG`, or `-NOAUTH` from a server that wants a password first.
        assert!(matches!(&first, b"+" | b"-"), "{first:?}");
    }
}
