//! As whom a server runs that must not run as root.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// The ids of the user that the server's package has made, where the test runs as root; else none is needed.
pub(super) fn of(user: &str) -> Result<Option<(u32, u32)>, String> {
    if !fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0) {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(|error| format!("/etc/passwd: {error}"))?;
    let ids = users.lines().find_map(|line| {
        let mut fields = line.strip_prefix(user)?.strip_prefix(':')?.split(':').skip(1);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    });
    ids.map(Some).ok_or_else(|| format!("there is no user `{user}`, as whom it must run under root"))
}
