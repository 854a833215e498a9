//! YAML as a tree that knows where each part stands, built within limits.
//!
//! Settings need mappings, lists and scalars. Anchors, aliases, merge keys and tags are refused: they are how a
//! small file becomes a large one, and how a reader is led astray.

use std::borrow::Cow;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::fault::{Fault, Findings, Place};
use super::walk::shown;

/// How deep a file may be nested. The settings need six levels.
const DEPTH: usize = 16;

/// How many values a file may have.
const NODES: usize = 20_000;

/// A value, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) content: Content,
}

impl Node {
    /// What stands at its key `name`, if it has one.
    pub(crate) fn name(&self) -> Option<&str> {
        let Content::Map(entries) = &self.content else { return None };
        match &entries.iter().find(|entry| entry.key == "name")?.node.content {
            Content::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// Nothing, as in `key:`.
    Nothing,
    /// Something that was refused already.
    Refused,
    Scalar {
        text: String,
        quoted: bool,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) place: Place,
    pub(crate) node: Node,
}

/// Reads a file's text. What cannot be read at all ends it; other faults are gathered.
pub(crate) fn parse(text: &str, findings: &mut Findings) -> Result<Node, Fault> {
    let mut builder = Builder { findings, open: Vec::new(), root: None, nodes: 0, documents: 0 };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let mark = error.marker();
            let place = Place::File { line: mark.line(), column: mark.col() + 1 };
            Fault::new(place, "", format!("this is not YAML: {}{}", error.info(), hint(text, mark.line())))
        })?;
        builder.take(event, span)?;
    }
    Ok(builder.root.unwrap_or(Node { place: Place::START, content: Content::Nothing }))
}

/// The likeliest reason for YAML that cannot be read.
fn hint(text: &str, line: usize) -> &'static str {
    let near = text.lines().skip(line.saturating_sub(2)).take(2);
    let tabbed = |line: &str| line.chars().take_while(|c| c.is_whitespace()).any(|c| c == '\t');
    if near.into_iter().any(tabbed) { "; indent with spaces, not with tabs" } else { "" }
}

struct Builder<'a> {
    findings: &'a mut Findings,
    open: Vec<Open>,
    root: Option<Node>,
    nodes: usize,
    documents: usize,
}

/// A list or mapping that is not complete yet.
struct Open {
    place: Place,
    holds: Holding,
    refused: bool,
}

