//! Group commit: threads that take what waits, as much as there is, and make it safe together.
//!
//! A sync takes milliseconds, however much there is to write. So whatever arrives while one batch is made safe
//! becomes the next: without load an item waits for nobody, under load many share the price.
//! Where batches can be made safe side by side there are a few threads, so that one part of a crowd is written while
//! the disk is busy with another.

mod queue;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, oneshot};

use crate::Error;
use queue::{Busy, Next, Queue, Seat};

/// How many items may wait to be written. More wait outside, where their senders wait anyway.
const MAX_WAITING: usize = 1024;

/// If there is one thread, a small batch holds it up, and everybody with it. After a batch of at least this many, the
/// thread waits for those who were answered to come back: an eighth of the time that the batch took, and never longer
/// than this.
const GATHERED: usize = 16;
const MAX_GATHERING: Duration = Duration::from_millis(1);

/// How long one of several threads stays awake for senders that come back, and never longer than an eighth of the
/// time that the last batch took.
const MAX_AWAKE: Duration = Duration::from_micros(150);

/// How a batch is made safe.
pub(crate) trait Commit<T>: Send + 'static {
    /// Makes a batch safe: one answer for each item, in their order.
    fn commit(&mut self, items: &[T]) -> Vec<Result<(), Error>>;

    /// How many items a batch may have.
    fn most(&self) -> usize {
        MAX_WAITING
    }

    /// After how long without a batch it [leaves](Self::leave) what it has open, if it has something open.
    fn idle(&self) -> Option<Duration> {
        None
    }

    /// Closes what it has open.
    fn leave(&mut self) {}
}

/// A handle to the threads, which write what waits and end when it is dropped.
#[derive(Debug)]
pub(crate) struct GroupCommit<T>(Arc<Shared<T>>);

/// Where the threads find their work.
#[derive(Debug)]
struct Shared<T> {
    queue: Queue<Request<T>>,
    room: Semaphore,
    /// Whether one thread does it all.
    alone: bool,
}

#[derive(Debug)]
struct Request<T> {
    item: T,
    answer: oneshot::Sender<Result<(), Error>>,
}

impl<T: Send + 'static> GroupCommit<T> {
    /// Starts a thread of this name for each.
    pub(crate) fn start<C: Commit<T>>(name: &str, commits: Vec<C>) -> io::Result<Self> {
        let alone = commits.len() == 1;
        let shared = Arc::new(Shared { queue: Queue::new(), room: Semaphore::new(MAX_WAITING), alone });
        // Before the threads: if one cannot be started, the others end with the handle.
        let started = Self(Arc::clone(&shared));
        for (number, mut commit) in commits.into_iter().enumerate() {
            let seat = if number == 0 { Seat::First } else { Seat::Behind };
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(name.to_owned()).spawn(move || shared.run(seat, &mut commit))?;
        }
        Ok(started)
    }

    /// Stores an item; when this returns `Ok` it survives a crash.
    pub(crate) async fn store(&self, item: T) -> Result<(), Error> {
        let Shared { queue, room, .. } = &*self.0;
        // Given back for a whole batch at once, by the thread that writes it.
        room.acquire().await.map_err(|_| Error::WriterEnded)?.forget();
        let (answer, stored) = oneshot::channel();
        queue.push(Request { item, answer }).map_err(|_| Error::WriterEnded)?;
        stored.await.map_err(|_| Error::WriterEnded)?
    }
}

impl<T> Drop for GroupCommit<T> {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

/// When a thread panics, nobody must wait for what it had in hand, nor for room that it has not given back.
struct Alarm<'a, T>(&'a Shared<T>);

impl<T> Drop for Alarm<'_, T> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.queue.abandon();
            self.0.room.close();
        }
    }
}

impl<T> Shared<T> {
    fn run(&self, seat: Seat, commit: &mut impl Commit<T>) {
        let _alarm = Alarm(self);
        loop {
            match self.queue.next(seat, commit.most(), commit.idle()) {
                Next::Write(batch, busy) => self.write(commit, batch, &busy),
                Next::Idle => commit.leave(),
                Next::End => break,
            }
        }
    }

