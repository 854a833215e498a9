//! What a person reads: a line for each run, and what to act on.

use std::collections::BTreeMap;
use std::fmt;

use crate::history::micros_as_seconds;
use crate::judge::{Class, Counts};
use crate::run::Run;
use crate::seed::Seed;

/// At most so many violations of a run that are alike are told with their whole history, and so many in all.
const TOLD_ALIKE: usize = 2;
const TOLD: usize = 20;

/// Several runs.
#[derive(Debug, Default)]
pub(crate) struct Report {
    runs: usize,
    events: usize,
    faults: usize,
    counts: Counts,
    violations: BTreeMap<Class, usize>,
    /// The seeds that broke a promise, with what it was.
    complaints: Vec<String>,
}

impl Report {
    /// Tells of a run, and remembers it.
    pub(crate) fn add(&mut self, run: &Run) {
        let (verdict, plan) = (&run.verdict, &run.plan);
        let (counts, faults) = (verdict.counts, plan.faults());
        println!(
            "{:<22} {:?}: {} events, {} rolled back, {} calls, {} asked for again, {} repeats explained by {} \
             faults and {} stalls, {} transactions that did not begin, {} violations, {:.0} s",
            plan.seed,
            plan.weather,
            run.history.events.len(),
            counts.rolled_back,
            counts.calls,
            counts.asked_again,
            counts.explained,
            faults,
            run.history.stalls(),
            run.history.not_begun,
            verdict.violations.len(),
            run.took.as_secs_f64(),
        );
        self.runs += 1;
        self.events += run.history.events.len();
        self.faults += faults;
        self.counts.add(&counts);
        let mut broken: BTreeMap<Class, usize> = BTreeMap::new();
        let mut told: BTreeMap<&str, usize> = BTreeMap::new();
        for violation in &verdict.violations {
            *self.violations.entry(violation.class).or_default() += 1;
            *broken.entry(violation.class).or_default() += 1;
            let alike = told.entry(&violation.what).or_default();
            *alike += 1;
            if *alike <= TOLD_ALIKE && told.len() <= TOLD {
                let story = &run.history.events[&violation.event];
                print!("{}: {violation}\n{story}{}", plan.seed, run.faults_near(&violation.event));
            }
        }
        if !broken.is_empty() {
            self.complaints.push(format!("{}: {broken:?}", plan.seed));
        }
    }

    /// A run that did not come to its end.
    pub(crate) fn add_broken(&mut self, seed: Seed, why: &str) {
        println!("{seed:<22} broke: {why}");
        self.runs += 1;
        self.complaints.push(format!("{seed} broke: {why}"));
    }

    pub(crate) fn and(mut self, other: Self) -> Self {
        self.runs += other.runs;
        self.events += other.events;
        self.faults += other.faults;
        self.counts.add(&other.counts);
        for (class, count) in other.violations {
            *self.violations.entry(class).or_default() += count;
        }
        self.complaints.extend(other.complaints);
        self
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.complaints.is_empty()
    }

    pub(crate) fn complaints(&self) -> String {
        let seeds = self.complaints.join("\n");
        format!(
            "promises were broken, as told above; take one again with BACKSTOP_TORTURE_SEED=<seed>\n{seeds}\n{self}"
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { committed, rolled_back, calls, asked_again, explained } = self.counts;
        write!(
            f,
            "{} runs: {} events, {committed} committed, {rolled_back} rolled back, {calls} calls, {asked_again} asked \
             for again, {explained} repeats explained, {} faults, violations: {:?}",
            self.runs, self.events, self.faults, self.violations
        )
    }
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.calls += other.calls;
        self.asked_again += other.asked_again;
        self.explained += other.explained;
    }
}

impl Run {
    /// The faults of the time in which something happened to an event.
    fn faults_near(&self, event: &str) -> String {
        let story = &self.history.events[event];
        let moments = story.calls.iter().map(|call| call.begun).chain(story.changes.iter().map(|it| it.at));
        let (first, last) = (moments.clone().min().unwrap_or(0), moments.max().unwrap_or(0));
        let near = self.history.faults.iter().filter(|fault| fault.until >= first && fault.from <= last);
        let near = near.filter(|fault| {
            !fault.kind.may_be_tolerated() || fault.until - fault.from >= self.history.tolerated
        });
        let line = |fault: &crate::history::Fault| {
            let (from, length) = (micros_as_seconds(fault.from - first), fault.until - fault.from);
            let whose = fault.life.as_deref().unwrap_or("all");
            format!("      {from:>9.3} s  {:?} {whose} for {:.3} s\n", fault.kind, micros_as_seconds(length))
        };
        near.map(line).collect()
    }
}
