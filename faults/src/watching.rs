//! A watch over the process itself: the moments in which the machine gave it no time.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::recording::Recording;

const LOOK_EVERY: Duration = Duration::from_millis(25);

/// What is shorter than this is not worth a line.
const WORTH_A_LINE: Duration = Duration::from_millis(100);

/// Writes `<moment> <milliseconds>` down after each time in which a thread of its own stood still, whether the process
/// was stopped or the machine was busy. What blocks the runtime alone is not seen here.
pub(crate) fn start(args: &Args) -> io::Result<()> {
    let stalls = Recording::open(args, "stalls")?;
    let watch = move || {
        loop {
            let before = Instant::now();
            thread::sleep(LOOK_EVERY);
            let stood_still = before.elapsed().saturating_sub(LOOK_EVERY);
            if stood_still > WORTH_A_LINE && stalls.note(&stood_still.as_millis().to_string()).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("watch".to_owned()).spawn(watch).map(drop)
}
