//! What is known of a run after the fact: what producers wrote down, what handlers wrote down, what the table's audit
//! saw, and which faults there were.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

/// Moments and lengths of time, in microseconds.
pub(crate) type Micros = i64;

/// How events are delivered, as far as it changes what is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Single,
    Multi,
    Ordered,
}

/// Everything about a run.
#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) mode: Mode,
    /// Whether rows are deleted when their events are done.
    pub(crate) deletes_done: bool,
    pub(crate) max_attempts: i64,
    /// How long claims last at most.
    pub(crate) claim_timeout: Micros,
    /// A disturbance that is shorter than this must not make a node lose its claims.
    pub(crate) tolerated: Micros,
    pub(crate) events: BTreeMap<String, Story>,
    pub(crate) faults: Vec<Fault>,
    /// How many transactions could not even begin.
    pub(crate) not_begun: usize,
}

/// One event.
#[derive(Debug, Clone, Default)]
pub(crate) struct Story {
    pub(crate) fate: Fate,
    /// The transaction that appended it, as its node calls it.
    pub(crate) transaction: String,
    pub(crate) committing_at: Option<Micros>,
    pub(crate) committed_at: Option<Micros>,
    /// In the order of their beginnings.
    pub(crate) calls: Vec<Call>,
    /// What the table's audit saw, in its order.
    pub(crate) changes: Vec<Change>,
    /// Its row at the end.
    pub(crate) row: Option<Row>,
}

/// What its transaction was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fate {
    /// No end is known, or an error: both are possible.
    #[default]
    Unsure,
    Committed,
    /// It was rolled back, or the savepoint behind which it was appended.
    RolledBack,
}

/// A call of its handler.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The process: a node has a new name each time it is started.
    pub(crate) life: String,
    pub(crate) begun: Micros,
    pub(crate) ended: Option<(Micros, Answer)>,
}

/// What a handler said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    /// A failure or a panic: tried again as long as there are tries left.
    Failed,
    /// Dead at once.
    Refused,
    Deferred,
}

/// A change of its row, as a trigger saw it.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) at: Micros,
    /// The status before; none for an insert.
    pub(crate) from: Option<i64>,
    /// The status after; none for a deletion.
    pub(crate) to: Option<i64>,
    pub(crate) attempts: i64,
    pub(crate) owner: Option<String>,
    pub(crate) claim: i64,
    pub(crate) created: Micros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) status: i16,
    pub(crate) attempts: i32,
}

pub(crate) const NEW: i64 = 0;
pub(crate) const DONE: i64 = 1;
pub(crate) const RETRY: i64 = 2;
pub(crate) const DEAD: i64 = 3;

/// Something that was done to a process, to the database, or to a row.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// The process that it concerns; all of them if none.
    pub(crate) life: Option<String>,
    pub(crate) from: Micros,
    pub(crate) until: Micros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Killed,
    Closed,
    Stopped,
    SessionsEnded,
    /// A stranger held locks on rows, or the whole of a SQLite file.
    Locked,
    /// The application had every connection of the pool.
    Hogged,
    /// A handler blocked its thread.
    Blocked,
    /// The machine gave a process no time, or the database took long to answer.
    Stalled,
    /// The wall clock of a process jumped.
    ClockMoved,
}

impl Kind {
    /// Whether it is the length that matters: a short one must do no harm.
    pub(crate) fn may_be_tolerated(self) -> bool {
        matches!(self, Self::Stopped | Self::Locked | Self::Hogged | Self::Blocked | Self::Stalled)
    }

    /// Whether it costs a node that lives none of its claims, however long it takes: they are renewed on connections and on
    /// a thread that the application cannot take.
    pub(crate) fn leaves_claims_alone(self) -> bool {
        matches!(self, Self::ClockMoved | Self::SessionsEnded | Self::Hogged | Self::Blocked)
    }
}

impl Story {
    /// Whether a transaction with it was committed, whatever its producer was told.
    pub(crate) fn was_inserted(&self) -> bool {
        self.changes.iter().any(|change| change.from.is_none())
    }

    /// When its row says that it was created.
    pub(crate) fn created(&self) -> Option<Micros> {
        self.changes.iter().find(|change| change.from.is_none()).map(|change| change.created)
    }
}

impl History {
    /// How often the machine or the database kept somebody waiting for long.
    pub(crate) fn stalls(&self) -> usize {
        let long = |fault: &&Fault| fault.kind == Kind::Stalled && fault.until - fault.from >= self.tolerated;
        self.faults.iter().filter(long).count()
    }

