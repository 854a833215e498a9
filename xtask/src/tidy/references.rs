//! Reference pages that follow from the code: each is rendered, and must equal the file on disk.

use anyhow::Result;
use backstop_core::telemetry::{Kind, Metric, catalogue};

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
        is a prefix, which can be set for each component so that several in one process stay apart. Those of \
        `target` have labels in its place: `kind`, `name`, and `for`, which in the daemon tells whose events go there.\n";
    let component = |(prefix, metrics): &(&str, &[Metric])| {
        let rows: String = metrics.iter().map(|metric| row(prefix, metric)).collect();
        format!("\n## `{prefix}`\n\n| metric | kind | meaning |\n|---|---|---|\n{rows}")
    };
    head.to_owned() + &catalogue().iter().map(component).collect::<String>()
}

fn row(prefix: &str, metric: &Metric) -> String {
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
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
