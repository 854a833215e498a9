//! The keys of settings: what each is called in a file, what it holds, and what it means.

use serde_json::{Map, Value};

use super::ValueKind;

/// A key and what it holds.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// As it is written in a settings file: `connect-timeout`.
    pub name: &'static str,
    /// What it holds.
    pub holds: Holds,
    /// One or two sentences, for the reference and for rustdoc.
    pub meaning: &'static str,
}

/// What a key holds.
#[derive(Debug, Clone, Copy)]
pub enum Holds {
    /// One value.
    One(ValueKind, Absent),
    /// A list of values; one alone may be written without the list.
    Many(ValueKind, Absent),
    /// Names of the user's choice, each with a value.
    Map(ValueKind, Absent),
    /// More keys. If the group is absent, so is each of them.
    Group(Group),
    /// More keys, whose presence alone means something.
    Choice(Group),
    /// A list of such groups.
    Groups(Group),
    /// A component: one such group, or a list of them, each with its `name`.
    GroupOrGroups(Group),
}

impl Holds {
    /// The keys below, if it holds keys.
    pub fn group(&self) -> Option<Group> {
        match self {
            Self::Group(group) | Self::Choice(group) | Self::Groups(group) | Self::GroupOrGroups(group) => {
                Some(*group)
            }
            Self::One(..) | Self::Many(..) | Self::Map(..) => None,
        }
    }
}

/// Keys that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    /// All of them.
    pub keys: &'static [Key],
    /// The values of those that have [`Absent::Default`], as a settings file writes them.
    pub defaults: fn() -> Map<String, Value>,
}

/// What applies if a key is not given.
#[derive(Debug, Clone, Copy)]
pub enum Absent {
    /// It must be given; the text says what for.
    Required(&'static str),
    /// The default of the `Config` that it belongs to.
    Default,
    /// This value, written as in the file.
    Is(&'static str),
    /// No value; the text says what that means.
    Unset(&'static str),
}

/// Two tables as one.
///
/// # Panics
///
/// When the program is built, if `N` is not the length of both.
pub const fn join<const N: usize>(first: &[Key], second: &[Key]) -> [Key; N] {
    assert!(first.len() + second.len() == N, "the length of both");
    let mut all = [first[0]; N];
    let mut index = 0;
    while index < N {
        all[index] = if index < first.len() { first[index] } else { second[index - first.len()] };
        index += 1;
    }
    all
}
