//! Credentials in URLs, which errors and answers like to quote, are not written down.

use std::borrow::Cow;

const HIDDEN: &str = "***";

/// The two slashes of a URL as some write them in JSON.
const ESCAPED: &str = "\\/\\/";

/// Names of parameters whose values are secrets.
const SECRET_PARAMETERS: [&str; 9] =
    ["password", "passwd", "token", "access_token", "api_key", "apikey", "secret", "signature", "sig"];

/// The text without the user names, passwords and tokens in its URLs.
///
/// ```
/// use backstop_core::redact::redacted;
///
/// assert_eq!(redacted("cannot reach amqp://joe:s3cret@mq:5672"), "cannot reach amqp://***@mq:5672");
/// ```
pub fn redacted(text: &str) -> Cow<'_, str> {
    if !text.contains("//") && !text.contains(ESCAPED) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, url, after)) = next_url(rest) {
        kept += before;
        push_url(&mut kept, url);
        rest = after;
    }
    Cow::Owned(kept + rest)
}

/// Splits at the next URL, which begins after its slashes and ends at the first character that no URL contains.
fn next_url(text: &str) -> Option<(&str, &str, &str)> {
    let plain = text.find("//").map(|at| (at, "\"'<>`|{}\\"));
    let escaped = text.find(ESCAPED).map(|at| (at, "\"'<>`|{}"));
    let (at, marks) = plain.into_iter().chain(escaped).min()?;
    let begin = text.len() - text[at..].trim_start_matches(['/', '\\']).len();
    let url = &text[begin..];
    let ends = |c: char| c.is_whitespace() || c.is_control() || marks.contains(c);
    let length = url.find(ends).unwrap_or(url.len());
    Some((&text[..begin], &url[..length], &url[length..]))
}

fn push_url(kept: &mut String, url: &str) {
    let authority = &url[..url.find(['/', '?', '#']).unwrap_or(url.len())];
    // A password with a slash in it would end the authority too early, and the path may contain another URL:
    // everything before the last `@` is removed anyway.
    match url.rfind('@').filter(|at| authority.contains('@') || url[..*at].contains(':')) {
        Some(at) => {
            *kept += HIDDEN;
            push_query(kept, &url[at..]);
        }
        None => push_query(kept, url),
    }
}

fn push_query(kept: &mut String, url: &str) {
    let mut separated = url.split_inclusive(['?', '&', ';', '#']);
    *kept += separated.next().unwrap_or_default();
    for parameter in separated {
        let end = parameter.find(['&', ';', '#']).unwrap_or(parameter.len());
        match parameter[..end].split_once('=') {
            Some((name, _)) if SECRET_PARAMETERS.contains(&name.to_ascii_lowercase().as_str()) => {
                kept.extend([name, "=", HIDDEN, &parameter[end..]]);
            }
            _ => *kept += parameter,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_and_passwords_in_urls_are_hidden_and_the_rest_stays() {
        for (text, kept) in [
            ("timeout: no answer", "timeout: no answer"),
            ("http://host/a?b=c refused", "http://host/a?b=c refused"),
            (
                "connect postgres://joe:s3cret@db:5432/shop failed",
                "connect postgres://***@db:5432/shop failed",
            ),
            ("https://token@host", "https://***@host"),
            ("(https://u:p@h/x), \"amqp://u:p@h\"", "(https://***@h/x), \"amqp://***@h\""),
            ("redis://:pa@ss@host/0", "redis://***@host/0"),
            ("ftp://u:pa/ss@host", "ftp://***@host"),
            ("https://h/?next=https://u:p@host/x", "https://***@host/x"),
            ("file:///u:p@host", "file:///***@host"),
            ("see //u:p@host/x and c:\\\\d", "see //***@host/x and c:\\\\d"),
            (r#"{"next":"https:\/\/u:p@host\/x"}"#, r#"{"next":"https:\/\/***@host\/x"}"#),
            ("mail me@example.org at http://host:80/", "mail me@example.org at http://host:80/"),
        ] {
            assert_eq!(redacted(text), kept);
        }
    }

    #[test]
    fn a_password_is_hidden_wherever_its_url_stands() {
        const CANARY: &str = "c4n4ryS3cret";
        let noise =
            ["", "", "1", "a", ":", "/", "?", "#", "@", "&", "=", "%", "%2F", "[", "]", ";", ",", "é"];
        let around =
            ["", " ", "(", ")", "\"", "'", "<a href=", ">", ": ", "//", "x//y ", "\n", "https://h/ ", "\\/"];
        let mut random = fastrand::Rng::with_seed(13);
        for _ in 0..50_000 {
            let mut some =
                |choices: &[&str]| random.choice(choices.iter().copied()).unwrap_or_default().to_owned();
            let password = some(&noise) + &some(&noise) + CANARY + &some(&noise);
            let slashes = some(&["//", "//", ESCAPED]);
            let url = some(&["https:", "postgres:", "amqp+ssl:", ""])
                + &slashes
                + "user:"
                + &password
                + "@host/path";
            let text = some(&around) + &some(&around) + &url + &some(&around) + &some(&around);
            let kept = redacted(&text);
            assert!(!kept.contains(CANARY), "{text:?}: {kept:?}");
        }
    }

    #[test]
    fn tokens_in_a_query_are_hidden() {
        assert_eq!(
            redacted("GET https://h/p?user=joe&Token=abc&page=2#x: 403"),
            "GET https://h/p?user=joe&Token=***&page=2#x: 403"
        );
        assert_eq!(redacted("https://h?sig=abc"), "https://h?sig=***");
    }
}
