//! Reference pages that follow from the code: each is rendered, and must equal the file on disk.

use anyhow::Result;
use backstop_core::telemetry::{BUCKETS, Metric, MetricKind, catalogue};

use crate::fault::Fault;
use crate::say::say;
use crate::workspace::{Workspace, make_folder, read, write};

/// A page, by its path in the workspace, and the function that renders it from what the code says.
type Reference = (&'static str, fn() -> String);

/// Every page that is derived from code. Hand-written pages do not belong here.
const REFERENCES: &[Reference] = &[("docs/reference/metrics.md", metrics)];

/// The metrics reference, from the catalogue that registers them.
fn metrics() -> String {
    let head = "# Metrics\n\n\
        Every metric that Backstop exports, as the code registers them. Names are dotted; Prometheus shows \
        underscores in their place, so `outbox.dispatch.success` is `outbox_dispatch_success`. The first part \
        is a prefix. That of an outbox or a dead-letter directory can be set.\n\n\
        Labels tell several of a kind apart:\n\n\
        | metrics | label | value |\n|---|---|---|\n\
        | `outbox` | `outbox` | the outbox's name |\n\
        | `outbox.route` | `outbox` | the outbox's name |\n\
        | | `route` | the handler that events go to, as `aggregate type/event type`; `*` is for all other events, `no handler` \
        for those that find none, and `others` for all routes beyond the first 200 |\n\
        | `dlq` | `dlq` | the name of the dead-letter directory |\n\
        | `target` | `kind` | `webhook` or `topic` |\n\
        | | `name` | the target's name: its `name` in the settings, or scheme, host and port of the URL, or the topic |\n\
        | | `component` | the name of the outbox that sends to it; always set in the daemon |\n\
        | | `number` | only where an outbox has several targets of one name: `2` for the second, and so on |\n\n";
    let buckets: Vec<_> = BUCKETS.iter().map(f64::to_string).collect();
    let histograms = format!(
        "Histograms are in seconds. Prometheus shows each as `_bucket`, `_sum` and `_count`. Their buckets end at {}.\n",
        buckets.join(", ")
    );
    let component = |(prefix, metrics): &(&str, &[Metric])| {
        let rows: String = metrics.iter().map(|metric| row(prefix, metric)).collect();
        format!("\n## `{prefix}`\n\n| metric | kind | meaning |\n|---|---|---|\n{rows}")
    };
    head.to_owned() + &histograms + &catalogue().iter().map(component).collect::<String>()
}

fn row(prefix: &str, metric: &Metric) -> String {
    let kind = match metric.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    };
    format!("| `{prefix}.{}` | {kind} | {} |\n", metric.name, metric.help)
}

/// Compares every page with what the code says; with `fix` a page that differs is rewritten.
pub(super) fn check(workspace: &Workspace, fix: bool) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for (path, render) in REFERENCES {
        let rendered = render();
        let file = workspace.path(path);
        let written = if file.is_file() { read(&file)? } else { String::new() };
        let Some(line) = first_difference(&written, &rendered) else { continue };
        if fix {
            if let Some(folder) = file.parent() {
                make_folder(folder)?;
            }
            write(&file, rendered)?;
            say!("rewrote {path}");
        } else {
            faults.push(Fault::new(
                *path,
                line,
                "the page differs from the code; run `cargo xtask tidy --fix`",
            ));
        }
    }
    Ok(faults)
}

/// The line at which two texts part, counted from one.
fn first_difference(written: &str, rendered: &str) -> Option<usize> {
    if written == rendered {
        return None;
    }
    let same = written.lines().zip(rendered.lines()).take_while(|(left, right)| left == right).count();
    Some(same + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_told_by_its_line() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(2));
        assert_eq!(first_difference("", "a\n"), Some(1));
        assert_eq!(first_difference("a\n", "a\nb\n"), Some(2));
    }
}
