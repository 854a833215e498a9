//! The glossary of `docs/ARCHITECTURE.md`: every word of a public name is in it, and words that it retired are gone.
//!
//! Its format, under the heading "Glossary": an item such as `- **claim**: …` for each idea, a paragraph that begins with
//! "Plain words:" for words that mean what they mean everywhere, and items such as `- ~~put off~~: deferred` for words
//! that are no longer used.

use std::collections::BTreeSet;

use anyhow::Result;

use crate::fault::Fault;
use crate::source::Source;
use crate::workspace::{Workspace, entries, read};

const PATH: &str = "docs/ARCHITECTURE.md";
const PLAIN: &str = "Plain words:";

/// Crates whose public names are for our own eyes, or for tests.
const UNSEEN: [&str; 2] = ["crates/backstop-cli/", "crates/backstop-testkit/"];

/// Pages that users and operators read.
const PAGES: [&str; 3] = ["docs/guides", "docs/reference", "crates/backstop-admin/web"];

#[derive(Debug, Default, PartialEq, Eq)]
struct Glossary {
    words: BTreeSet<String>,
    plain: BTreeSet<String>,
    plain_line: usize,
    /// What is no longer said, and what is said in its place.
    retired: Vec<(String, String)>,
}

pub(super) fn check(workspace: &Workspace, sources: &[Source]) -> Result<Vec<Fault>> {
    let glossary = Glossary::read(&read(&workspace.path(PATH))?);
    let ours =
        sources.iter().filter(|source| source.path.starts_with("crates/") && source.path.contains("/src/"));
    let (mut faults, mut used) = (Vec::new(), BTreeSet::new());
    for source in ours.clone().filter(|source| !UNSEEN.iter().any(|unseen| source.path.starts_with(unseen))) {
        for (line, name) in public_names(&source.text) {
            let words = words(name);
            faults.extend(words.iter().filter(|word| !glossary.knows(word)).map(|word| {
                let what = format!(
                    "the word `{word}` of the public name `{name}` is not in the glossary of {PATH}; use a word that is, \
                     or add it there"
                );
                Fault::new(&source.path, line, what)
            }));
            used.extend(words);
        }
    }
    faults.extend(glossary.plain.difference(&used).map(|word| {
        let what = format!("no public name uses the plain word `{word}`; remove it");
        Fault::new(PATH, glossary.plain_line, what)
    }));
    for source in ours {
        faults.extend(glossary.retired_in(&source.path, &source.text));
    }
    let mut pages = vec![workspace.path("README.md")];
    for folder in PAGES {
        pages.extend(entries(&workspace.path(folder))?);
    }
    for page in pages {
        faults.extend(glossary.retired_in(&workspace.shown(&page), &read(&page)?));
    }
    Ok(faults)
}

impl Glossary {
    fn read(page: &str) -> Self {
        let mut glossary = Self::default();
        let mut lines =
            (1..).zip(page.lines()).skip_while(|(_, line)| *line != "## Glossary").skip(1).peekable();
        while let Some((number, line)) = lines.next_if(|(_, line)| !line.starts_with("## ")) {
            if let Some((word, meaning)) = item(line, "- **", "**") {
                glossary.words.extend(
                    word.split([',', ' ', '-']).filter(|word| !word.is_empty()).map(str::to_lowercase),
                );
                // Related words in the meaning are explained by it: "The **settlement** says which."
                glossary.words.extend(meaning.split("**").skip(1).step_by(2).map(str::to_lowercase));
            } else if let Some((phrase, instead)) = item(line, "- ~~", "~~") {
                glossary
                    .retired
                    .push((phrase.to_lowercase(), instead.trim_start_matches([':', ' ']).to_owned()));
            } else if let Some(first) = line.strip_prefix(PLAIN) {
                glossary.plain_line = number;
                let mut list = first.to_owned();
                while let Some((_, more)) = lines.next_if(|(_, line)| !line.is_empty()) {
                    list.extend([" ", more]);
                }
                let list = list.split([',', ' ', '.']).filter(|word| !word.is_empty());
                glossary.plain.extend(list.map(str::to_lowercase));
            }
        }
        glossary
    }

    /// Whether a word is explained, perhaps in the singular, or needs no explanation.
    fn knows(&self, word: &str) -> bool {
        let singular = word.strip_suffix('s').unwrap_or(word);
        [word, singular].iter().any(|form| self.words.contains(*form)) || self.plain.contains(word)
    }

    fn retired_in<'a>(&'a self, path: &'a str, text: &'a str) -> impl Iterator<Item = Fault> + 'a {
        (1..).zip(text.lines()).flat_map(move |(number, line)| {
            let line = line.to_lowercase();
            let found = self.retired.iter().filter(move |(phrase, _)| says(&line, phrase));
            found.map(move |(phrase, instead)| {
                Fault::new(path, number, format!("`{phrase}` is no longer used here; say {instead}"))
            })
        })
    }
}

/// What stands between two marks at the beginning of a line, and what follows.
fn item<'l>(line: &'l str, begin: &str, end: &str) -> Option<(&'l str, &'l str)> {
    line.strip_prefix(begin)?.split_once(end)
}

/// Whether a line says a phrase, as words of its own.
fn says(line: &str, phrase: &str) -> bool {
    let is_letter =
        |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    line.match_indices(phrase).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + phrase.len()..]);
        !is_letter(before.chars().next_back()) && !is_letter(after.chars().next())
    })
}

/// The types and traits that a file makes public, with their lines.
fn public_names(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter_map(|(number, line)| {
        let rest = line.trim_start().strip_prefix("pub ")?;
        let rest = ["struct ", "enum ", "trait ", "type "].iter().find_map(|word| rest.strip_prefix(word))?;
        let end = rest.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(rest.len());
        let is_type = rest.starts_with(|letter: char| letter.is_ascii_uppercase());
        is_type.then_some((number, &rest[..end]))
    })
}

/// `DeadEvents` is `dead` and `events`.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() || words.is_empty() {
            words.push(String::new());
        }
        words.last_mut().expect("one was pushed").push(letter.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Architecture\n\n## Glossary\n\nPlain words: Config,\nerror.\n\n- **dead, dead letter**: given up; a copy \
                        of it. To **bury** is to make it so.\n- ~~put off~~: deferred\n\n## After\n\n- **never**: read\n";

    fn glossary() -> Glossary {
        Glossary::read(PAGE)
    }

    #[test]
    fn words_are_explained_plain_or_unknown() {
        let glossary = glossary();
        for known in ["dead", "letter", "letters", "bury", "config", "error"] {
            assert!(glossary.knows(known), "{known}");
        }
        assert!(!glossary.knows("never") && !glossary.knows("put"));
    }

    #[test]
    fn names_are_found_where_they_are_public_and_fall_into_words() {
        let text = "pub struct DeadLetters<T>(T);\npub(crate) struct Own;\n    pub enum Kind {\npub type type_of = u8;\n";
        assert_eq!(public_names(text).collect::<Vec<_>>(), [(1, "DeadLetters"), (3, "Kind")]);
        assert_eq!(words("DeadLetters"), ["dead", "letters"]);
    }

    #[test]
    fn a_retired_word_is_found_as_a_word_of_its_own() {
        let told: Vec<_> = glossary().retired_in("a.md", "it is Put off.\noutput offered\n").collect();
        assert_eq!(told, [Fault::new("a.md", 1, "`put off` is no longer used here; say deferred")]);
    }
}
