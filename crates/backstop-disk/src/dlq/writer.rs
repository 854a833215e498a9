//! The writer: threads that take what failed, as much as waits, and make it safe together.
//!
//! Telling the disk to keep something takes milliseconds, however much it is. So whatever arrives while one
//! batch is made safe becomes the next: at rest an event waits for nobody, under load many share the price.
//! Files have a few threads, so that of a crowd one part is written while the disk is busy with another.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use backstop_core::{CloudEvent, Timestamp, telemetry};
use tokio::sync::{Semaphore, oneshot};

use super::files::Files;
use super::queue::{Busy, Next, Place, Queue};
use super::rolling::RollingFile;
use super::settings::Settings;
use crate::Error;

/// How many events may wait to be written. More wait outside, where their senders wait anyway.
const MAX_WAITING: usize = 1024;

/// How many batches of files are made safe side by side.
const FILE_WRITERS: usize = 3;

/// How many files a batch may have: each is open until its batch is safe, and processes may open only so many.
const MAX_FILES: usize = 128;

/// A rolling file has one thread, so a small batch holds everybody up. After one of this many, those who were told are
/// waited for: an eighth of the time that the batch took, and never longer than this.
const GATHERED: usize = 16;
const MAX_GATHERING: Duration = Duration::from_millis(1);

/// How long a thread stays awake for whoever comes back, and never longer than an eighth of what the last batch took.
const MAX_AWAKE: Duration = Duration::from_micros(150);

/// A failed event on its way to the disk.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    pub(super) event: CloudEvent,
    pub(super) failed_at: Timestamp,
    /// The record as it will be written.
    pub(super) line: Vec<u8>,
}

/// A handle to the threads, which end when it is dropped.
#[derive(Debug)]
pub(super) struct Writer(Arc<Desk>);

/// Where the threads find their work.
#[derive(Debug)]
struct Desk {
    queue: Queue<Request>,
    room: Semaphore,
    metrics: Arc<telemetry::Dlq>,
}

#[derive(Debug)]
struct Request {
    letter: Letter,
    answer: oneshot::Sender<Result<(), Error>>,
}

impl Writer {
    pub(super) fn start(settings: &Settings, metrics: Arc<telemetry::Dlq>) -> io::Result<Self> {
        let desk = Desk { queue: Queue::new(), room: Semaphore::new(MAX_WAITING), metrics };
        let writer = Self(Arc::new(desk));
        match settings.rolling {
            None => {
                let files = Arc::new(Files::new(settings));
                for number in 0..FILE_WRITERS {
                    let place = if number == 0 { Place::First } else { Place::Behind };
                    writer.start_thread(place, Layout::Files(Arc::clone(&files)))?;
                }
            }
            Some(_) => writer.start_thread(Place::First, Layout::Rolling(RollingFile::new(settings)))?,
        }
        Ok(writer)
    }

    fn start_thread(&self, place: Place, mut layout: Layout) -> io::Result<()> {
        let desk = Arc::clone(&self.0);
        thread::Builder::new().name("backstop-dlq".to_owned()).spawn(move || desk.run(place, &mut layout))?;
        Ok(())
    }

    /// Stores an event; when this returns `Ok` it survives a crash.
    pub(super) async fn store(&self, letter: Letter) -> Result<(), Error> {
        let Desk { queue, room, .. } = &*self.0;
        // Given back for a whole batch at once, by whoever writes it.
        room.acquire().await.map_err(|_| Error::WriterEnded)?.forget();
        let (answer, stored) = oneshot::channel();
        queue.push(Request { letter, answer }).map_err(|_| Error::WriterEnded)?;
        stored.await.map_err(|_| Error::WriterEnded)?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

enum Layout {
    Files(Arc<Files>),
    Rolling(RollingFile),
}

impl Layout {
    /// One answer for each letter, in their order.
    fn commit(&mut self, letters: &[Letter]) -> Vec<Result<(), Error>> {
        match self {
            Self::Files(files) => files.commit(letters),
            Self::Rolling(file) => file.commit(letters),
        }
    }

    fn leave(&mut self) {
        if let Self::Rolling(file) = self {
            file.leave();
        }
    }
}

/// When a thread panics, nobody must wait for what it had in hand, nor for room that it has not given back.
struct Alarm<'a>(&'a Desk);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.queue.abandon();
            self.0.room.close();
        }
    }
}

impl Desk {
    fn run(&self, place: Place, layout: &mut Layout) {
        let _alarm = Alarm(self);
        loop {
            match self.next(place, layout) {
                Next::Write(batch, busy) => self.write(layout, batch, &busy),
                Next::Idle => layout.leave(),
                Next::End => break,
            }
        }
    }

    fn next(&self, place: Place, layout: &Layout) -> Next<'_, Request> {
        match layout {
            Layout::Files(_) => self.queue.next(place, MAX_FILES, None),
            // It is left when nothing comes for a while.
            Layout::Rolling(file) => self.queue.next(place, MAX_WAITING, file.idle()),
        }
    }

    fn write(&self, layout: &mut Layout, batch: Vec<Request>, _: &Busy<'_, Request>) {
        let (letters, answers): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|Request { letter, answer }| (letter, answer)).unzip();
        let (count, begun) = (letters.len(), Instant::now());
        let stored = layout.commit(&letters);
        let took = begun.elapsed();
        self.metrics.commits.increment();
        // Before the answers: the last to hold an event frees it, and that is better done by its many senders.
        drop(letters);
        self.room.add_permits(answers.len());
        for (answer, stored) in answers.into_iter().zip(stored) {
            // Whoever no longer waits for the answer has not been told that all is well.
            let _ = answer.send(stored);
        }
        match layout {
            Layout::Rolling(_) if count >= GATHERED => {
                self.queue.gather(count, (took / 8).min(MAX_GATHERING));
            }
            Layout::Files(_) => self.queue.stay_awake((took / 8).min(MAX_AWAKE)),
            Layout::Rolling(_) => {}
        }
    }
}
