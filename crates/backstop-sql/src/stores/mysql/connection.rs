//! The seam on sqlx's MySQL connection. Moments are DATETIME in UTC, which no time zone of a session shifts.

use backstop_core::Timestamp;
use chrono::NaiveDateTime;
use sqlx::{MySql, MySqlConnection};

use crate::database::connection::sqlx_connection;

sqlx_connection!(
    MySql, MySqlConnection,
    write_time: |moment: Timestamp| moment.naive_utc(), read_time: read_time,
    write_texts: |_: &[String]| None::<String>, // never bound: MySQL has no arrays
    write_ints: |_: &[i64]| None::<i64>,
    holds_bytes: |_: &sqlx::mysql::MySqlRow, _: usize| false
);

#[expect(clippy::unnecessary_wraps, reason = "others can fail")]
fn read_time(stored: NaiveDateTime) -> Result<Timestamp, String> {
    Ok(stored.and_utc())
}
