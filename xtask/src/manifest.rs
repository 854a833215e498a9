//! Reading as much of a `Cargo.toml` as the checks need: its sections, keys and the lines they stand on.

/// One `key = value` of a manifest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) section: String,
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) line: usize,
}

/// A dependency of a crate, under the name of its package.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) package: String,
    pub(crate) for_tests: bool,
    pub(crate) line: usize,
}

/// Every entry, top to bottom. A value that spans lines keeps its first line only.
pub(crate) fn entries(manifest: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut section = String::new();
    let mut depth = 0_usize;
    for (number, line) in (1..).zip(manifest.lines()) {
        let line = without_comment(line).trim();
        let continues = depth > 0;
        depth = depth.saturating_add(count(line, ['[', '{'])).saturating_sub(count(line, [']', '}']));
        if continues {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.trim_matches(['[', ']']).trim().clone_into(&mut section);
        } else if let Some((key, value)) = line.split_once('=') {
            let key = key.trim().trim_matches('"').to_owned();
            entries.push(Entry {
                section: section.clone(),
                key,
                value: value.trim().to_owned(),
                line: number,
            });
        }
    }
    entries
}

/// The dependencies of a crate in all their spellings: `a = "1"`, `a.workspace = true`, `[dependencies.a]`.
pub(crate) fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found: Vec<Dependency> = Vec::new();
    for entry in entries(manifest) {
        let Some((kind, table)) = dependency_section(&entry.section) else { continue };
        let name = table.unwrap_or_else(|| entry.key.split('.').next().unwrap_or_default());
        let renamed = if table.is_some() { (entry.key == "package").then_some(&entry.value) } else { None };
        let package = renamed
            .map(|value| value.trim_matches('"').to_owned())
            .or_else(|| inline_package(&entry.value))
            .unwrap_or_else(|| name.to_owned());
        let for_tests = kind == "dev-dependencies";
        if !found.iter().any(|known| known.package == package && known.for_tests == for_tests) {
            found.push(Dependency { package, for_tests, line: entry.line });
        }
    }
    found
}

/// The names of a crate's features.
pub(crate) fn features(manifest: &str) -> Vec<String> {
    entries(manifest).into_iter().filter(|entry| entry.section == "features").map(|entry| entry.key).collect()
}

/// The kind of a dependency section and, for `[dependencies.name]`, the name.
fn dependency_section(section: &str) -> Option<(&str, Option<&str>)> {
    let start = ["dev-dependencies", "build-dependencies", "dependencies"].into_iter().find_map(|kind| {
        let at = section.rfind(kind)?;
        let begins = at == 0 || section.as_bytes()[at - 1] == b'.';
        (begins && !section.starts_with("workspace")).then_some((at, kind))
    })?;
    let (at, kind) = start;
    match section[at + kind.len()..].strip_prefix('.') {
        Some(name) => Some((kind, Some(name.trim_matches('"')))),
        None if at + kind.len() == section.len() => Some((kind, None)),
        None => None,
    }
}

/// The real name in `{ package = "name", … }`.
fn inline_package(value: &str) -> Option<String> {
    let fields = value.strip_prefix('{')?.strip_suffix('}')?;
    let (_, after) = fields.split_once("package")?;
    Some(after.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?.split('"').next()?.to_owned())
}

fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted => return &line[..at],
            _ => {}
        }
    }
    line
}

fn count(line: &str, which: [char; 2]) -> usize {
    let mut quoted = false;
    let outside = line.chars().filter(|c| {
        quoted ^= *c == '"';
        !quoted && which.contains(c)
    });
    outside.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(manifest: &str, for_tests: bool) -> Vec<String> {
        let of_kind = dependencies(manifest).into_iter().filter(|found| found.for_tests == for_tests);
        of_kind.map(|found| found.package).collect()
    }

    #[test]
    fn dependencies_are_found_in_every_spelling() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\na = \"1\" # why\nb.workspace = true\n\
                        c = { package = \"real-c\", version = \"1\" }\n[dependencies.d]\nversion = \"1\"\n\
                        optional = true\n[target.'cfg(unix)'.dependencies]\ne = \"1\"\n";
        assert_eq!(names(manifest, false), ["a", "b", "real-c", "d", "e"]);
        assert_eq!(dependencies(manifest)[1].line, 5);
    }

    #[test]
    fn dependencies_of_tests_are_told_apart() {
        let manifest =
            "[dependencies]\na = \"1\"\n[dev-dependencies]\nb = \"1\"\n[dev-dependencies.c]\npath = \"c\"\n";
        assert_eq!(names(manifest, false), ["a"]);
        assert_eq!(names(manifest, true), ["b", "c"]);
    }

    #[test]
    fn features_are_found_past_lists_of_many_lines() {
        let manifest = "[features]\ndefault = []\nsqlite = [\n  \"dep:x\", # odd = sign\n  \"y/z\",\n]\n\"kafka\" = [\"k\"]\n\
                        [lints]\nworkspace = true\n";
        assert_eq!(features(manifest), ["default", "sqlite", "kafka"]);
    }

    #[test]
    fn the_workspaces_own_table_is_no_dependency() {
        assert!(dependencies("[workspace.dependencies]\na = \"1\"\n").is_empty());
    }
}
