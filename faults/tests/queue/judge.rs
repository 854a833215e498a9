//! The judge: what the nodes wrote down, against the tables as plain SQL sees them.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use backstop_sql::connection::{Column, Connections};
use backstop_sql::statement::{Marks, Statement, Value};
use backstop_sql::store::DatabaseKind;

/// The two tables, asked in plain SQL.
pub(crate) struct Tables {
    kind: DatabaseKind,
    connections: Arc<dyn Connections>,
}

impl Tables {
    pub(crate) fn new(kind: DatabaseKind, connections: Arc<dyn Connections>) -> Self {
        Self { kind, connections }
    }

    async fn read(&self, text: &str, kinds: &[Column]) -> Vec<Vec<Value>> {
        let marks = if self.kind == DatabaseKind::Postgres { Marks::Dollar } else { Marks::Question };
        let mut statement = Statement::new(marks);
        statement.push(text);
        let mut connection = self.connections.connection().await.unwrap();
        connection.fetch(&statement, kinds).await.unwrap()
    }

    async fn number(&self, text: &str) -> i64 {
        match self.read(text, &[Column::Int]).await[0][0] {
            Value::Int(Some(number)) => number,
            ref other => panic!("{other:?}"),
        }
    }

    /// How many events have not ended.
    pub(crate) async fn waiting(&self) -> i64 {
        self.number("select count(*) from events").await
    }

    /// How many are in somebody's hands.
    pub(crate) async fn processing(&self) -> i64 {
        self.number("select count(*) from events where status = 'PROCESSING'").await
    }

    pub(crate) async fn told(&self) -> String {
        let ended = self.number("select count(*) from event_log").await;
        format!(
            "{} waiting, {} processing, {ended} ended",
            self.waiting().await - self.processing().await,
            self.processing().await
        )
    }
}

/// An event in the log.
struct Ended {
    number: u32,
    status: String,
    attempts: i64,
}

pub(crate) struct Judge {
    left: i64,
    ended: Vec<Ended>,
    /// How often each number was handled.
    handled: HashMap<u32, usize>,
}

impl Judge {
    pub(crate) async fn of(tables: &Tables, folder: &Path) -> Self {
        let rows = tables
            .read(
                "select payload, status, attempts from event_log",
                &[Column::Text, Column::Text, Column::Int],
            )
            .await;
        let ended = rows.into_iter().map(|row| match &row[..] {
            [Value::Text(Some(payload)), Value::Text(Some(status)), Value::Int(Some(attempts))] => {
                Ended { number: data_of(payload), status: status.clone(), attempts: *attempts }
            }
            other => panic!("{other:?}"),
        });
        let ended = ended.collect();
        let mut handled = HashMap::new();
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "handled") {
                for line in std::fs::read_to_string(path).unwrap().lines() {
                    let number = line.split(' ').next().unwrap().parse().unwrap();
                    *handled.entry(number).or_default() += 1;
                }
            }
        }
        Self { left: tables.waiting().await, ended, handled }
    }

    /// Every event is in the log once, those that failed and no others as FAILED; what completed was handled, and nothing else
    /// was.
    pub(crate) fn assert_each_ended_once(&self, expected: &HashSet<u32>, failed: &[u32]) {
        assert_eq!(self.left, 0, "events that have not ended");
        assert_eq!(self.ended.len(), expected.len(), "events in the log");
        let numbers: HashSet<_> = self.ended.iter().map(|ended| ended.number).collect();
        assert_eq!(&numbers, expected, "each once");
        for Ended { number, status, .. } in &self.ended {
            let fails = failed.contains(number);
            assert_eq!(status, if fails { "FAILED" } else { "COMPLETED" }, "{number}");
            assert_eq!(self.handled.contains_key(number), !fails, "{number} was handled");
        }
        let invented: Vec<_> = self.handled.keys().filter(|number| !expected.contains(number)).collect();
        assert!(invented.is_empty(), "handled and never published: {invented:?}");
    }

    pub(crate) fn assert_never_handled(&self, mut numbers: std::ops::Range<u32>) {
        let handled = numbers.find(|number| self.handled.contains_key(number));
        assert_eq!(handled, None, "it was rolled back");
    }

    /// Events were handled again only as often as faults explain.
    pub(crate) fn assert_repeats_within(&self, most: usize) {
        let repeats: usize = self.handled.values().map(|times| times - 1).sum();
        println!("{repeats} repeats");
        assert!(repeats <= most, "{repeats} repeats, and faults explain {most}");
    }

    pub(crate) fn attempts_of(&self, number: u32) -> i64 {
        self.ended.iter().find(|ended| ended.number == number).unwrap().attempts
    }

    pub(crate) fn most_attempts_but(&self, number: u32) -> i64 {
        self.ended.iter().filter(|ended| ended.number != number).map(|ended| ended.attempts).max().unwrap()
    }
}

/// The number that an event's data is.
fn data_of(payload: &str) -> u32 {
    let data = payload.split(r#""data":"#).nth(1).unwrap();
    data.trim().trim_end_matches('}').trim().parse().unwrap()
}
