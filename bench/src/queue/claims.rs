//! The targets that the queue was built for.

use super::contenders::{RAW, RIVER_1_000, RIVER_10_000, SQLXMQ_1_000, SQLXMQ_10_000, WORKER};
use super::latency;
use crate::report::Bound::{AtLeast, Under};
use crate::report::{Bound, Claim, Report};

/// One contender against another, round by round. There is no target for MariaDB and SQLite.
const RATIOS: [(&str, &str, Bound); 5] = [
    (WORKER, RAW, AtLeast(0.8)),
    (WORKER, SQLXMQ_1_000, AtLeast(3.0)),
    (WORKER, SQLXMQ_10_000, AtLeast(3.0)),
    (WORKER, RIVER_1_000, AtLeast(1.0)),
    (WORKER, RIVER_10_000, AtLeast(1.0)),
];

/// A figure by itself.
const MILLISECONDS: [(&str, Bound); 2] = [(latency::HERE_P50, Under(1.0)), (latency::THERE_P50, Under(3.0))];

/// All that can be told from what was measured.
pub(super) fn of(report: &Report) -> Vec<Claim> {
    let ratios = RATIOS.iter().filter_map(|(of, to, bound)| {
        let text = format!("{of} / {to}");
        Some(Claim { text, unit: "", bound: *bound, values: report.ratios(of, to)? })
    });
    let milliseconds = MILLISECONDS.iter().filter_map(|(name, bound)| {
        let values = report.series(name)?.values.clone();
        Some(Claim { text: (*name).to_owned(), unit: "ms", bound: *bound, values })
    });
    ratios.chain(milliseconds).collect()
}