enum Holding {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, key: Option<(String, Place)> },
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Fault> {
        let place = Place::File { line: span.start.line(), column: span.start.col() + 1 };
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(Fault::new(
                        place,
                        "",
                        "a second document begins here; settings are one document",
                    ));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let refused = self.refuses(&place, anchor, tag.as_ref());
                let content = if refused { Content::Refused } else { scalar(text.into_owned(), style) };
                self.put(Node { place, content })?;
            }
            Event::Alias(_) => {
                let what = "aliases (`*name`) are not supported; write the value out";
                self.findings.add(Fault::new(place.clone(), "", what));
                self.put(Node { place, content: Content::Refused })?;
            }
            Event::SequenceStart(anchor, tag) => {
                let refused = self.refuses(&place, anchor, tag.as_ref());
                self.enter(Open { place, holds: Holding::List(Vec::new()), refused })?;
            }
            Event::MappingStart(anchor, tag) => {
                let refused = self.refuses(&place, anchor, tag.as_ref());
                let holds = Holding::Map { entries: Vec::new(), key: None };
                self.enter(Open { place, holds, refused })?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.leave()?,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    /// Whether a value is refused for its anchor or its tag.
    fn refuses(&mut self, place: &Place, anchor: usize, tag: Option<&Cow<'_, Tag>>) -> bool {
        if anchor > 0 {
            self.findings.add(Fault::new(
                place.clone(),
                "",
                "anchors (`&name`) are not supported; write the value out",
            ));
        }
        if tag.is_some() {
            self.findings.add(Fault::new(
                place.clone(),
                "",
                "tags (`!name`) are not supported; write the plain value",
            ));
        }
        anchor > 0 || tag.is_some()
    }

    fn enter(&mut self, open: Open) -> Result<(), Fault> {
        if self.open.len() == DEPTH {
            return Err(Fault::new(open.place, "", format!("nested deeper than {DEPTH} levels")));
        }
        self.open.push(open);
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Fault> {
        let Some(Open { place, holds, refused }) = self.open.pop() else { return Ok(()) };
        let content = match holds {
            _ if refused => Content::Refused,
            Holding::List(nodes) => Content::List(nodes),
            Holding::Map { entries, .. } => Content::Map(entries),
        };
        self.put(Node { place, content })
    }

    /// Puts a complete value where it belongs.
    fn put(&mut self, node: Node) -> Result<(), Fault> {
        self.nodes += 1;
        if self.nodes > NODES {
            return Err(Fault::new(
                node.place,
                "",
                format!("more than {NODES} values, which is too many for a settings file"),
            ));
        }
        match self.open.last_mut().map(|open| &mut open.holds) {
            None => self.root = Some(node),
            Some(Holding::List(nodes)) => nodes.push(node),
            Some(Holding::Map { entries, key }) => match (key.take(), node) {
                (Some((key, place)), node) => match first(entries, &key) {
                    Some(before) => {
                        let key = shown(&key).map(|key| format!(" `{key}`")).unwrap_or_default();
                        let what = format!("the key{key} is given twice; it is already on line {before}");
                        self.findings.add(Fault::new(place, "", what));
                    }
                    None => entries.push(Entry { key, place, node }),
                },
                (None, Node { place, content: Content::Scalar { text, .. } }) => *key = Some((text, place)),
                (None, Node { place, .. }) => {
                    self.findings.add(Fault::new(place.clone(), "", "a key must be a plain name"));
                    *key = Some((String::new(), place));
                }
            },
        }
        Ok(())
    }
}

/// The line on which a key stands first.
fn first(entries: &[Entry], key: &str) -> Option<usize> {
    let same = entries.iter().find(|entry| entry.key == key)?;
    match same.place {
        Place::File { line, .. } => Some(line),
        Place::Variable(_) => None,
    }
}

fn scalar(text: String, style: ScalarStyle) -> Content {
    let quoted = style != ScalarStyle::Plain;
    match text.as_str() {
        "" | "~" | "null" | "Null" | "NULL" if !quoted => Content::Nothing,
        _ => Content::Scalar { text, quoted },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        if let Err(fault) = parse(text, &mut findings) {
            findings.add(fault);
        }
        findings.faults().map(|fault| fault.told("f").to_string()).collect()
    }

    #[test]
    fn every_value_knows_its_line_and_column() {
        let mut findings = Findings::default();
        let root = parse("a:\n  - x\n  - \"\"\nb: ~\n", &mut findings).unwrap();
        let Content::Map(entries) = root.content else { panic!("{root:?}") };
        assert_eq!(entries[0].place, Place::File { line: 1, column: 1 });
        let Content::List(items) = &entries[0].node.content else { panic!("{entries:?}") };
        assert_eq!(items[0].place, Place::File { line: 2, column: 5 });
        assert_eq!(items[1].content, Content::Scalar { text: String::new(), quoted: true });
        assert_eq!(entries[1].node.content, Content::Nothing);
        assert_eq!(findings.faults().len(), 0);
    }

    #[test]
    fn a_bomb_of_aliases_is_refused_where_it_begins_and_takes_no_room() {
        let aliases = |name: &str, of: &str| format!("{name}: &{name} [*{of}, *{of}, *{of}, *{of}, *{of}]\n");
        let more = ["b", "c", "d", "e", "f", "g", "h"].iter().zip(["a", "b", "c", "d", "e", "f", "g"]);
        let bomb: String = more.map(|(name, of)| aliases(name, of)).collect();
        let bomb = "a: &a [x, x, x, x, x]\n".to_owned() + &bomb;
        let told = told(&bomb);
        assert_eq!(told[0], "f:1:4: anchors (`&name`) are not supported; write the value out");
        assert_eq!(told[2], "f:2:8: aliases (`*name`) are not supported; write the value out");
    }

    #[test]
    fn twice_the_same_key_is_told_with_both_lines() {
        assert_eq!(
            told("a: 1\nb: 2\na: 3\n"),
            ["f:3:1: the key `a` is given twice; it is already on line 1"]
        );
    }

    #[test]
    fn tags_documents_and_keys_that_are_no_names_are_told() {
        assert_eq!(told("a: !!str 1\n"), ["f:1:4: tags (`!name`) are not supported; write the plain value"]);
        assert_eq!(
            told("a: 1\n---\nb: 2\n"),
            ["f:2:1: a second document begins here; settings are one document"]
        );
        assert_eq!(told("? [a]\n: 1\n"), ["f:1:3: a key must be a plain name"]);
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let deep = told(&("a: ".to_owned() + &"[".repeat(200)));
        assert_eq!(deep, ["f:1:19: nested deeper than 16 levels"]);
        let long = told(&"- 1\n".repeat(30_000));
        assert_eq!(long, ["f:20001:3: more than 20000 values, which is too many for a settings file"]);
    }

    #[test]
    fn tabs_are_named_as_the_likely_cause() {
        let told = told("a:\n\tb: 1\n");
        assert!(
            told[0].starts_with("f:2:") && told[0].ends_with("indent with spaces, not with tabs"),
            "{told:?}"
        );
    }
}
