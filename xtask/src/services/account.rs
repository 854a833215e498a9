//! The users that servers run as: their own when we are root and they refuse root, else the current one.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::name::Name;
use super::newer;

/// Whether this program runs as root.
pub(super) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// The user that a server insists on when it is started by root.
pub(super) fn name_for(name: Name) -> Option<&'static str> {
    match name {
        Name::Postgres | Name::Pgbouncer => Some("postgres"),
        Name::Mysql => Some("mysql"),
        Name::OracleMysql | Name::NewerPostgres => Some(newer::USER),
        Name::Kafka => None,
    }
}

/// Makes a command run as the server's user, if that is another one.
pub(super) fn run_as(command: &mut Command, name: Name) -> Result<()> {
    // Only root may go into the folder with a newer Debian; there it becomes the other user.
    if let Some((uid, gid)) = switch(name)?.filter(|_| !name.is_newer()) {
        command.uid(uid).gid(gid);
    }
    Ok(())
}

/// Gives a file or folder to the server's user, closed to everyone else.
pub(super) fn give(path: &Path, name: Name) -> Result<()> {
    let cannot = || format!("cannot hand {} to the user of {name}; check its permissions", path.display());
    if let Some((uid, gid)) = switch(name)? {
        chown(path, Some(uid), Some(gid)).with_context(cannot)?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).with_context(cannot)
}

/// The user id that a server's files belong to.
pub(super) fn uid_for(name: Name) -> Result<u32> {
    match switch(name)? {
        Some((uid, _)) => Ok(uid),
        None => Ok(fs::metadata("/proc/self").context("cannot read /proc/self; is /proc mounted?")?.uid()),
    }
}

fn switch(name: Name) -> Result<Option<(u32, u32)>> {
    let Some(user) = name_for(name).filter(|_| is_root()) else { return Ok(None) };
    if name.is_newer() {
        return Ok(Some((newer::ID, newer::ID)));
    }
    let users =
        fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd; check its permissions")?;
    ids_of(user, &users).map(Some).with_context(|| {
        format!("there is no user `{user}`, which {name} must run as; reinstall its package")
    })
}

fn ids_of(user: &str, passwd: &str) -> Option<(u32, u32)> {
    let mut fields = passwd
        .lines()
        .map(|line| line.split(':'))
        .find_map(|mut fields| (fields.next() == Some(user)).then_some(fields))?;
    Some((fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_ids_are_read_from_the_password_file() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\npostgres:x:101:104:,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(ids_of("postgres", passwd), Some((101, 104)));
        assert_eq!(ids_of("post", passwd), None);
    }
}
