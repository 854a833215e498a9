//! What happens in a run, and when: all of it drawn from the seed before anything begins.

use crate::dice::Dice;
use crate::history::Mode;
use crate::seed::{Database, Seed};

/// How long producers are busy.
const LENGTH: u64 = 12_000;

/// How long a producer rests on average between two transactions, if only one is open at a time.
const PAUSE: u64 = 450;

/// A run, before it begins. Times are in milliseconds.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: Seed,
    pub(crate) weather: Weather,
    pub(crate) settings: Settings,
    /// How far the wall clock of each node is off from the start; none where it is left alone.
    pub(crate) clocks: Vec<Option<i64>>,
    /// In the order of time.
    pub(crate) acts: Vec<(u64, Act)>,
}

/// Which faults there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weather {
    /// None: only what producers and handlers do by themselves. Nothing may come twice.
    Calm,
    /// Strangers lock rows, and sessions give up waiting for them.
    Locks,
    /// Processes and sessions end or stand still.
    Storm,
}

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) nodes: usize,
    pub(crate) claim_timeout: u64,
    pub(crate) hot_grace: u64,
    pub(crate) interval: u64,
    pub(crate) batch_size: u64,
    pub(crate) workers: usize,
    pub(crate) queue: usize,
    pub(crate) pool: usize,
    /// How many transactions producers of a node have open at the same time: fewer than the pool has connections, of
    /// which the outbox needs some.
    pub(crate) transactions: usize,
    pub(crate) max_attempts: u64,
    pub(crate) retry: u64,
    pub(crate) drain: u64,
    pub(crate) delete_done: bool,
    /// After how long ended rows are purged, if at all.
    pub(crate) purge: Option<u64>,
    /// Through PgBouncer.
    pub(crate) pooled: bool,
    /// After how long sessions give up waiting for a lock, if at all.
    pub(crate) lock_timeout: Option<u64>,
    /// After how long the database gives up a statement, if at all.
    pub(crate) statement_timeout: Option<u64>,
}

#[derive(Debug, Clone)]
pub(crate) enum Act {
    Transact {
        node: usize,
        script: String,
    },
    Kill {
        node: usize,
        away: u64,
    },
    Close {
        node: usize,
        away: u64,
    },
    Stop {
        node: usize,
        length: u64,
    },
    EndSessions {
        node: usize,
    },
    /// A stranger locks rows that wait or are dead.
    Lock {
        dead: bool,
        rows: usize,
        length: u64,
    },
    Hog {
        node: usize,
        length: u64,
    },
    MoveClock {
        node: usize,
        seconds: i64,
    },
    Replay {
        node: usize,
    },
}

impl Act {
    pub(crate) fn is_a_fault(&self) -> bool {
        !matches!(self, Self::Transact { .. } | Self::Replay { .. })
    }
}

impl Plan {
    pub(crate) fn new(seed: Seed) -> Self {
        let mut dice = Dice::new(seed.number ^ (seed.database as u64) << 56 ^ (seed.mode as u64) << 48);
        let weather = match (seed.number % 3, seed.database) {
            (0, _) => Weather::Calm,
            // A stranger in SQLite locks the whole file, which is weather enough for a storm.
            (1, Database::Postgres | Database::Mariadb) => Weather::Locks,
            _ => Weather::Storm,
        };
        let settings = Settings::draw(seed, weather, &mut dice);
        // In SQLite the clock of a process is that of the database, which nobody may move.
        let may_move = seed.database != Database::Sqlite;
        let clock = |_| (dice.percent(25) && may_move).then(|| hour(&mut dice));
        let clocks = (0..settings.nodes).map(clock).collect();
        let mut plan = Self { seed, weather, settings, clocks, acts: Vec::new() };
        plan.draw_business(&mut dice);
        plan.draw_faults(&mut dice);
        plan.acts.sort_by_key(|(at, _)| *at);
        plan
    }

    pub(crate) fn faults(&self) -> usize {
        self.acts.iter().filter(|(_, act)| act.is_a_fault()).count()
    }

    fn draw_business(&mut self, dice: &mut Dice) {
        let Settings { nodes, transactions, .. } = self.settings;
        let side_by_side = if self.seed.database == Database::Sqlite { 6 } else { nodes * transactions };
        let mut at = 0;
        while at < LENGTH {
            at += dice.of(0..=2 * PAUSE / side_by_side as u64);
            if self.seed.database != Database::Sqlite && dice.percent(4) {
                self.draw_deadlock(at, dice);
            } else {
                let (node, script) = (dice.index(self.settings.nodes), self.script(dice));
                self.acts.push((at, Act::Transact { node, script }));
            }
        }
        let waits = self.weather == Weather::Locks;
        if waits || dice.percent(60) {
            let pause = if waits { dice.of(100..=300) } else { dice.of(150..=1_500) };
            let node = dice.index(self.settings.nodes);
            self.acts.extend((0..LENGTH / pause).map(|time| (time * pause, Act::Replay { node })));
        }
    }

