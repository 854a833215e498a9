//! Who may do what: bearer tokens, of which only hashes are kept, and the roles of their holders.

use std::fmt;
use std::hint::black_box;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method};
use backstop_core::repeats::Repeats;
use backstop_core::{Clock, SystemClock};
use sha2::{Digest, Sha256};

backstop_core::choice! {
    /// What the holder of a token may do. Each role may do what those before it may.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Role {
        /// Look at everything.
        Viewer = "viewer",
        /// Do what an operator does every day.
        Operator = "operator",
        /// Do everything.
        Admin = "admin",
    }
}

/// A token that lets somebody in, known by its hash alone.
///
/// A token must be random and long, since a fast hash hides it only then: 32 random bytes, written in hexadecimal.
///
/// ```
/// use backstop_admin::{Role, Token};
///
/// let token = Token::of("ops", Role::Operator, "bst_4f9d…");
/// assert_eq!(token.hash_in_hex().len(), 64);
/// assert!(Token::from_hash("ops", Role::Operator, &token.hash_in_hex()).is_some());
/// assert!(Token::from_hash("ops", Role::Operator, "4f9d").is_none());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    name: String,
    role: Role,
    hash: [u8; 32],
}

impl Token {
    /// The token of this text, which is hashed and forgotten.
    pub fn of(name: impl Into<String>, role: Role, text: &str) -> Self {
        Self { name: name.into(), role, hash: Sha256::digest(text).into() }
    }

    /// The token with this SHA-256, in hexadecimal; `None` if the text is not one.
    pub fn from_hash(name: impl Into<String>, role: Role, hash: &str) -> Option<Self> {
        if hash.len() != 64 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hash[2 * index..2 * index + 2], 16).ok()?;
        }
        Some(Self { name: name.into(), role, hash: bytes })
    }

    /// Its hash in hexadecimal, to be kept in settings.
    pub fn hash_in_hex(&self) -> String {
        self.hash.iter().fold(String::with_capacity(64), |text, byte| text + &format!("{byte:02x}"))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("name", &self.name).field("role", &self.role).finish_non_exhaustive()
    }
}

/// All tokens. Without any, everybody who reaches the dashboard may look at it.
#[derive(Debug, Default)]
pub(crate) struct Access {
    tokens: Vec<Token>,
    /// Those who came with a wrong one.
    wrong: Mutex<Repeats>,
}

/// How often wrong tokens are told of: whoever tries many must not fill the log.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Where operators ask for changes.
pub(crate) const OPERATIONS: &str = "/api/v1/operations";

/// What a request is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allowed,
    /// No token, or one that is not known.
    Unknown,
    /// The role that would be needed.
    TooLow(Role),
}

impl Access {
    pub(crate) fn new(tokens: Vec<Token>) -> Self {
        Self { tokens, wrong: Mutex::default() }
    }

