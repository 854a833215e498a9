//! One run: starts the nodes, lets everything happen that the plan says, waits for quiet, and asks the judge.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_testkit::servers::{self, Directory};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::arena::Arena;
use crate::history::{Change, Fault, History, Kind, Micros};
use crate::judge::{Verdict, judge};
use crate::plan::{Act, Plan, Settings};
use crate::seed::Seed;
use crate::support::PATIENCE;
use crate::support::clock::{Clocks, MovedClock};
use crate::support::node::{self, Node, now};

/// How long everything has to come to rest after the last fault, beside the time that claims last.
const QUIET: Duration = Duration::from_secs(30);

/// How often the database is asked how quickly it answers.
const PROBE_EVERY: Duration = Duration::from_millis(100);

/// A run that is over.
pub(crate) struct Run {
    pub(crate) plan: Plan,
    pub(crate) history: History,
    pub(crate) verdict: Verdict,
    pub(crate) took: Duration,
}

impl Run {
    /// `None` where the server is missing, and then the test is marked as skipped.
    pub(crate) async fn of(seed: Seed) -> Option<Self> {
        let begun = Instant::now();
        let plan = Plan::new(seed);
        let stage = Arc::new(Stage::set(&plan).await?);
        let mut nodes = Vec::new();
        let mut actors = JoinSet::new();
        for number in 0..plan.settings.nodes {
            let (acts, inbox) = mpsc::unbounded_channel();
            let actor = Actor { number, life: 1, transactions: 0, stage: stage.clone() };
            actors.spawn(actor.play(inbox));
            nodes.push(acts);
        }
        let mut probing = JoinSet::new();
        probing.spawn(stage.clone().probe());
        stage.play(&plan, &nodes).await;
        // Each actor ends what it is at, and waits for its transactions.
        drop(nodes);
        let last: Vec<Node> = actors.join_all().await;
        stage.until_quiet().await;
        drop(probing);
        for node in last {
            // What was not finished is the judge's to find.
            let _ = node.close().await;
        }
        let history = stage.history().await;
        let verdict = judge(&history);
        Some(Self { plan, history, verdict, took: begun.elapsed() })
    }
}

/// What all that play in a run share.
struct Stage {
    plan: Plan,
    arena: Arena,
    /// Where the processes write things down.
    folder: PathBuf,
    /// The machine's wall clock at the zero of its monotonic clock.
    epoch: Micros,
    clocks: Vec<Option<MovedClock>>,
    faults: Mutex<Vec<Fault>>,
    /// The library that moves clocks, and the folder unless it is kept.
    _belongings: (Option<Clocks>, Directory),
}

impl Stage {
    async fn set(plan: &Plan) -> Option<Self> {
        let arena = Arena::open(plan.seed.database).await?;
        let moved = plan.clocks.iter().any(Option::is_some);
        let library = if moved { Some(Clocks::make()?) } else { None };
        let clock = |(number, off): (usize, &Option<i64>)| {
            Some(library.as_ref()?.off_by(&format!("node-{number}"), (*off)?))
        };
        let clocks = plan.clocks.iter().enumerate().map(clock).collect();
        let ticks = clock_gettime(ClockId::Monotonic);
        let directory = servers::directory();
        let kept = std::env::var_os("BACKSTOP_TORTURE_KEEP")
            .map(|kept| PathBuf::from(kept).join(plan.seed.to_string()));
        let folder = kept.unwrap_or_else(|| directory.path().to_owned());
        fs::create_dir_all(&folder).unwrap();
        Some(Self {
            plan: plan.clone(),
            arena,
            folder,
            epoch: now() - ticks.tv_sec * 1_000_000 - ticks.tv_nsec / 1_000,
            clocks,
            faults: Mutex::default(),
            _belongings: (library, directory),
        })
    }