    /// Two transactions that wait for each other.
    fn draw_deadlock(&mut self, at: u64, dice: &mut Dice) {
        let first = dice.of(1..=7);
        for (one, two) in [(first, first + 1), (first + 1, first)] {
            let node = dice.index(self.settings.nodes);
            let (wait, events) = (dice.of(100..=300), self.events(dice));
            let last = if dice.percent(85) { "c" } else { "r" };
            let script = format!("a:{events} l{one} w{wait} l{two} {last}");
            self.acts.push((at, Act::Transact { node, script }));
        }
    }

    fn script(&self, dice: &mut Dice) -> String {
        let mut words = Vec::new();
        for (word, chance) in [("own", 25), ("early", 10)] {
            if dice.percent(chance) {
                words.push(word.to_owned());
            }
        }
        words.push(format!("a:{}", self.events(dice)));
        self.wait(&mut words, dice);
        match dice.of(0..=99) {
            0..=14 => {
                words.extend(["s".to_owned(), format!("a:{}", self.events(dice))]);
                self.wait(&mut words, dice);
                words.push("b".to_owned());
                if dice.percent(50) {
                    words.push(format!("a:{}", self.events(dice)));
                }
            }
            15..=19 => words.extend(["s".to_owned(), format!("a:{}", self.events(dice))]),
            // A pool of SQLite's keeps a connection whose transaction the database ended, and each costs it one.
            20 => words.push("x".to_owned()),
            21..=27 if self.seed.database != Database::Sqlite => words.push("x".to_owned()),
            _ => {}
        }
        let last = match dice.of(0..=99) {
            0..=7 => "r",
            8..=10 => "d",
            _ => "c",
        };
        words.push(last.to_owned());
        words.join(" ")
    }

    /// How long a transaction stays open: seldom at all, now and then for seconds. SQLite has one writer at a time.
    fn wait(&self, words: &mut Vec<String>, dice: &mut Dice) {
        let longest: u64 = match self.seed.database {
            Database::Sqlite => 400,
            _ => 5_000,
        };
        let wait = match dice.of(0..=99) {
            0..=49 => return,
            50..=79 => dice.of(1..=longest / 20),
            80..=94 => dice.of(1..=longest / 5),
            _ => dice.of(longest / 5..=longest),
        };
        words.push(format!("w{wait}"));
    }

    /// A batch of events.
    fn events(&self, dice: &mut Dice) -> String {
        let count = match dice.of(0..=99) {
            0..=59 => 1,
            60..=89 => dice.of(2..=4),
            _ => dice.of(5..=20),
        };
        let events: Vec<_> = (0..count).map(|_| self.steps(dice)).collect();
        events.join(",")
    }

    /// What the handler does with an event, call by call.
    fn steps(&self, dice: &mut Dice) -> String {
        let slow = if self.seed.mode == Mode::Ordered { 150 } else { 2_500 };
        if self.weather == Weather::Storm && self.seed.mode == Mode::Multi && dice.of(0..=999) < 2 {
            return format!("b{}+d", dice.of(1_000..=6_000)); // longer than claims last
        }
        match dice.of(0..=99) {
            0..=69 => "d".to_owned(),
            70..=74 => "f.d".to_owned(),
            75..=77 => "f.f.d".to_owned(),
            78..=79 => "p.d".to_owned(),
            80..=83 => format!("r{}.d", dice.of(1..=600)),
            84..=86 => format!("f.r{}.d", dice.of(1..=600)),
            87..=91 => format!("s{}+d", dice.of(1..=slow)),
            92 => format!("s{}+f.d", dice.of(1..=slow / 4)),
            93..=94 => format!("b{}+d", dice.of(1..=150)),
            95..=96 => "u.d".to_owned(),
            97..=98 => "x.x.d".to_owned(),
            _ => "f".to_owned(),
        }
    }

    fn draw_faults(&mut self, dice: &mut Dice) {
        let nodes = self.settings.nodes;
        let is_sqlite = self.seed.database == Database::Sqlite;
        for node in 0..nodes {
            if self.clocks[node].is_some() {
                self.acts.push((dice.of(0..=LENGTH), Act::MoveClock { node, seconds: hour(dice) }));
            }
        }
        match self.weather {
            Weather::Calm => {}
            Weather::Locks => {
                let mut at = dice.of(200..=1_000);
                while at < LENGTH {
                    let (dead, rows) = (dice.percent(50), 1 + dice.index(4));
                    let held = if dead { dice.of(700..=1_800) } else { dice.of(100..=1_500) };
                    self.acts.push((at, Act::Lock { dead, rows, length: held }));
                    at += held + dice.of(100..=1_500);
                }
            }
            Weather::Storm => {
                for _ in 0..dice.of(3..=6) {
                    let (at, node) = (dice.of(500..=LENGTH), dice.index(nodes));
                    let away = dice.of(200..=1_500);
                    let act = match dice.of(0..=99) {
                        0..=29 => Act::Kill { node, away },
                        30..=44 => Act::Close { node, away },
                        45..=64 => Act::Stop { node, length: dice.of(100..=2 * self.settings.claim_timeout) },
                        65..=79 if !is_sqlite => Act::EndSessions { node },
                        80..=89 if !is_sqlite => Act::Hog { node, length: dice.of(500..=4_000) },
                        _ => Act::Lock { dead: dice.percent(50), rows: 3, length: dice.of(200..=2_500) },
                    };
                    self.acts.push((at, act));
                }
            }
        }
    }
}