    /// Whether a token is needed at all.
    pub(crate) fn is_guarded(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Whether a request may be made by whoever sent it.
    pub(crate) fn judge(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        peer: Option<IpAddr>,
    ) -> Verdict {
        let Some(needed) = needed(method, path).filter(|_| self.is_guarded()) else {
            return Verdict::Allowed;
        };
        match self.holder(headers) {
            None => {
                // Who sends none is asked for one; who sends a wrong one is mistaken, or tries.
                if headers.contains_key(AUTHORIZATION) {
                    self.tell_wrong(path, peer);
                }
                Verdict::Unknown
            }
            Some(token) if token.role < needed => {
                tracing::warn!(token = token.name, role = %token.role, %needed, %method, path, "refused a request");
                Verdict::TooLow(needed)
            }
            Some(token) => {
                // Who changed something is written down.
                if !matches!(*method, Method::GET | Method::HEAD) {
                    tracing::info!(token = token.name, role = %token.role, %method, path, "allowed a change");
                }
                Verdict::Allowed
            }
        }
    }

    /// Never the token: a mistyped one is nearly right.
    fn tell_wrong(&self, path: &str, peer: Option<IpAddr>) {
        let told = {
            let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
            wrong.tell(SystemClock.ticks(), TOLD_EVERY)
        };
        if let Some(before) = told {
            let peer = peer.map(|peer| peer.to_string());
            tracing::warn!(
                peer,
                path,
                before,
                "refused a request with a wrong access token; this is told once a minute at most"
            );
        }
    }

    /// Whether a request comes with a token that is known, whatever its role.
    pub(crate) fn knows(&self, headers: &HeaderMap) -> bool {
        !self.is_guarded() || self.holder(headers).is_some()
    }

    /// Who sent a request, by the name of the token.
    pub(crate) fn name_of(&self, headers: &HeaderMap) -> Option<&str> {
        self.holder(headers).map(|token| token.name.as_str())
    }

    fn holder(&self, headers: &HeaderMap) -> Option<&Token> {
        let mut given = headers.get_all(AUTHORIZATION).into_iter();
        let (Some(given), None) = (given.next(), given.next()) else { return None };
        let (scheme, text) = given.to_str().ok()?.split_once(' ')?;
        let hash: [u8; 32] = Sha256::digest(text.trim()).into();
        // All are compared, and to their ends, so that the time it takes tells nothing.
        let known = self
            .tokens
            .iter()
            .fold(None, |known, token| if same(&token.hash, &hash) { Some(token) } else { known });
        known.filter(|_| scheme.eq_ignore_ascii_case("bearer"))
    }
}

/// What anybody may ask: the page without its data, and what orchestrators ask, who hold no token.
const OPEN: [&str; 4] = ["/", "/health", "/live", "/ready"];

/// The role that a request needs. What is not listed here is denied to all but the highest role, so that an action
/// that somebody adds is closed until it is thought about. The page's files hold no data: a browser must be able to
/// load them before it can send a token.
fn needed(method: &Method, path: &str) -> Option<Role> {
    match *method {
        Method::GET | Method::HEAD if OPEN.contains(&path) || path.starts_with("/assets/") => None,
        Method::GET | Method::HEAD => Some(Role::Viewer),
        Method::POST if path == OPERATIONS => Some(Role::Operator),
        _ => Some(Role::Admin),
    }
}

/// Compares without ending at the first difference.
fn same(left: &[u8; 32], right: &[u8; 32]) -> bool {
    let differences = left.iter().zip(right).fold(0, |all, (left, right)| black_box(all | (left ^ right)));
    differences == 0
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(authorization: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(authorization).unwrap())])
    }

    #[test]
    fn each_role_may_do_what_those_below_it_may_and_no_more() {
        let roles = [Role::Viewer, Role::Operator, Role::Admin];
        let access = Access::new(
            roles.map(|role| Token::of(role.to_string(), role, &format!("secret-{role}"))).into(),
        );
        let judge = |method: Method, role: &str| {
            access.judge(&method, "/api/v1/components", &headers(&format!("Bearer secret-{role}")), None)
        };
        for role in ["viewer", "operator", "admin"] {
            assert_eq!(judge(Method::GET, role), Verdict::Allowed, "{role}");
        }
        // An action that nobody has thought about is for the highest role alone.
        assert_eq!(judge(Method::POST, "viewer"), Verdict::TooLow(Role::Admin));
        assert_eq!(judge(Method::POST, "operator"), Verdict::TooLow(Role::Admin));
        assert_eq!(judge(Method::POST, "admin"), Verdict::Allowed);
        let operate = |role: &str| {
            access.judge(&Method::POST, OPERATIONS, &headers(&format!("Bearer secret-{role}")), None)
        };
        assert_eq!(operate("viewer"), Verdict::TooLow(Role::Operator));
        assert_eq!((operate("operator"), operate("admin")), (Verdict::Allowed, Verdict::Allowed));
        assert_eq!(access.judge(&Method::POST, OPERATIONS, &HeaderMap::new(), None), Verdict::Unknown);
    }

    #[test]
    fn what_is_no_token_of_ours_lets_nobody_in() {
        let access = Access::new(vec![Token::of("ops", Role::Admin, "right")]);
        let hash = Token::of("ops", Role::Admin, "right").hash_in_hex();
        for wrong in ["Bearer wrong", "Basic right", "right", "Bearer", "Bearer ", &format!("Bearer {hash}")]
        {
            let verdict = access.judge(&Method::GET, "/metrics", &headers(wrong), None);
            assert_eq!(verdict, Verdict::Unknown, "{wrong}");
        }
        assert_eq!(access.judge(&Method::GET, "/metrics", &HeaderMap::new(), None), Verdict::Unknown);
        let mut twice = headers("Bearer right");
        twice.append(AUTHORIZATION, HeaderValue::from_static("Bearer wrong"));
        assert_eq!(access.judge(&Method::GET, "/metrics", &twice, None), Verdict::Unknown);
    }

    /// And each bit of it.
    #[test]
    fn each_byte_of_a_hash_counts() {
        let right = Token::of("ops", Role::Admin, "right");
        let judge = |token: Token| {
            Access::new(vec![token]).judge(&Method::GET, "/metrics", &headers("Bearer right"), None)
        };
        assert_eq!(judge(right.clone()), Verdict::Allowed);
        for (byte, bit) in (0..32).flat_map(|byte| (0..8).map(move |bit| (byte, bit))) {
            let mut wrong = right.clone();
            wrong.hash[byte] ^= 1 << bit;
            assert_eq!(judge(wrong.clone()), Verdict::Unknown, "bit {bit} of byte {byte}");
            // Each is read from the settings, too.
            assert_eq!(Token::from_hash("ops", Role::Admin, &wrong.hash_in_hex()), Some(wrong));
        }
    }

    #[test]
    fn a_hash_is_64_hexadecimal_digits_and_nothing_else() {
        let right = Token::of("ops", Role::Admin, "right").hash_in_hex();
        let read = |hash: &str| Token::from_hash("ops", Role::Admin, hash);
        assert_eq!(read(&right.to_uppercase()), read(&right));
        assert!(read(&right).is_some());
        for wrong in [&right[1..], &format!("{right}0"), "", &"é".repeat(32)] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        for (index, odd) in (0..64).flat_map(|index| ["+", "-", " ", "g", "\0"].map(|odd| (index, odd))) {
            let mut wrong = right.clone();
            wrong.replace_range(index..=index, odd);
            assert_eq!(read(&wrong), None, "{odd:?} at {index}");
        }
    }

    #[test]
    fn two_differences_do_not_undo_each_other() {
        let right = Token::of("ops", Role::Admin, "right");
        for (one, other) in (0..32).flat_map(|one| (0..one).map(move |other| (one, other))) {
            let mut wrong = right.hash;
            wrong[one] ^= 0x55;
            wrong[other] ^= 0x55;
            assert!(!same(&right.hash, &wrong), "bytes {one} and {other}");
        }
    }

    #[test]
    fn a_token_does_not_show_its_hash() {
        let token = Token::of("ops", Role::Admin, "right");
        assert!(!format!("{token:?}").contains(&token.hash_in_hex()[..8]), "{token:?}");
    }
}
