//! The files in `docs/sql` are the migrations as the code renders them for the default tables.
//!
//! `UPDATE_SQL_FILES=1 cargo test -p backstop-sql --all-features --test sql_files` rewrites them.

#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]

use std::fs;
use std::path::Path;

use backstop_sql::TableName;
use backstop_sql::store::DatabaseKind;

fn compare(file: &str, kind: DatabaseKind) {
    compare_with(file, &kind.migrations(&TableName::default()).unwrap());
    let (events, log) = (TableName::new("events").unwrap(), TableName::new("event_log").unwrap());
    compare_with(&format!("queue-{file}"), &kind.queue_migrations(&events, &log).unwrap());
}

fn compare_with(file: &str, rendered: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sql").join(file);
    if std::env::var_os("UPDATE_SQL_FILES").is_some_and(|value| value == "1") {
        fs::write(&path, rendered).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == rendered,
        "docs/sql/{file} differs from the migrations; run this test with UPDATE_SQL_FILES=1"
    );
}

#[test]
fn the_files_for_postgres_are_what_the_code_renders() {
    compare("postgres.sql", DatabaseKind::Postgres);
}

#[test]
fn the_files_for_mysql_are_what_the_code_renders() {
    compare("mysql.sql", DatabaseKind::Mysql);
}

#[test]
fn the_files_for_sqlite_are_what_the_code_renders() {
    compare("sqlite.sql", DatabaseKind::Sqlite);
}