impl Settings {
    fn draw(seed: Seed, weather: Weather, dice: &mut Dice) -> Self {
        let multi = seed.mode == Mode::Multi;
        // With one writer at a time a claim must outlast some transactions of others.
        let hot_grace =
            if seed.database == Database::Sqlite { dice.of(5..=7) } else { dice.of(2..=4) } * 1_000;
        // Where strangers lock dead rows, a replay and then a purge are to wait for them, side by side.
        let waits = weather == Weather::Locks;
        let pool = if multi { 6 } else { *dice.one_of(&[3, 5, 8, 12]) };
        let pooled = multi && seed.database == Database::Postgres && dice.percent(40);
        Self {
            nodes: if multi { 3 } else { 1 },
            hot_grace,
            claim_timeout: hot_grace + dice.of(0..=2_000),
            interval: *dice.one_of(&[100, 200, 500, 2_000]),
            batch_size: *dice.one_of(&[5, 50, 500]),
            workers: *dice.one_of(&[2, 4, 8]),
            queue: *dice.one_of(&[4, 50, 1_000]),
            pool,
            transactions: match seed.database {
                // One writes, and the others wait for it.
                Database::Sqlite => 2,
                // PgBouncer has five connections for all of them.
                _ if pooled => 1,
                _ => pool - 2,
            },
            max_attempts: if seed.mode == Mode::Ordered { 1 } else { dice.of(2..=5) },
            retry: dice.of(20..=400),
            drain: *dice.one_of(&[50, 500, 5_000]),
            delete_done: dice.percent(20),
            purge: (waits || dice.percent(50))
                .then(|| if waits { dice.of(300..=600) } else { dice.of(50..=1_000) }),
            pooled,
            lock_timeout: (waits && dice.percent(40)).then(|| dice.of(1..=10) * 100),
            statement_timeout: (waits && dice.percent(30)).then(|| dice.of(4..=12) * 100),
        }
    }
}

/// An hour in one direction or the other.
fn hour(dice: &mut Dice) -> i64 {
    if dice.percent(50) { 3_600 } else { -3_600 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{DATABASES, MODES};

    fn plans() -> impl Iterator<Item = Plan> {
        let seeds = (1..=60).flat_map(|number| MODES.map(|mode| (mode, number)));
        let seeds =
            seeds.flat_map(|(mode, number)| DATABASES.map(|database| Seed { database, mode, number }));
        seeds.map(Plan::new)
    }

    #[test]
    fn a_seed_makes_the_same_plan_each_time_and_another_seed_another() {
        let shown = |seed: &str| format!("{:?}", Plan::new(seed.parse().unwrap()));
        assert_eq!(shown("postgres-multi-7"), shown("postgres-multi-7"));
        for other in ["postgres-multi-10", "postgres-single-7", "mariadb-multi-7"] {
            assert_ne!(shown("postgres-multi-7"), shown(other));
        }
        assert_eq!("postgres-multi-7".parse::<Seed>().unwrap().to_string(), "postgres-multi-7");
    }

    #[test]
    fn there_is_no_fault_in_calm_weather_but_clocks_that_are_wrong() {
        for plan in plans().filter(|plan| plan.weather == Weather::Calm) {
            let wrong =
                plan.acts.iter().find(|(_, act)| act.is_a_fault() && !matches!(act, Act::MoveClock { .. }));
            assert!(wrong.is_none(), "{}: {wrong:?}", plan.seed);
        }
    }

    /// What no seed does is not tested.
    #[test]
    fn everything_that_can_happen_does() {
        let all: Vec<_> = plans().map(|plan| format!("{plan:?}").replace('"', " ")).collect();
        let all = all.join(" ");
        let acts = "Transact Kill Close Stop EndSessions Lock Hog MoveClock Replay";
        let scripts = "own|early|s|b|x|l3|c|r|d".split('|').map(|word| format!(" {word} "));
        let settings = [
            "pooled: true",
            "delete_done: true",
            "purge: Some",
            "purge: None",
            "lock_timeout: Some",
            "statement_timeout: Some",
        ];
        let steps = [":d", "p.d", "f.f.d", "u.d", "x.x.d", ",f", "+f.d", ":s", ":b", ":r"];
        let words = acts.split(' ').map(str::to_owned).chain(scripts);
        for word in words.chain(settings.map(str::to_owned)).chain(steps.map(str::to_owned)) {
            assert!(all.contains(&word), "{word:?} never happens");
        }
    }
}
