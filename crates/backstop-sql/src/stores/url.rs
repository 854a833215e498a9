//! Database URLs, checked before a driver reads them: drivers log and quote what they do not understand, and that may
//! be a password.

use std::borrow::Cow;
use std::fs::File;
use std::path::Path;

#[cfg(feature = "_server")]
use sqlx::{Connection, Database, Pool, pool::PoolOptions};

#[cfg(feature = "_server")]
use crate::database::acquire::cause;
use crate::{Error, TlsMode};

/// How the URLs of a database are written.
pub(super) struct Form {
    pub(super) example: &'static str,
    /// Whether a server follows, or a file.
    pub(super) names_server: bool,
    pub(super) parameters: &'static [(&'static str, Takes)],
}

/// What a parameter may be.
#[allow(dead_code, reason = "a database needs some of them")]
pub(super) enum Takes {
    Anything,
    /// One of these, in whichever case.
    OneOf(&'static [&'static str]),
    /// How connections are encrypted: one of these words, in whichever case.
    Mode(&'static [(&'static str, TlsMode)]),
    /// A file with certificates or a key, or what would stand in it: the setting that says the same.
    Pem(&'static str),
}

impl Form {
    /// Looks at everything that a driver would quote. No fault repeats more than the name of a parameter.
    pub(super) fn check(&self, url: &str) -> Result<(), Error> {
        let wrong = |why: String| Error::Url { why, example: self.example };
        let rest = url.split_once(':').map_or(url, |(_, rest)| rest);
        let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
        self.check_place(place).map_err(|why| wrong(why.to_owned()))?;
        if self.names_server && rest.contains('#') {
            return Err(wrong(format!("it has a # in it; {ENCODE}")));
        }
        let Some(query) = query else { return Ok(()) };
        if self.names_server && query.contains('@') && !place.contains('@') {
            return Err(wrong(format!("there is an @ after its ?; {ENCODE}")));
        }
        self.check_query(query).map_err(wrong)
    }

    /// Looks at the files that a driver reads because environment variables name them.
    #[cfg(feature = "_server")]
    pub(super) fn check_environment(&self, names: &[&str]) -> Result<(), Error> {
        let set = names.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        let mut checked =
            set.map(|(name, path)| check_file(&format!("the environment variable {name}"), path.as_ref()));
        checked.find_map(Result::err).map_or(Ok(()), |why| Err(Error::Url { why, example: self.example }))
    }

    /// What is said when the driver does not understand the URL. Its own words may quote it.
    pub(super) fn unreadable(&self) -> Error {
        let why = format!("its host, its port or a parameter cannot be read; {ENCODE}");
        Error::Url { why, example: self.example }
    }

    fn check_place(&self, place: &str) -> Result<(), &'static str> {
        let behind = place.strip_prefix("//");
        if !self.names_server {
            // A driver would take the password for a part of the file's name.
            let at = place.rfind('@').filter(|at| place[..*at].contains(':'));
            return at.map_or(Ok(()), |_| {
                Err("it must be the path of a file, and this looks like a server with a user")
            });
        }
        let Some(behind) = behind else { return Err("two slashes must follow its first colon") };
        match behind.split_once('/') {
            Some((_, path)) if path.contains('@') => {
                Err("there is an @ after its host; in a user name or password write / as %2F and @ as %40")
            }
            _ => Ok(()),
        }
    }

    fn check_query(&self, query: &str) -> Result<(), String> {
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) =
                parameter.split_once('=').map_or((parameter, None), |(name, value)| (name, Some(value)));
            let Some(takes) = self.takes(name) else {
                let shown = value.is_some() && is_word(name) && !query.contains('@');
                let which = if shown { format!("the parameter {name}") } else { "a parameter".to_owned() };
                let known: Vec<_> = self.parameters.iter().map(|(name, _)| *name).collect();
                return Err(format!("it has {which} that is not known; known are {}", known.join(", ")));
            };
            let value = decoded(value.unwrap_or_default());
            let not_one_of =
                |words: &[&str]| format!("its parameter {name} must be one of {}", words.join(", "));
            match takes {
                Takes::Anything => {}
                Takes::OneOf(words) => {
                    if !words.contains(&value.to_ascii_lowercase().as_str()) {
                        return Err(not_one_of(words));
                    }
                }
                Takes::Mode(words) => {
                    if !words.iter().any(|(word, _)| *word == value.to_ascii_lowercase()) {
                        return Err(not_one_of(&words.iter().map(|(word, _)| *word).collect::<Vec<_>>()));
                    }
                }
                Takes::Pem(_) => {
                    let what = format!("its parameter {name}");
                    check_file(&what, Path::new(&*value))?;
                    if !is_content(&value) {
                        File::open(&*value)
                            .map_err(|error| format!("{what} names a file that cannot be read: {error}"))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The parameters of a URL that this form knows, as drivers read them.
    #[cfg(feature = "_server")]
    pub(super) fn parameters<'a>(
        &'a self,
        url: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Takes, Cow<'a, str>)> {
        let query = url.split_once('?').map_or("", |(_, query)| query);
        let named = query.split('&').filter_map(|parameter| parameter.split_once('='));
        named.filter_map(|(name, value)| Some((name, self.takes(name)?, decoded(value))))
    }

    fn takes(&self, name: &str) -> Option<&Takes> {
        let known = |(known, _): &&(&str, Takes)| match known.strip_suffix("[…]") {
            Some(stem) => {
                name.strip_prefix(stem).is_some_and(|rest| rest.starts_with('[') && rest.ends_with(']'))
            }
            None => *known == name,
        };
        self.parameters.iter().find(known).map(|(_, takes)| takes)
    }
}

const ENCODE: &str = "in a user name or password write @ as %40, : as %3A, / as %2F, ? as %3F and # as %23";

/// Refuses what a driver would wait for, as for a pipe that nobody writes to. What is not there is for the driver to tell.
pub(super) fn check_file(what: &str, path: &Path) -> Result<(), String> {
    match path.metadata() {
        Ok(found) if !is_content(&path.to_string_lossy()) && !found.is_file() => {
            Err(format!("{what} names something that is not a regular file"))
        }
        _ => Ok(()),
    }
}

/// Whether a text is what would stand in a file with certificates or a key.
pub(super) fn is_content(text: &str) -> bool {
    text.trim_start().starts_with("-----BEGIN")
}

/// A pool with one connection, or why there is none.
#[cfg(feature = "_server")]
pub(super) async fn connect<DB: Database>(
    pool: PoolOptions<DB>,
    options: <DB::Connection as Connection>::Options,
    server: String,
) -> Result<Pool<DB>, Error> {
    let source = match pool.connect_with(options.clone()).await {
        Ok(pool) => return Ok(pool),
        Err(sqlx::Error::PoolTimedOut) => cause::<DB>(&options).await,
        Err(source) => source,
    };
    Err(Error::connecting(server, source))
}

/// Whether a text is the name of a parameter, and not a password that came there by mistake.
fn is_word(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=40).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(plain)
}