    /// Reads what the processes wrote down in a folder. Rows, changes and faults are added to it.
    pub(crate) fn read(&mut self, folder: &Path) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let life = path.file_stem().unwrap().to_string_lossy().into_owned();
            let Some(extension) = path.extension().and_then(|extension| extension.to_str()) else { continue };
            let lines = || fs::read_to_string(&path).unwrap();
            match extension {
                "transactions" => self.read_transactions(&life, &lines()),
                "handled" => self.read_calls(&life, &lines()),
                "stalls" => self.read_stalls(&life, &lines()),
                _ => {}
            }
        }
        for story in self.events.values_mut() {
            story.calls.sort_by_key(|call| call.begun);
        }
    }

    fn read_transactions(&mut self, life: &str, text: &str) {
        let mut open: BTreeMap<String, (Vec<String>, Micros)> = BTreeMap::new();
        let mut last_batch: BTreeMap<String, usize> = BTreeMap::new();
        for (at, words) in text.lines().map(parted) {
            let (what, number) = (words[0], words[1]);
            let (appended, committing_at) = open.entry(number.to_owned()).or_default();
            match (what, &words[2..]) {
                ("append", ids) => {
                    last_batch.insert(number.to_owned(), ids.len());
                    for id in ids {
                        let story = self.events.entry((*id).to_owned()).or_default();
                        story.transaction = format!("{number} of {life}");
                        appended.push((*id).to_owned());
                    }
                }
                ("undone", ids) => {
                    appended.retain(|appended| !ids.contains(&&**appended));
                    for id in ids {
                        self.events.entry((*id).to_owned()).or_default().fate = Fate::RolledBack;
                    }
                }
                // All of a batch is refused, whatever becomes of the rest.
                ("refused", [word, ..]) if word.starts_with('a') => {
                    let kept = appended.len() - last_batch.get(number).copied().unwrap_or_default();
                    for id in appended.drain(kept..) {
                        self.events.entry(id).or_default().fate = Fate::RolledBack;
                    }
                }
                ("not-begun", _) => self.not_begun += 1,
                ("ending", ["c"]) => *committing_at = at,
                ("ended", ["c"]) => {
                    for id in appended {
                        let story = self.events.entry(id.clone()).or_default();
                        story.fate = Fate::Committed;
                        (story.committing_at, story.committed_at) = (Some(*committing_at), Some(at));
                    }
                }
                ("ended", ["r" | "d"]) => {
                    for id in appended {
                        self.events.entry(id.clone()).or_default().fate = Fate::RolledBack;
                    }
                }
                _ => {}
            }
        }
    }

    fn read_calls(&mut self, life: &str, text: &str) {
        let mut blocks: BTreeMap<&str, Micros> = BTreeMap::new();
        let mut calls: BTreeMap<&str, (&str, Call)> = BTreeMap::new();
        for (at, words) in text.lines().map(parted) {
            match words[..] {
                ["begin", number, id, step] => {
                    if step.starts_with('b') {
                        blocks.insert(number, at);
                    }
                    calls.insert(number, (id, Call { life: life.to_owned(), begun: at, ended: None }));
                }
                ["end", number, _, answer] => {
                    let answer = match answer {
                        "d" => Answer::Done,
                        "f" | "p" => Answer::Failed,
                        "u" | "x" => Answer::Refused,
                        _ => Answer::Deferred,
                    };
                    if let Some((_, call)) = calls.get_mut(number) {
                        call.ended = Some((at, answer));
                    }
                    if let Some(from) = blocks.remove(number) {
                        let (kind, life) = (Kind::Blocked, Some(life.to_owned()));
                        self.faults.push(Fault { kind, life, from, until: at });
                    }
                }
                _ => {}
            }
        }
        for (id, call) in calls.into_values() {
            self.events.entry(id.to_owned()).or_default().calls.push(call);
        }
    }

    fn read_stalls(&mut self, life: &str, text: &str) {
        for (at, words) in text.lines().map(parted) {
            let length = words[0].parse::<Micros>().unwrap() * 1_000;
            let (kind, life) = (Kind::Stalled, Some(life.to_owned()));
            self.faults.push(Fault { kind, life, from: at - length, until: at });
        }
    }
}

/// The moment and the words of a line.
fn parted(line: &str) -> (Micros, Vec<&str>) {
    let mut words = line.split_whitespace();
    let at = words.next().and_then(|at| at.parse().ok());
    (at.unwrap_or_else(|| panic!("a torn line: {line:?}")), words.collect())
}

