//! The health of all components in one word, for load balancers, orchestrators and people.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use backstop_core::inspect::{Health, Report};
use serde::Serialize;

/// What `/health` answers.
#[derive(Debug, Serialize)]
pub(crate) struct Checkup {
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    components: Option<Vec<Finding>>,
}

#[derive(Debug, Serialize)]
struct Finding {
    kind: &'static str,
    name: String,
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Ordered from good to bad: the whole is as well as its worst part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
enum Status {
    Up,
    Degraded,
    Down,
}

impl Checkup {
    pub(crate) fn of(reports: Vec<Report>) -> Self {
        let components: Vec<_> = reports.into_iter().map(Finding::of).collect();
        let status = components.iter().map(|finding| finding.status).max().unwrap_or(Status::Up);
        Self { status, components: Some(components) }
    }

    /// The same without the names of components and what is wrong with them.
    pub(crate) fn in_a_word(self) -> Self {
        Self { components: None, ..self }
    }
}

/// What is wrong with the first component that is down, with its name; none if none is.
pub(crate) fn first_down(reports: &[Report]) -> Option<String> {
    reports.iter().find_map(|report| match &report.health {
        Health::Down(why) => Some(format!("{} {}: {why}", report.kind, report.name)),
        Health::Up | Health::Degraded(_) => None,
    })
}

impl Finding {
    fn of(report: Report) -> Self {
        let (status, why) = match report.health {
            Health::Up => (Status::Up, None),
            Health::Degraded(why) => (Status::Degraded, Some(why)),
            Health::Down(why) => (Status::Down, Some(why)),
        };
        Self { kind: report.kind, name: report.name, status, why }
    }
}

impl IntoResponse for Checkup {
    fn into_response(self) -> Response {
        // Degraded still answers 200: taking a process that works in part out of service helps nobody.
        let code = match self.status {
            Status::Up | Status::Degraded => StatusCode::OK,
            Status::Down => StatusCode::SERVICE_UNAVAILABLE,
        };
        (code, Json(self)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkup(healths: impl IntoIterator<Item = Health>) -> Status {
        let report = |health| Report::of("outbox", "orders", health);
        Checkup::of(healths.into_iter().map(report).collect()).status
    }

    #[test]
    fn the_whole_is_as_well_as_its_worst_part() {
        let degraded = || Health::Degraded("slow".into());
        let down = || Health::Down("no database".into());
        assert_eq!(checkup([]), Status::Up);
        assert_eq!(checkup([Health::Up, Health::Up]), Status::Up);
        assert_eq!(checkup([degraded(), Health::Up]), Status::Degraded);
        assert_eq!(checkup([Health::Up, down(), degraded()]), Status::Down);
    }
}
