//! The known word that is closest to one that is not known.

/// The known word that is closest to a given one, if one is close enough to be worth a suggestion.
pub(crate) fn closest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = kebab(given);
    let distance = |word: &&str| strsim::damerau_levenshtein(&given, word);
    let closest = known.into_iter().min_by_key(distance)?;
    // A third of the word may be wrong; of very short ones a letter.
    let tolerated = (closest.len() / 3).max(1);
    (distance(&closest) <= tolerated).then_some(closest)
}

/// A suggestion to put behind a fault, or nothing.
pub(crate) fn suggestion<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    closest(given, known).map(|word| format!("; did you mean `{word}`?")).unwrap_or_default()
}

/// `workerCount`, `WORKER_COUNT` and `worker_count` as this file's keys are written.
fn kebab(word: &str) -> String {
    let camel = word.chars().any(char::is_lowercase);
    let mut kebab = String::with_capacity(word.len() + 4);
    for (index, each) in word.chars().enumerate() {
        if camel && each.is_uppercase() && index > 0 && !kebab.ends_with('-') {
            kebab.push('-');
        }
        kebab.extend(if each == '_' || each == ' ' { '-' } else { each }.to_lowercase());
    }
    kebab
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 4] = ["worker-count", "hot-queue-capacity", "mode", "url"];

    #[test]
    fn slips_and_other_spellings_are_recognised() {
        for given in ["worker-cout", "workerCount", "WORKER_COUNT", "worker_count", "wroker-count"] {
            assert_eq!(closest(given, KEYS), Some("worker-count"), "{given}");
        }
        assert_eq!(closest("moed", KEYS), Some("mode"));
        assert_eq!(closest("uri", KEYS), Some("url"));
    }

    #[test]
    fn what_is_like_nothing_gets_no_suggestion() {
        assert_eq!(suggestion("colour", KEYS), "");
        assert_eq!(suggestion("x", []), "");
    }
}