    /// Lets things happen at their times. What concerns a node is told to its actor, the rest is done here.
    async fn play(self: &Arc<Self>, plan: &Plan, nodes: &[mpsc::UnboundedSender<Act>]) {
        let begun = Instant::now();
        let mut strangers = JoinSet::new();
        for (at, act) in &plan.acts {
            sleep_until(begun + Duration::from_millis(*at)).await;
            match *act {
                Act::Lock { dead, rows, length } => {
                    let stage = self.clone();
                    strangers.spawn(async move {
                        let from = now();
                        stage.arena.lock(dead, rows, Duration::from_millis(length)).await;
                        stage.note(Kind::Locked, None, from);
                    });
                }
                Act::MoveClock { node, seconds } => {
                    if let Some(clock) = &self.clocks[node] {
                        clock.set(seconds);
                        self.note(Kind::ClockMoved, None, now());
                    }
                }
                Act::Transact { node, .. }
                | Act::Kill { node, .. }
                | Act::Close { node, .. }
                | Act::Stop { node, .. }
                | Act::EndSessions { node }
                | Act::Hog { node, .. }
                | Act::Replay { node } => {
                    // One whose actor has failed is told of when the actors are awaited.
                    let _ = nodes[node].send(act.clone());
                }
            }
        }
        strangers.join_all().await;
    }

    fn note(&self, kind: Kind, life: Option<&str>, from: Micros) {
        let fault = Fault { kind, life: life.map(str::to_owned), from, until: now() };
        self.faults.lock().unwrap().push(fault);
    }

    /// Writes down when the database took long to answer.
    async fn probe(self: Arc<Self>) {
        loop {
            let from = now();
            self.arena.probe().await;
            if now() - from >= self.tolerated() {
                self.note(Kind::Stalled, None, from);
            }
            sleep(PROBE_EVERY).await;
        }
    }

    /// A renewal comes each third of a claim's time; half of that is no reason to lose it.
    fn tolerated(&self) -> Micros {
        let Settings { hot_grace, claim_timeout, .. } = self.plan.settings;
        micros(hot_grace.min(claim_timeout)) / 6
    }

