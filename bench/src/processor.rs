//! Processor time that this process has used, but for that of the web servers that it runs.

use std::time::Duration;

/// What the threads of web servers are called.
pub(crate) const WEB_SERVER: &str = "web-server";

/// Linux counts processor time in hundredths of a second, on every machine.
const TICK: Duration = Duration::from_millis(10);

/// So far; none on other systems.
pub(crate) fn used() -> Option<Duration> {
    let servers = std::fs::read_dir("/proc/self/task").ok()?.flatten().filter_map(|thread| {
        let comm = std::fs::read_to_string(thread.path().join("comm")).ok()?;
        if comm.trim() == WEB_SERVER { ticks(thread.path().join("stat")) } else { None }
    });
    // Those of threads that have ended are in the sum of all.
    let all = ticks("/proc/self/stat")?.saturating_sub(servers.sum());
    Some(TICK * u32::try_from(all).ok()?)
}

/// User and system time, the 14th and 15th field; the second is a name in brackets, which may hold spaces.
fn ticks(stat: impl AsRef<std::path::Path>) -> Option<u64> {
    let stat = std::fs::read_to_string(stat).ok()?;
    let behind_the_name = stat.rsplit_once(')')?.1;
    behind_the_name.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().ok()).sum()
}
