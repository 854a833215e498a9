//! File names: a pure function of the moment and the event.
//!
//! The plain name is `<millis>-<id>.jsonl`. Where that would be too long, or where the id had to be changed,
//! two different ids could get the same name; and two sources may use the same id in the same millisecond. A short
//! hash after the id distinguishes them: `<millis>-<id>-<hash>.jsonl`.

use std::ffi::OsStr;

use backstop_core::{CloudEvent, Timestamp};

/// The ending of a file that holds events, complete.
const ENDING: &str = ".jsonl";

/// The ending of a file with marks.
const MARKS_ENDING: &str = ".sent";

/// The ending of a file that is not complete yet, or never will be.
const DRAFT_ENDING: &str = ".tmp";

/// What filesystems allow.
const MAX_BYTES: usize = 255;

const HASH_DIGITS: usize = 12;

/// The name to try first.
pub(super) fn first_choice(failed_at: Timestamp, event: &CloudEvent) -> String {
    let id = sanitized(event.id());
    let plain = format!("{}-{id}{ENDING}", millis(failed_at));
    if id.is_empty() || id != event.id() || plain.len() > MAX_BYTES {
        return hashed(failed_at, event, None);
    }
    plain
}

/// A name to try when another is taken: with the event's own hash first, then with random ones.
pub(super) fn hashed(failed_at: Timestamp, event: &CloudEvent, nonce: Option<u64>) -> String {
    let (time, mut id) = (millis(failed_at).to_string(), sanitized(event.id()));
    id.truncate(MAX_BYTES - time.len() - "--".len() - HASH_DIGITS - ENDING.len());
    let salt = nonce.map(u64::to_le_bytes);
    let hash =
        fnv([event.source().as_bytes(), &[0], event.id().as_bytes(), salt.as_ref().map_or(&[], |it| it)]);
    // The upper bits are the better mixed ones.
    format!("{time}-{id}-{:0width$x}{ENDING}", hash >> (64 - 4 * HASH_DIGITS), width = HASH_DIGITS)
}

/// The name of a file that is being written: bounded whatever the id, and its own whatever others do.
pub(super) fn draft(now: Timestamp, nonce: u64) -> String {
    format!(".{}-{nonce:016x}{DRAFT_ENDING}", millis(now))
}

/// The name of a file that takes many events.
pub(super) fn rolling(now: Timestamp, nonce: u64) -> String {
    format!("{}-rolling-{nonce:016x}{ENDING}", millis(now))
}

/// The name of the file that says which lines of another have been sent again.
pub(super) fn marks(of: &str) -> String {
    format!(".{:016x}{MARKS_ENDING}", fnv([of.as_bytes()]))
}

/// Whether a name is that of a file with events.
pub(super) fn is_letter(name: &str) -> bool {
    name.ends_with(ENDING) && !name.starts_with('.')
}

/// The name of a file with events, in a readable form, if it is not text and therefore no place can name it.
pub(super) fn of_letter_that_is_no_text(name: &OsStr) -> Option<String> {
    let bytes = name.as_encoded_bytes();
    let is_letter = bytes.ends_with(ENDING.as_bytes()) && !bytes.starts_with(b".");
    (is_letter && name.to_str().is_none()).then(|| bytes.escape_ascii().to_string())
}

/// Whether a name is that of a file with marks.
pub(super) fn is_marks(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(MARKS_ENDING)
}

/// Whether a name is that of a file that is being written, or was.
pub(super) fn is_draft(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(DRAFT_ENDING)
}

/// When the event in a file failed, if its name says so.
pub(super) fn failed_at(name: &str) -> Option<Timestamp> {
    let (millis, _) = name.trim_start_matches('.').split_once('-')?;
    Timestamp::from_timestamp_millis(millis.parse().ok()?)
}

fn millis(moment: Timestamp) -> i64 {
    // A machine whose clock stands before 1970 has other worries; a name must not begin with a dash.
    moment.timestamp_millis().max(0)
}

fn sanitized(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect()
}