/// A value as drivers read it.
fn decoded(value: &str) -> Cow<'_, str> {
    if !value.contains(['%', '+']) {
        return Cow::Borrowed(value);
    }
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|digits| str::from_utf8(digits).ok());
        let digits = digits.filter(|_| *byte == b'%');
        if let Some(escaped) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            bytes.push(escaped);
            rest = &behind[2..];
        } else {
            bytes.push(if *byte == b'+' { b' ' } else { *byte });
            rest = behind;
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Form = Form {
        example: "db://user@host/database",
        names_server: true,
        parameters: &[
            ("mode", Takes::OneOf(&["on", "off"])),
            ("tls", Takes::Mode(&[("must", TlsMode::Require), ("full", TlsMode::VerifyFull)])),
            ("ca", Takes::Pem("ca")),
            ("options", Takes::Anything),
            ("options[…]", Takes::Anything),
        ],
    };
    const FILE: Form = Form { example: "db:file", names_server: false, parameters: &[] };

    fn told(form: &Form, url: &str) -> String {
        form.check(url).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn what_a_driver_understands_passes() {
        for url in [
            "db://h",
            "db:///d",
            "db://u:p@h:1/d?mode=ON&options=a@b&options[x]=y&",
            "db://u:p%2F@h/d%40?ca=-----BEGIN+CERTIFICATE",
            "db://u@tenant:p@h/d?tls=FULL",
        ] {
            assert_eq!(told(&SERVER, url), "", "{url}");
        }
        for url in ["db:a.db", "db:///a@b/c.db", "db::memory:"] {
            assert_eq!(told(&FILE, url), "", "{url}");
        }
    }

    #[test]
    fn what_a_driver_would_quote_or_misread_is_refused_and_not_repeated() {
        for (url, part) in [
            ("db:u:hunter2@h/d", "two slashes"),
            ("db:/u:hunter2@h/d", "two slashes"),
            ("db://u:12/hunter2@h/d", "there is an @ after its host"),
            ("db://u:12?hunter2@h/d", "there is an @ after its ?"),
            ("db://u:12?options=hunter2@h/d", "there is an @ after its ?"),
            ("db://v@u:12?hunter2=@h/d", "a parameter that is not known"),
            ("db://u:12#hunter2@h/d", "a # in it"),
            ("db://h/d?hunter2", "a parameter that is not known"),
            ("db://h/d?h%75nter2=1", "a parameter that is not known"),
            ("db://h/d?sslpasswrod=hunter2", "the parameter sslpasswrod that is not known"),
            ("db://h/d?mode=hunter2", "its parameter mode must be one of on, off"),
            ("db://h/d?tls=hunter2", "its parameter tls must be one of must, full"),
            ("db://h/d?ca=/no/such/file", "its parameter ca names a file that cannot be read: No such file"),
            ("db://h/d?ca=%2Fdev%2Fnull", "its parameter ca names something that is not a regular file"),
        ] {
            let told = told(&SERVER, url);
            assert!(told.contains(part) && !told.contains("hunter2"), "{url}: {told}");
        }
        let told = told(&FILE, "db://u:hunter2@h/d");
        assert!(told.contains("looks like a server") && !told.contains("hunter2"), "{told}");
    }
}