    /// Waits until nothing waits any more, and not longer than that may take.
    async fn until_quiet(&self) {
        let Settings { claim_timeout, interval, retry, max_attempts, .. } = self.plan.settings;
        let patience = QUIET + Duration::from_millis(2 * claim_timeout + interval + 2 * retry * max_attempts);
        let until = Instant::now() + patience;
        while self.arena.waiting().await > 0 && Instant::now() < until {
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn history(&self) -> History {
        let mut history = History {
            mode: self.plan.seed.mode,
            deletes_done: self.plan.settings.delete_done,
            max_attempts: self.plan.settings.max_attempts.cast_signed(),
            claim_timeout: micros(self.plan.settings.claim_timeout),
            tolerated: self.tolerated(),
            events: std::collections::BTreeMap::new(),
            faults: self.faults.lock().unwrap().clone(),
            not_begun: 0,
        };
        history.read(&self.folder);
        let changes: Vec<(String, Change)> = self.arena.changes().await;
        for (id, change) in changes {
            history.events.entry(id).or_default().changes.push(change);
        }
        for (id, row) in self.arena.rows().await {
            history.events.entry(id).or_default().row = Some(row);
        }
        history
    }
}

/// One node through all its lives.
struct Actor {
    number: usize,
    life: usize,
    transactions: u64,
    stage: Arc<Stage>,
}

impl Actor {
    /// Does what it is told, one thing after another, and leaves a node that rests.
    async fn play(mut self, mut inbox: mpsc::UnboundedReceiver<Act>) -> Node {
        let mut node = self.start().await;
        while let Some(act) = inbox.recv().await {
            let (name, from) = (node.settings.name.clone(), now());
            match act {
                Act::Transact { script, .. } => {
                    let number = self.next_number();
                    node.say(format!("transact {number} {script}")).await;
                }
                Act::Replay { .. } => node.say("replay").await,
                Act::Kill { away, .. } => {
                    node.kill().await;
                    self.stage.note(Kind::Killed, Some(&name), from);
                    node = self.again(away).await;
                }
                Act::Close { away, .. } => {
                    // What its handlers did not finish is for the next one.
                    let _ = node.close().await;
                    self.stage.note(Kind::Closed, Some(&name), from);
                    node = self.again(away).await;
                }
                Act::Stop { length, .. } => {
                    node.stop().await;
                    sleep(Duration::from_millis(length)).await;
                    node.wake().await;
                    self.stage.note(Kind::Stopped, Some(&name), from);
                }
                Act::EndSessions { .. } => {
                    let known = self.stage.arena.knows_sessions(self.stage.plan.settings.pooled);
                    let whose = known.then_some(&*name);
                    self.stage.arena.end_sessions(whose).await;
                    self.stage.note(Kind::SessionsEnded, whose, from);
                }
                Act::Hog { length, .. } => {
                    node.say(format!("hog {}", self.stage.plan.settings.pool)).await;
                    node.hear("hogged").await;
                    sleep(Duration::from_millis(length)).await;
                    node.say("free").await;
                    self.stage.note(Kind::Hogged, Some(&name), from);
                }
                Act::Lock { .. } | Act::MoveClock { .. } => {}
            }
        }
        node.say("rest").await;
        node.hear("resting").await;
        node
    }

    async fn again(&mut self, away: u64) -> Node {
        sleep(Duration::from_millis(away)).await;
        self.life += 1;
        self.start().await
    }

    /// Starts it, again and again if it cannot yet, as whoever looks after services would: a database may be locked, or
    /// not have noticed that the process before is gone.
    async fn start(&self) -> Node {
        let (settings, until) = (self.settings(), Instant::now() + PATIENCE);
        loop {
            let mut node = settings.clone().spawn();
            if node.listen_for("ready").await.is_some() {
                return node;
            }
            let (name, complaints) = (&settings.name, settings.complaints());
            assert!(Instant::now() < until, "{name} cannot start:\n{complaints}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn settings(&self) -> node::Settings {
        let Stage { plan, arena, folder, epoch, clocks, .. } = &*self.stage;
        let Settings { pooled, lock_timeout, statement_timeout, .. } = plan.settings;
        let name = format!("n{}-{}", self.number, self.life);
        let millis = Duration::from_millis;
        let mut settings = node::Settings {
            interval: millis(plan.settings.interval),
            claim_timeout: millis(plan.settings.claim_timeout),
            hot_grace: millis(plan.settings.hot_grace),
            workers: plan.settings.workers,
            hot_queue: plan.settings.queue,
            cold_queue: plan.settings.queue,
            ..node::Settings::new(&name, &arena.url(&name, pooled), folder.clone())
        }
        .flag("--mode", plan.seed.mode.name())
        .flag("--batch-size", plan.settings.batch_size)
        .flag("--pool", plan.settings.pool)
        .flag("--transactions", plan.settings.transactions)
        .flag("--max-attempts", plan.settings.max_attempts)
        .flag("--retry-ms", plan.settings.retry)
        .flag("--drain-ms", plan.settings.drain)
        .flag("--epoch", epoch);
        if let Some(age) = plan.settings.purge {
            settings = settings.flag("--purge-ms", age);
        }
        let session = arena.timeouts(lock_timeout, statement_timeout);
        // A pooler would give such sessions to others.
        if !session.is_empty() && !pooled {
            settings = settings.flag("--session", session);
        }
        for (flag, set) in [("--pooled", pooled), ("--delete-done", plan.settings.delete_done)] {
            settings.flags.extend(set.then(|| flag.to_owned()));
        }
        if let Some(clock) = &clocks[self.number] {
            settings = clock.of(settings);
        }
        settings
    }

    /// Numbers of transactions are those of the run, whichever life they fall into.
    fn next_number(&mut self) -> u64 {
        self.transactions += 1;
        self.transactions
    }
}

fn micros(millis: u64) -> Micros {
    millis.cast_signed() * 1_000
}