/// What happened to one event, line by line, in the order of time.
impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        if let Some(at) = self.committing_at {
            lines.push((at, "its transaction begins to commit".to_owned()));
        }
        if let Some(at) = self.committed_at {
            lines.push((at, "its transaction was told that it committed".to_owned()));
        }
        for call in &self.calls {
            lines.push((call.begun, format!("{} begins to handle it", call.life)));
            if let Some((at, answer)) = call.ended {
                lines.push((at, format!("{} answers {answer:?}", call.life)));
            }
        }
        for Change { at, from, to, attempts, owner, claim, .. } in &self.changes {
            let status = |status: &Option<i64>| match *status {
                None => "none",
                Some(NEW) => "NEW",
                Some(DONE) => "DONE",
                Some(RETRY) => "RETRY",
                Some(_) => "DEAD",
            };
            let (from, to, owner) = (status(from), status(to), owner.as_deref().unwrap_or("nobody"));
            lines.push((*at, format!("row {from} -> {to}, attempts {attempts}, claim {claim} of {owner}")));
        }
        lines.sort();
        let first = lines.first().map_or(0, |(at, _)| *at);
        writeln!(f, "      {:?}, appended by transaction {}", self.fate, self.transaction)?;
        for (at, line) in lines {
            writeln!(f, "      {:>9.3} s  {line}", micros_as_seconds(at - first))?;
        }
        Ok(())
    }
}

pub(crate) fn micros_as_seconds(micros: Micros) -> f64 {
    std::time::Duration::from_micros(micros.unsigned_abs()).as_secs_f64()
        * if micros < 0 { -1.0 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use backstop_testkit::servers;

    use super::*;

    fn read(files: &[(&str, &str)]) -> History {
        let folder = servers::directory();
        for (name, text) in files {
            fs::write(folder.file(name), text).unwrap();
        }
        let mut history = History {
            mode: Mode::Single,
            deletes_done: false,
            max_attempts: 3,
            claim_timeout: 2_000_000,
            tolerated: 100_000,
            events: BTreeMap::new(),
            faults: Vec::new(),
            not_begun: 0,
        };
        history.read(folder.path());
        history
    }

    #[test]
    fn the_fates_of_events_are_those_of_their_transactions_and_savepoints() {
        let text = "10 begin 1\n11 append 1 kept\n12 append 1 undone both\n13 undone 1 undone both\n14 ending 1 c\n\
                    15 ended 1 c\n16 begin 2\n17 append 2 rolled-back\n18 ending 2 r\n19 ended 2 r\n20 begin 3\n\
                    21 append 3 refused\n22 refused 3 x the database says no\n23 ending 3 c\n24 failed 3 c no\n\
                    25 begin 4\n26 append 4 own\n27 ending 4 c\n28 ended 4 somehow\n29 begin 5\n\
                    30 not-begun 5 no connection\n31 begin 6\n32 append 6 killed\n33 begin 7\n34 append 7 before\n\
                    35 append 7 late later\n36 refused 7 a:d,d took too long\n37 ending 7 c\n38 ended 7 c\n";
        let history = read(&[("n0-1.transactions", text)]);
        let fate = |id: &str| history.events[id].fate;
        assert_eq!([fate("kept"), fate("before")], [Fate::Committed; 2]);
        assert_eq!([fate("late"), fate("later")], [Fate::RolledBack; 2], "a batch that was refused");
        assert_eq!([fate("undone"), fate("both"), fate("rolled-back")], [Fate::RolledBack; 3]);
        assert_eq!([fate("refused"), fate("own"), fate("killed")], [Fate::Unsure; 3]);
        let kept = &history.events["kept"];
        assert_eq!((kept.committing_at, kept.committed_at), (Some(14), Some(15)));
        assert_eq!((kept.transaction.as_str(), history.not_begun), ("1 of n0-1", 1));
    }

    #[test]
    fn calls_are_read_with_their_answers_and_with_what_blocked_or_stood_still() {
        let one = "100 begin 0 e f\n101 end 0 e f\n300 begin 1 e b5+d\n900 end 1 e d\n950 begin 2 other d\n";
        let two = "200 begin 0 e r50\n201 end 0 e r50\n";
        let stalls = "500000 200\n";
        let history =
            read(&[("n0-1.handled", one), ("n1-1.handled", two), ("n1-1.stalls", stalls), ("n0-1.log", "?")]);
        let calls = &history.events["e"].calls;
        let shown: Vec<_> = calls.iter().map(|call| (&*call.life, call.begun, call.ended)).collect();
        let (failed, deferred, done) = (Answer::Failed, Answer::Deferred, Answer::Done);
        assert_eq!(
            shown,
            [
                ("n0-1", 100, Some((101, failed))),
                ("n1-1", 200, Some((201, deferred))),
                ("n0-1", 300, Some((900, done)))
            ]
        );
        assert_eq!(history.events["other"].calls[0].ended, None);
        let mut faults: Vec<_> =
            history.faults.iter().map(|it| (it.life.clone().unwrap(), it.from, it.until)).collect();
        faults.sort();
        assert_eq!(faults, [("n0-1".to_owned(), 300, 900), ("n1-1".to_owned(), 300_000, 500_000)]);
        assert_eq!(history.stalls(), 1);
    }
}