/// FNV-1a: the same on every machine and in every version. If two names still collide, another one is tried.
fn fnv<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    parts.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use backstop_core::Clock;
    use backstop_testkit::clock::ManualClock;
    use proptest::prelude::*;

    use super::*;

    const MILLIS: &str = "1893456000000";

    fn now() -> Timestamp {
        ManualClock::new().now()
    }

    fn event(id: &str) -> CloudEvent {
        from("/a", id)
    }

    fn from(source: &str, id: &str) -> CloudEvent {
        let attributes = [("id", id), ("source", source), ("type", "t")];
        let map: serde_json::Map<_, _> =
            attributes.map(|(key, value)| (key.to_owned(), value.into())).into_iter().collect();
        CloudEvent::from_json(serde_json::to_string(&map).unwrap()).unwrap()
    }

    fn name_of(id: &str) -> String {
        first_choice(now(), &event(id))
    }

    /// Rules: D-012, D-016.
    #[test]
    fn in_the_plain_case_the_name_is_the_time_and_the_id_as_it_is() {
        for id in ["42", "01JABCDEFGHJKMNPQRSTVWXYZ0", "A.b_c-9", ".", "..", "-"] {
            assert_eq!(name_of(id), format!("{MILLIS}-{id}.jsonl"));
        }
        let longest = "x".repeat(255 - MILLIS.len() - "-.jsonl".len());
        assert_eq!(name_of(&longest), format!("{MILLIS}-{longest}.jsonl"));
    }

    /// Rules: D-015.
    #[test]
    fn each_character_outside_the_set_becomes_one_underscore_and_a_hash_tells() {
        for (id, shown) in [
            ("a/b", "a_b"),
            ("a\\b", "a_b"),
            ("é😀", "__"),
            ("a b\n*?[]{}$~'\"", "a_b___________"),
            ("a\0", "a_"),
            ("../../etc/passwd", ".._.._etc_passwd"),
            ("", ""),
        ] {
            let name = name_of(id);
            let hash =
                name.strip_prefix(&format!("{MILLIS}-{shown}-")).and_then(|rest| rest.strip_suffix(".jsonl"));
            let hash = hash.unwrap_or_else(|| panic!("{id:?}: {name}"));
            assert!(hash.len() == 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
        }
    }

    #[test]
    fn ids_that_are_changed_or_cut_alike_have_names_of_their_own() {
        let long = "x".repeat(300);
        let ids = ["a/b", "a b", "a_b", "é", "ü", &long, &format!("{long}y"), &"x".repeat(10_240), ""];
        assert_eq!(ids.iter().map(|id| name_of(id)).collect::<HashSet<_>>().len(), ids.len());
        assert!(ids.iter().all(|id| name_of(id).len() <= 255));
    }

    #[test]
    fn a_name_that_is_taken_is_followed_by_one_of_its_source_and_then_by_random_ones() {
        let (a, b) = (from("/a", "42"), from("/b", "42"));
        assert_eq!(first_choice(now(), &a), first_choice(now(), &b));
        assert_ne!(hashed(now(), &a, None), hashed(now(), &b, None));
        assert_eq!(hashed(now(), &a, None), hashed(now(), &a, None));
        assert_ne!(hashed(now(), &a, Some(1)), hashed(now(), &a, Some(2)));
    }

    #[test]
    fn the_time_is_read_back_from_a_name_and_names_sort_by_it() {
        assert_eq!(failed_at(&name_of("a-b")), Some(now()));
        assert_eq!(failed_at(&draft(now(), 7)), Some(now()));
        assert_eq!(failed_at(&rolling(now(), 7)), Some(now()));
        for odd in ["notes.jsonl", "12x-a.jsonl", "", "-"] {
            assert_eq!(failed_at(odd), None, "{odd}");
        }
    }

    #[test]
    fn drafts_and_marks_are_no_letters() {
        assert!(is_letter(&name_of("a")) && is_letter(&rolling(now(), 1)));
        for other in [draft(now(), 1), marks("a.jsonl"), ".hidden.jsonl".to_owned(), "a.json".to_owned()] {
            assert!(!is_letter(&other), "{other}");
        }
    }

    proptest! {
        /// Rules: D-015, D-017, D-018.
        #[test]
        fn whatever_the_id_the_name_is_one_plain_bounded_part_of_a_path(id: String, nonce: Option<u64>) {
            for name in [name_of(&id), hashed(now(), &event(&id), nonce)] {
                prop_assert!(name.len() <= 255 && name.starts_with(MILLIS) && is_letter(&name));
                prop_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)));
                prop_assert_eq!(std::path::Path::new(&name).components().count(), 1);
            }
        }
    }
}
