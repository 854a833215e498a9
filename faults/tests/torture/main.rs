//! The torture: producers, handlers, databases and processes that do everything wrong at once, and a judge who finds what
//! was lost, invented, stuck, overtaken, repeated or miscounted without a fault that explains it.
//!
//! Every run follows from its seed, such as `postgres-multi-7`: what producers and handlers do, which faults there are,
//! and when. How processes and statements interleave does not, so a seed that failed may need a few tries.
//!
//! As it stands it takes the seeds of [`SHORT`]. `BACKSTOP_TORTURE_MINUTES=60` walks through seeds over all databases
//! and modes until the time is over; `BACKSTOP_TORTURE_SEED=postgres-multi-7` takes that one alone.

mod arena;
mod dice;
mod history;
mod judge;
mod plan;
mod report;
mod run;
mod seed;
#[path = "../faults/support/mod.rs"]
#[expect(dead_code, reason = "the fault tests use the rest of it")]
mod support;

use std::env;
use std::time::Duration;

use tokio::time::Instant;

use report::Report;
use run::Run;
use seed::{DATABASES, MODES, Seed};

/// How long producers are busy in a run of the short form, and of the long one.
const SHORT_RUN: Duration = Duration::from_secs(10);
const LONG_RUN: Duration = Duration::from_secs(25);

/// The seeds of the short form, a lane for each database.
const SHORT: [&[&str]; 3] = [
    &["postgres-single-1", "postgres-multi-1", "postgres-ordered-1"],
    &["mariadb-single-1", "mariadb-multi-1", "mariadb-ordered-1"],
    &["sqlite-single-1", "sqlite-multi-1", "sqlite-ordered-1"],
];

#[tokio::test]
async fn nothing_is_lost_invented_stuck_overtaken_or_repeated_without_a_fault() {
    let report = if let Ok(seed) = env::var("BACKSTOP_TORTURE_SEED") {
        lane(&[&seed], LONG_RUN).await
    } else if let Ok(minutes) = env::var("BACKSTOP_TORTURE_MINUTES") {
        walk(Duration::from_secs(60 * minutes.parse::<u64>().expect("a whole number of minutes"))).await
    } else {
        let [one, two, three] = SHORT;
        let (one, two, three) =
            tokio::join!(lane(one, SHORT_RUN), lane(two, SHORT_RUN), lane(three, SHORT_RUN));
        one.and(two).and(three)
    };
    println!("{report}");
    assert!(report.is_clean(), "{}", report.complaints());
}

/// One seed after another.
async fn lane(seeds: &[&str], length: Duration) -> Report {
    let mut report = Report::default();
    for seed in seeds {
        let Some(run) = Run::of(seed.parse().unwrap(), length).await else { break };
        report.add(&run);
    }
    report
}

/// All databases and modes, with ever new seeds, until the time is over.
async fn walk(length: Duration) -> Report {
    let until = Instant::now() + length;
    let first = env::var("BACKSTOP_TORTURE_FROM").map_or(1, |first| first.parse().expect("a whole number"));
    let lanes = DATABASES.map(|database| async move {
        let mut report = Report::default();
        for number in first.. {
            for mode in MODES {
                if Instant::now() >= until {
                    return report;
                }
                let Some(run) = Run::of(Seed { database, mode, number }, LONG_RUN).await else { return report };
                report.add(&run);
            }
        }
        report
    });
    let [one, two, three] = lanes;
    let (one, two, three) = tokio::join!(one, two, three);
    one.and(two).and(three)
}