    fn write(&self, commit: &mut impl Commit<T>, batch: Vec<Request<T>>, _: &Busy<'_, Request<T>>) {
        let (items, answers): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|Request { item, answer }| (item, answer)).unzip();
        let (count, begun) = (items.len(), Instant::now());
        let stored = commit.commit(&items);
        let took = begun.elapsed();
        // Before the answers: the last to hold an item frees it, and that is better done by its many senders.
        drop(items);
        self.room.add_permits(answers.len());
        for (answer, stored) in answers.into_iter().zip(stored) {
            // A sender that no longer waits has not been told that all is well.
            let _ = answer.send(stored);
        }
        if !self.alone {
            self.queue.stay_awake((took / 8).min(MAX_AWAKE));
        } else if count >= GATHERED {
            self.queue.gather(count, (took / 8).min(MAX_GATHERING));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Tells of each batch and waits for leave to write it. Refuses what is odd.
    struct Numbers {
        begun: Sender<Vec<u64>>,
        leave: Receiver<()>,
        idle: Option<Duration>,
    }

    impl Commit<u64> for Numbers {
        fn commit(&mut self, items: &[u64]) -> Vec<Result<(), Error>> {
            self.begun.send(items.to_vec()).unwrap();
            self.leave.recv().unwrap();
            assert!(!items.contains(&13), "a bug");
            let refused = |number: &u64| Err(Error::NoEntry(number.to_string()));
            items.iter().map(|number| if number % 2 == 0 { Ok(()) } else { refused(number) }).collect()
        }

        fn most(&self) -> usize {
            4
        }

        fn idle(&self) -> Option<Duration> {
            self.idle
        }

        fn leave(&mut self) {
            self.begun.send(Vec::new()).unwrap();
            self.idle = None;
        }
    }

    fn numbers(idle: Option<Duration>) -> (GroupCommit<u64>, Receiver<Vec<u64>>, Sender<()>) {
        let ((begun, batches), (leave, given)) = (channel(), channel());
        let commit = Numbers { begun, leave: given, idle };
        (GroupCommit::start("numbers", vec![commit]).unwrap(), batches, leave)
    }

    fn told(stored: Result<(), Error>) -> String {
        stored.map_or_else(|error| error.to_string(), |()| "stored".to_owned())
    }

    #[tokio::test]
    async fn what_comes_while_a_batch_is_written_is_the_next_and_each_gets_its_own_answer() {
        let (writer, batches, leave) = numbers(None);
        let rest = async {
            assert_eq!(batches.recv().unwrap(), [0]);
            let all = async { (0..6).for_each(|_| leave.send(()).unwrap()) };
            tokio::join!(
                writer.store(1),
                writer.store(2),
                writer.store(4),
                writer.store(6),
                writer.store(8),
                all
            )
        };
        let (first, (one, two, .., eight, ())) = tokio::join!(writer.store(0), rest);
        assert_eq!([first, two, eight].map(told), ["stored"; 3]);
        assert!(told(one).contains("no entry 1"));
        assert_eq!(batches.try_iter().collect::<Vec<_>>(), [vec![1, 2, 4, 6], vec![8]]);
    }

    #[tokio::test]
    async fn after_a_while_without_a_batch_it_leaves_what_is_open() {
        let (writer, batches, leave) = numbers(Some(Duration::from_millis(1)));
        assert_eq!(batches.recv().unwrap(), Vec::<u64>::new());
        leave.send(()).unwrap();
        writer.store(2).await.unwrap();
    }

    #[tokio::test]
    async fn a_panic_leaves_nobody_waiting() {
        let (writer, batches, leave) = numbers(None);
        let rest = async {
            assert_eq!(batches.recv().unwrap(), [13]);
            tokio::join!(writer.store(2), async { leave.send(()).unwrap() }).0
        };
        let (broken, waiting) = tokio::join!(writer.store(13), rest);
        for answer in [broken, waiting, writer.store(4).await] {
            assert!(matches!(answer, Err(Error::WriterEnded)), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn what_waits_when_the_handle_is_dropped_is_still_written() {
        let (writer, batches, leave) = numbers(None);
        for number in [2, 4] {
            let _ = tokio::time::timeout(Duration::ZERO, writer.store(number)).await;
        }
        drop(writer);
        for _ in 0..2 {
            // The second is not wanted if both are in one batch.
            let _ = leave.send(());
        }
        assert_eq!(batches.into_iter().flatten().collect::<Vec<_>>(), [2, 4]);
    }
}
