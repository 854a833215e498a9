//! The checker: compares the table and its audit with what the nodes wrote down. It uses nothing of the outbox.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// A row as plain SQL sees it: id, status, the payload's text, and the number of its last claim.
pub(crate) type Row = (String, i16, String, i64);

/// A row that ended: id, the session that ended it, the owner of its claim at that moment, and the status.
pub(crate) type Settled = (String, String, Option<String>, i16);

/// A handler that was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// In microseconds.
    pub(crate) at: i64,
    pub(crate) node: String,
    payload: String,
}

pub(crate) struct Ledger {
    rows: HashMap<String, (i16, String)>,
    settled: Vec<Settled>,
    deliveries: HashMap<String, Vec<Delivery>>,
    accepted: Vec<String>,
    unsure: Vec<String>,
}

impl Ledger {
    pub(crate) fn read(rows: Vec<Row>, settled: Vec<Settled>, folder: &Path) -> Self {
        let rows = rows.into_iter().map(|(id, status, payload, _)| (id, (status, payload))).collect();
        let (mut accepted, mut unsure) = (Vec::new(), Vec::new());
        let mut deliveries: HashMap<String, Vec<Delivery>> = HashMap::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let node = path.file_stem().unwrap().to_string_lossy().into_owned();
            let text = || fs::read_to_string(&path).unwrap();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("accepted") => accepted.extend(text().lines().map(str::to_owned)),
                Some("unsure") => unsure.extend(text().lines().map(str::to_owned)),
                Some("delivered") => {
                    for line in text().lines() {
                        let (id, delivery) = Delivery::read(line, &node);
                        deliveries.entry(id).or_default().push(delivery);
                    }
                }
                _ => {}
            }
        }
        for all in deliveries.values_mut() {
            all.sort_by_key(|delivery| delivery.at);
        }
        Self { rows, settled, deliveries, accepted, unsure }
    }

    /// Nothing is lost, and nothing came out of nowhere: what was accepted is in the table, every row is done,
    /// each was delivered byte for byte, and nothing else was.
    pub(crate) fn assert_conserved(&self, rows_at_least: usize) {
        assert!(self.rows.len() >= rows_at_least, "{} rows, not {rows_at_least}", self.rows.len());
        let lost = self.accepted.iter().filter(|id| !self.rows.contains_key(*id)).count();
        assert_eq!(lost, 0, "events whose commit was acknowledged are not in the table");
        for (id, (status, payload)) in &self.rows {
            assert_eq!(*status, 1, "{id} is not done");
            let deliveries = self.deliveries.get(id).unwrap_or_else(|| panic!("{id} was not delivered"));
            for delivery in deliveries {
                assert_eq!(delivery.payload, *payload, "{id} has another payload");
            }
        }
        let unknown = self.deliveries.keys().find(|id| !self.rows.contains_key(*id));
        assert_eq!(unknown, None, "delivered, and not in the table");
    }

    /// Nobody settled what was not theirs: each row ended once, in a session of the node that had the claim, and
    /// that node had handled the event.
    pub(crate) fn assert_settled_by_owners(&self) {
        let mut ended = HashSet::new();
        for (id, session, owner, status) in &self.settled {
            assert_eq!(owner.as_deref(), Some(&**session), "{id} was settled by another node than its owner");
            assert_eq!(*status, 1, "{id}");
            assert!(ended.insert(id), "{id} ended twice");
            let handled = self.deliveries.get(id).is_some_and(|all| all.iter().any(|d| d.node == *session));
            assert!(handled, "{session} settled {id} and never handled it");
        }
        assert_eq!(ended.len(), self.rows.len(), "rows that ended without the audit seeing it");
    }

    /// How many deliveries were repetitions.
    pub(crate) fn duplicates(&self) -> usize {
        self.deliveries.values().map(|all| all.len() - 1).sum()
    }

    pub(crate) fn assert_duplicates_within(&self, in_flight: usize) {
        let duplicates = self.duplicates();
        assert!(duplicates <= in_flight, "{duplicates} duplicates, and {in_flight} can have been in flight");
    }

    /// Events of which no commit was acknowledged although it happened, and those where it did not.
    pub(crate) fn unsure(&self) -> (usize, usize) {
        let kept = self.unsure.iter().filter(|id| self.rows.contains_key(*id)).count();
        (kept, self.unsure.len() - kept)
    }

    /// The deliveries by one node.
    pub(crate) fn handled_by(&self, node: &str) -> usize {
        self.deliveries.values().flatten().filter(|delivery| delivery.node == node).count()
    }

    /// How many of these events a node handled after a moment.
    pub(crate) fn handled_after(&self, node: &str, since: i64, ids: &[String]) -> usize {
        let deliveries = ids.iter().filter_map(|id| self.deliveries.get(id)).flatten();
        deliveries.filter(|delivery| delivery.node == node && delivery.at >= since).count()
    }

    /// What a node left behind was delivered by others in time. What its last words settled after all, in the
    /// database after it was gone, needs no other.
    pub(crate) fn assert_taken_over(&self, left: &[String], since: i64, within: Duration) {
        let by_others = left.iter().filter(|id| self.deliveries[*id].iter().any(|d| d.at >= since));
        let by_others: Vec<_> = by_others.cloned().collect();
        let settled = left.len() - by_others.len();
        let waited = self.longest_wait(&by_others, since);
        println!("{} taken over within {waited:?}, {settled} were settled", by_others.len());
        assert!(waited <= within, "taken over after {waited:?}, not within {within:?}");
    }

    /// How long after a moment the last of these events was first delivered, counting only deliveries after it.
    pub(crate) fn longest_wait(&self, ids: &[String], since: i64) -> Duration {
        let wait = |id: &String| {
            let after = self.deliveries[id].iter().find(|delivery| delivery.at >= since);
            let after = after.unwrap_or_else(|| panic!("{id} was not delivered after the fault"));
            Duration::from_micros(u64::try_from(after.at - since).unwrap())
        };
        ids.iter().map(wait).max().unwrap_or_default()
    }

    /// Something was delivered soon after a moment.
    pub(crate) fn assert_resumed(&self, since: i64, within: Duration) {
        let after = self.deliveries.values().flatten().map(|delivery| delivery.at).filter(|at| *at >= since);
        let first = after.min().expect("a delivery after the fault");
        let waited = Duration::from_micros(u64::try_from(first - since).unwrap());
        println!("resumed after {waited:?}");
        assert!(waited <= within, "nothing was delivered for {waited:?}, not {within:?}");
    }
}

impl Delivery {
    fn read(line: &str, node: &str) -> (String, Self) {
        let mut words = line.splitn(3, ' ');
        let (Some(at), Some(id), Some(payload)) = (words.next(), words.next(), words.next()) else {
            panic!("a torn line in the recording of {node}: {line:?}");
        };
        let (at, node, payload) = (at.parse().unwrap(), node.to_owned(), payload.to_owned());
        (id.to_owned(), Self { at, node, payload })
    }
}
