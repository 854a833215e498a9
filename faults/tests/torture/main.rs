//! The torture: producers, handlers, databases and processes that do everything wrong at once, and a judge who finds what
//! was lost, invented, stuck, overtaken, repeated or miscounted without a fault that explains it.
//!
//! Every run follows from its seed, such as `postgres-multi-7`: what producers and handlers do, which faults there are,
//! and when. How processes and statements interleave does not, so a seed that failed once may need several tries.
//!
//! As it stands it takes the seeds of [`SHORT`]. `BACKSTOP_TORTURE_MINUTES=60` walks over all databases and modes with
//! ever new seeds until the time is over, from the number of `BACKSTOP_TORTURE_FROM` on;
//! `BACKSTOP_TORTURE_SEED=postgres-multi-7` takes that seed alone, once or until the time is over.

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
use std::str::FromStr;
use std::time::Duration;

use tokio::time::Instant;

use report::Report;
use run::Run;
use seed::{DATABASES, MODES, Seed};

/// The seeds of the short form, a lane for each database. Their numbers choose the weather; see
/// [`Weather`](plan::Weather).
const SHORT: [[&str; 6]; 3] = [
    [
        "postgres-single-1",
        "postgres-multi-2",
        "postgres-ordered-1",
        "postgres-multi-3",
        "postgres-single-2",
        "postgres-multi-4",
    ],
    [
        "mariadb-multi-3",
        "mariadb-single-1",
        "mariadb-ordered-2",
        "mariadb-multi-2",
        "mariadb-single-3",
        "mariadb-ordered-1",
    ],
    [
        "sqlite-single-2",
        "sqlite-multi-3",
        "sqlite-ordered-2",
        "sqlite-multi-2",
        "sqlite-single-3",
        "sqlite-ordered-3",
    ],
];

#[tokio::test]
async fn nothing_is_lost_invented_stuck_overtaken_or_repeated_without_a_fault() {
    let minutes = set::<u64>("BACKSTOP_TORTURE_MINUTES");
    let until = Instant::now() + Duration::from_secs(60 * minutes.unwrap_or(0));
    let report = match (set::<Seed>("BACKSTOP_TORTURE_SEED"), minutes) {
        (Some(seed), _) => {
            let again = std::iter::repeat(seed).take_while(|_| Instant::now() < until);
            lane(std::iter::once(seed).chain(again)).await
        }
        (None, Some(_)) => {
            let first = set::<u64>("BACKSTOP_TORTURE_FROM").unwrap_or(1);
            let numbers = move || (first..).take_while(move |_| Instant::now() < until);
            let seeds = DATABASES.map(|database| {
                let seeds = numbers().flat_map(move |number| MODES.map(|mode| (mode, number)));
                let seeds = seeds.map(move |(mode, number)| Seed { database, mode, number });
                lane(seeds.take_while(move |_| Instant::now() < until))
            });
            Box::pin(side_by_side(seeds)).await
        }
        (None, None) => {
            let seeds = SHORT.map(|seeds| lane(seeds.map(|seed| seed.parse().unwrap())));
            Box::pin(side_by_side(seeds)).await
        }
    };
    println!("{report}");
    assert!(report.is_clean(), "{}", report.complaints());
}

/// One seed after another. Those of a database whose server is missing are left out.
async fn lane(seeds: impl IntoIterator<Item = Seed>) -> Report {
    let mut report = Report::default();
    for seed in seeds {
        // In a task, so that one that panics leaves the others alone.
        match tokio::spawn(Run::of(seed)).await {
            Ok(Some(run)) => report.add(&run),
            Ok(None) => break,
            Err(panic) => report.add_broken(seed, &panic.to_string()),
        }
    }
    report
}

async fn side_by_side<F: Future<Output = Report>>(lanes: [F; 3]) -> Report {
    let [one, two, three] = lanes.map(Box::pin);
    let (one, two, three) = tokio::join!(one, two, three);
    one.and(two).and(three)
}

/// What the environment says, if it says anything.
fn set<T: FromStr>(name: &str) -> Option<T> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}: {value:?} makes no sense")))
}
