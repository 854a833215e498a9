//! The seam on sqlx's PostgreSQL connection. Moments are read as the server sends them, microseconds since
//! 2000, because the driver cannot take `infinity`, which some row may hold.

use backstop_core::Timestamp;
use chrono::DateTime;
use sqlx::{PgConnection, Postgres};

use crate::database::connection::sqlx_connection;

sqlx_connection!(
    Postgres, PgConnection,
    write_time: |moment: Timestamp| moment, read_time: read_time,
    write_texts: <[String]>::to_vec,
    write_ints: <[i64]>::to_vec,
    holds_bytes: |_: &sqlx::postgres::PgRow, _: usize| false
);

fn read_time(micros_since_2000: i64) -> Result<Timestamp, String> {
    const FROM_1970_TO_2000: i64 = 946_684_800_000_000;
    micros_since_2000
        .checked_add(FROM_1970_TO_2000)
        .and_then(DateTime::from_timestamp_micros)
        .ok_or_else(|| "a moment outside the calendar, such as infinity".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_keep_their_microseconds_and_infinity_is_refused() {
        assert_eq!(read_time(0), Ok("2000-01-01T00:00:00Z".parse().unwrap()));
        assert_eq!(read_time(86_400_000_001), Ok("2000-01-02T00:00:00.000001Z".parse().unwrap()));
        assert!(read_time(i64::MAX).is_err() && read_time(i64::MIN).is_err());
    }
}
