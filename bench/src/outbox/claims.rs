//! The targets that the outbox was built for.

use super::contenders::{
    GRAPHILE_ONE, GRAPHILE_TWO, MARIADB_CLAIM, MARIADB_MULTI, MARIADB_SELECT, MARIADB_SINGLE, MULTI,
    MULTI_KAFKA, MULTI_SNAPSHOT, PLAIN_SCHEMA, PLAIN_SCHEMA_BY_CREATION, RAW_CLAIM_DONE, RAW_CLIENT,
    RAW_CLIENT_AT_WORK, RAW_PRODUCE, RAW_SELECT_DELETE, RAW_SELECT_DONE, RIVER_1_000, RIVER_10_000, SINGLE,
    SINGLE_DEFAULTS, SINGLE_DELETE, SINGLE_HTTP, SINGLE_HTTP_AT_WORK, SINGLE_SNAPSHOT, SQLITE_SELECT,
    SQLITE_SINGLE,
};
use super::{append, latency, memory, outage};
use crate::report::Bound::{AtLeast, AtMost, Under};
use crate::report::{Bound, Claim, Report};

/// One contender against another, round by round.
const RATIOS: [(&str, &str, Bound); 23] = [
    (SINGLE, RAW_SELECT_DONE, AtLeast(0.8)),
    (SINGLE_DEFAULTS, RAW_SELECT_DONE, AtLeast(0.4)),
    (SINGLE, GRAPHILE_ONE, AtLeast(1.5)),
    (SINGLE, GRAPHILE_TWO, AtLeast(1.5)),
    (SINGLE, RIVER_1_000, AtLeast(3.0)),
    (SINGLE, RIVER_10_000, AtLeast(3.0)),
    (MULTI, RAW_CLAIM_DONE, AtLeast(0.8)),
    (MULTI, PLAIN_SCHEMA, AtLeast(1.2)),
    (MULTI, PLAIN_SCHEMA_BY_CREATION, AtLeast(1.2)),
    (SINGLE_DELETE, RAW_SELECT_DELETE, AtLeast(0.6)),
    (SINGLE_SNAPSHOT, SINGLE, AtLeast(0.7)),
    (MULTI_SNAPSHOT, MULTI, AtLeast(0.7)),
    (MARIADB_SINGLE, MARIADB_SELECT, AtLeast(0.7)),
    (MARIADB_MULTI, MARIADB_CLAIM, AtLeast(0.7)),
    (SQLITE_SINGLE, SQLITE_SELECT, AtLeast(0.7)),
    (SINGLE_HTTP_AT_WORK, RAW_CLIENT_AT_WORK, AtLeast(0.7)),
    (append::OURS, append::PLAIN, AtMost(1.15)),
    (append::OURS_FIRST, append::PLAIN_FIRST, AtMost(1.5)),
    (append::FOREIGN, append::PLAIN, AtMost(1.15)),
    (outage::SINGLE.second_route, outage::SINGLE.second_route_before, AtLeast(0.9)),
    (outage::SINGLE.backlog, outage::SINGLE.backlog_before, AtLeast(0.9)),
    (outage::MULTI.second_route, outage::MULTI.second_route_before, AtLeast(0.9)),
    (outage::MULTI.backlog, outage::MULTI.backlog_before, AtLeast(0.9)),
];

/// A figure by itself, and its unit.
const FIGURES: [(&str, &str, Bound); 8] = [
    (latency::HERE_P50, "ms", Under(0.1)),
    (latency::HERE_P99, "ms", Under(2.0)),
    (latency::THERE_P50, "ms", Under(2.0)),
    (latency::THERE_P99, "ms", Under(15.0)),
    (outage::SINGLE.row_writes, "rows/s", Under(1.0)),
    (outage::SINGLE.log, "MB/min", Under(1.0)),
    (outage::MULTI.row_writes, "rows/s", Under(1.0)),
    (outage::MULTI.log, "MB/min", Under(1.0)),
];

/// A relay, and the two halves of its work. They share one machine, so doing both takes at least the time of one after the
/// other.
const RELAYS: [(&str, [&str; 2]); 2] =
    [(MULTI_KAFKA, [RAW_CLAIM_DONE, RAW_PRODUCE]), (SINGLE_HTTP, [RAW_CLIENT, RAW_SELECT_DONE])];

/// All that can be told from what was measured.
pub(super) fn of(report: &Report) -> Vec<Claim> {
    let ratios = RATIOS.iter().filter_map(|(of, to, bound)| {
        let text = format!("{of} / {to}");
        Some(Claim { text, unit: "", bound: *bound, values: report.ratios(of, to)? })
    });
    let relays = RELAYS.iter().filter_map(|(relay, halves)| against_halves(report, relay, halves));
    let figures = FIGURES.iter().filter_map(|(name, unit, bound)| {
        let values = report.series(name)?.values.clone();
        Some(Claim { text: (*name).to_owned(), unit, bound: *bound, values })
    });
    let memory = report.differences(memory::LARGE, memory::SMALL).map(|values| Claim {
        text: format!("{} − {}", memory::LARGE, memory::SMALL),
        unit: "MiB",
        bound: AtMost(32.0),
        values,
    });
    ratios.chain(relays).chain(figures).chain(memory).collect()
}

fn against_halves(report: &Report, relay: &str, [one, other]: &[&str; 2]) -> Option<Claim> {
    let rates = |name| Some(report.series(name)?.values.iter());
    let ceilings = rates(one)?.zip(rates(other)?).map(|(one, other)| 1.0 / (1.0 / one + 1.0 / other));
    let values = rates(relay)?.zip(ceilings).map(|(ours, ceiling)| ours / ceiling).collect();
    let text = format!("{relay} / 1 ÷ (1 ÷ {one} + 1 ÷ {other})");
    Some(Claim { text, unit: "", bound: AtLeast(0.8), values })
}
