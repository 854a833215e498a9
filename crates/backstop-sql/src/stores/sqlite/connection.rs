//! The seam on sqlx's SQLite connection. SQLite has no type for moments: they are text, in UTC, as
//! `2030-01-31 12:00:00.000000`, which sorts by time.

use backstop_core::Timestamp;
use chrono::NaiveDateTime;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, Sqlite, SqliteConnection, TypeInfo as _, ValueRef as _};

use crate::database::connection::sqlx_connection;

sqlx_connection!(
    Sqlite, SqliteConnection,
    write_time: write_time, read_time: read_time,
    write_texts: |_: &[String]| None::<String>, // never bound: SQLite has no arrays
    write_ints: |_: &[i64]| None::<i64>,
    holds_bytes: holds_bytes
);

/// A column of texts takes bytes here, and no text is equal to them.
fn holds_bytes(row: &SqliteRow, index: usize) -> bool {
    let value = row.try_get_raw(index);
    value.is_ok_and(|value| !value.is_null() && value.type_info().name() == "BLOB")
}

pub(crate) fn write_time(moment: Timestamp) -> String {
    moment.format("%Y-%m-%d %H:%M:%S%.6f").to_string()
}

/// Also reads what others write: without a fraction, with `T`, or with `Z`.
#[expect(clippy::needless_pass_by_value, reason = "it is called with what a column holds")]
pub(crate) fn read_time(text: String) -> Result<Timestamp, String> {
    let plain = text.trim_end_matches('Z').replace('T', " ");
    NaiveDateTime::parse_from_str(&plain, "%Y-%m-%d %H:%M:%S%.f")
        .map(|moment| moment.and_utc())
        .map_err(|_| format!("{text:?} is not a moment like 2030-01-31 12:00:00.000000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_keep_their_microseconds_and_sort_as_text() {
        let moment: Timestamp = "2030-01-31T12:00:00.000120Z".parse().unwrap();
        let later: Timestamp = "2030-01-31T12:00:00.100Z".parse().unwrap();
        assert_eq!(write_time(moment), "2030-01-31 12:00:00.000120");
        assert_eq!(read_time(write_time(moment)), Ok(moment));
        assert!(write_time(moment) < write_time(later));
    }

    #[test]
    fn moments_written_by_others_are_read() {
        let noon: Timestamp = "2030-01-31T12:00:00Z".parse().unwrap();
        for text in ["2030-01-31 12:00:00", "2030-01-31T12:00:00Z", "2030-01-31 12:00:00.000"] {
            assert_eq!(read_time(text.to_owned()), Ok(noon), "{text}");
        }
        assert!(read_time("yesterday".to_owned()).is_err());
    }
}
