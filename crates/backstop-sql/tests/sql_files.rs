//! The files in `docs/sql` are the migrations as the code renders them for the default table.
//!
//! `UPDATE_SQL_FILES=1 cargo test -p backstop-sql --all-features --test sql_files` rewrites them.

#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]

use std::fs;
use std::path::Path;

use backstop_sql::TableName;
use backstop_sql::store::DatabaseKind;

fn compare(file: &str, kind: DatabaseKind) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sql").join(file);
    let rendered = kind.migrations(&TableName::default()).unwrap();
    if std::env::var_os("UPDATE_SQL_FILES").is_some_and(|value| value == "1") {
        fs::write(&path, &rendered).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == rendered,
        "docs/sql/{file} differs from the migrations; run this test with UPDATE_SQL_FILES=1"
    );
}

#[test]
fn the_file_for_postgres_is_what_the_code_renders() {
    compare("postgres.sql", DatabaseKind::Postgres);
}

#[test]
fn the_file_for_mysql_is_what_the_code_renders() {
    compare("mysql.sql", DatabaseKind::Mysql);
}

#[test]
fn the_file_for_sqlite_is_what_the_code_renders() {
    compare("sqlite.sql", DatabaseKind::Sqlite);
}
