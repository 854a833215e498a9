//! Relative links in Markdown files lead somewhere.

use anyhow::Result;

use crate::fault::Fault;
use crate::workspace::{Workspace, read};

pub(super) fn check(workspace: &Workspace) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for path in workspace.markdown_files()? {
        let Some(folder) = path.parent() else { continue };
        for (target, line) in targets(&read(&path)?) {
            if !folder.join(&target).exists() {
                let what = format!("the link to `{target}` leads nowhere; correct it or add the file");
                faults.push(Fault::new(workspace.shown(&path), line, what));
            }
        }
    }
    Ok(faults)
}

/// The files that a document links to, with the lines of the links.
fn targets(text: &str) -> Vec<(String, usize)> {
    let mut targets = Vec::new();
    let mut in_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            let prose = without_code(line);
            targets.extend(on_line(&prose).into_iter().filter_map(local).map(|target| (target, number)));
        }
    }
    targets
}

/// The targets of `[text](target)` and of a definition `[name]: target`.
fn on_line(line: &str) -> Vec<&str> {
    let mut found: Vec<&str> =
        line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()).collect();
    let definition = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    // Footnotes are written the same way and are prose.
    let definition = definition.filter(|(name, _)| !name.starts_with('^'));
    found.extend(definition.and_then(|(_, target)| target.split_whitespace().next()));
    found
}

/// The path of a link that stays in this workspace.
fn local(target: &str) -> Option<String> {
    let path = target.trim_matches(['<', '>']).split('#').next()?;
    let elsewhere = path.contains("://") || path.starts_with("mailto:") || path.starts_with('/');
    (!path.is_empty() && !elsewhere).then(|| path.replace("%20", " "))
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        targets(text).into_iter().map(|(target, _)| target).collect()
    }

    #[test]
    fn relative_links_and_pictures_are_found() {
        let text = "See [a](docs/a.md#part) and ![p](img/p.png \"title\").\n[b]: ../b.md\n";
        assert_eq!(paths(text), ["docs/a.md", "img/p.png", "../b.md"]);
    }

    #[test]
    fn links_out_of_the_workspace_and_within_the_page_are_left_alone() {
        assert!(
            paths("[a](https://example.org/x) [b](#part) [c](mailto:x@example.org)\n[^1]: a note\n")
                .is_empty()
        );
    }

    #[test]
    fn code_holds_no_links() {
        assert!(paths("`[a](b.md)`\n```text\n[a](b.md)\n```\n").is_empty());
    }
}
