//! The alerts and the board that come with Backstop speak of metrics that there are.

use std::collections::BTreeSet;
use std::path::Path;

use backstop_core::telemetry::{MetricKind, catalogue};

fn read(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(path);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Every name that Prometheus shows.
fn exported() -> BTreeSet<String> {
    let of_prefix = |(prefix, metrics): (&'static str, &'static [_])| {
        metrics.iter().flat_map(move |metric: &backstop_core::telemetry::Metric| {
            let name = format!("{prefix}.{}", metric.name).replace('.', "_");
            match metric.kind {
                MetricKind::Histogram => {
                    vec![format!("{name}_bucket"), format!("{name}_sum"), format!("{name}_count")]
                }
                MetricKind::Counter | MetricKind::Gauge => vec![name],
            }
        })
    };
    catalogue().into_iter().flat_map(of_prefix).collect()
}

/// The names in expressions that begin like one of ours, and the one that Prometheus has for every target.
fn named(expressions: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expressions.split(|c: char| !is_part(c));
    let ours =
        |word: &&str| ["outbox_", "queue_", "target_", "dlq_"].iter().any(|prefix| word.starts_with(prefix));
    words.filter(ours).map(str::to_owned).collect()
}

fn check(what: &str, named: &BTreeSet<String>) {
    let unknown: Vec<_> = named.difference(&exported()).cloned().collect();
    assert!(unknown.is_empty(), "{what} speaks of {unknown:?}, which no component exports");
    assert!(named.len() > 5, "{what} speaks of {named:?} only");
}

#[test]
fn the_alerts_are_about_metrics_of_the_catalogue() {
    let rules = read("prometheus/backstop-alerts.yml");
    check("an alert", &named(&rules));
    let alerts = rules.matches("- alert: ").count();
    assert_eq!(rules.matches("        expr: ").count(), alerts, "each has an expression");
    assert_eq!(rules.matches("          summary: ").count(), alerts, "each says what is wrong");
    // And the guide says what to do about each.
    let guide = read("../docs/guides/monitor-and-alert.md");
    for alert in rules.split("- alert: ").skip(1).filter_map(|rest| rest.lines().next()) {
        assert!(guide.contains(&format!("`{alert}`")), "the guide says nothing of {alert}");
    }
}

#[test]
fn the_board_shows_metrics_of_the_catalogue() {
    let board: serde_json::Value = serde_json::from_str(&read("grafana/backstop.json")).unwrap();
    let mut expressions = String::new();
    for panel in board["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            expressions += target["expr"].as_str().unwrap();
            expressions += "\n";
        }
    }
    let variables = board["templating"].to_string();
    check("the board", &named(&(expressions + &variables)));
}
