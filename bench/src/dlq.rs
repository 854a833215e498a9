//! The dead-letter directory against the raw calls: one file at a time, many emitters at once, and rolling files.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use backstop_core::{CloudEvent, Failure, SharedSink, Sink};
use backstop_disk::dlq::{DlqSink, Rolling, Setup};
use tokio::sync::oneshot;

const EMITTERS: u32 = 256;

/// How often the two of a pair take turns in a round: a disk is quick in one second and slow in the next, and only
/// neighbours can be compared.
const TURNS: u32 = 8;

/// A spread wider than this says more about the machine than about the contender.
const TOO_WIDE: f64 = 0.25;

/// Who stores events.
#[derive(Debug, Clone, Copy)]
enum Contender {
    OneFile,
    Sequence,
    OneEmitter,
    ManyEmitters,
    Appends,
    Rolling,
}

/// What is asked for: the first is at least so many times the second.
const PAIRS: [(Contender, Contender, f64); 4] = [
    (Contender::ManyEmitters, Contender::OneFile, 10.0),
    (Contender::ManyEmitters, Contender::Sequence, 10.0),
    (Contender::OneEmitter, Contender::Sequence, 0.9),
    (Contender::Rolling, Contender::Appends, 0.8),
];

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Self::OneFile => "raw one file + fsync",
            Self::Sequence => "raw sequence of calls",
            Self::OneEmitter => "one emitter",
            Self::ManyEmitters => "256 emitters",
            Self::Appends => "raw group-committed appends",
            Self::Rolling => "rolling, 256 emitters",
        }
    }

    /// How many events it stores in a turn.
    fn events(self) -> u32 {
        match self {
            Self::OneFile => 256,
            Self::Sequence | Self::OneEmitter => 64,
            Self::ManyEmitters => EMITTERS * 16,
            Self::Appends | Self::Rolling => EMITTERS * 64,
        }
    }

    fn open(self, directory: PathBuf) -> Result<Store> {
        let settings = Setup::at(&directory);
        let rolling = Rolling { max_bytes: u64::MAX, ..Rolling::default() };
        Ok(match self {
            Self::OneFile => Store::OneFile(directory),
            Self::Sequence => Store::Sequence(directory),
            Self::OneEmitter => Store::Emitters(DlqSink::open(closed(), settings)?, 1),
            Self::ManyEmitters => Store::Emitters(DlqSink::open(closed(), settings)?, EMITTERS),
            Self::Appends => Store::Appends(Appends::open(&directory.join("appends"))?),
            Self::Rolling => Store::Emitters(DlqSink::open(closed(), settings.rolling(rolling))?, EMITTERS),
        })
    }
}

/// A pair's rates in each round, in events per second.
struct Measured {
    pair: (Contender, Contender, f64),
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

/// Measures every pair in turn, each time in a fresh directory below `place`, and prints medians and ratios.
pub(crate) async fn run(rounds: usize, place: &Path, only: &str) -> Result<()> {
    let place = place.join(format!("bench-dlq-{}", std::process::id()));
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    // What the build and others have left unwritten would be written, and waited for, by whoever comes first.
    Command::new("sync").status().context("cannot run sync")?;
    println!("load before: {}", load());
    let measured = measure_all(rounds, &place, only).await;
    // Only now: ext4 looks for a free inode past every one that was deleted in the last minutes, which would make
    // whoever runs later slower.
    fs::remove_dir_all(&place)?;
    print(&measured?);
    println!("load after: {}", load());
    Ok(())
}

/// What else the machine was busy with in the last 1, 5 and 15 minutes.
fn load() -> String {
    fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}

async fn measure_all(rounds: usize, place: &Path, only: &str) -> Result<Vec<Measured>> {
    let wanted = PAIRS.into_iter().filter(|(ours, ..)| ours.name().contains(only));
    let mut all: Vec<_> =
        wanted.map(|pair| Measured { pair, ours: Vec::new(), theirs: Vec::new() }).collect();
    for round in 1..=rounds {
        for Measured { pair: (our, their, _), ours, theirs } in &mut all {
            let open = |contender: Contender| {
                let directory =
                    place.join(format!("{round}-{our:?}-{their:?}")).join(format!("{contender:?}"));
                fs::create_dir_all(&directory)?;
                contender.open(directory)
            };
            let rates = take_turns((*our, open(*our)?), (*their, open(*their)?)).await?;
            eprintln!(
                "round {round}: {}: {:.0} events/s, {}: {:.0}",
                our.name(),
                rates.0,
                their.name(),
                rates.1
            );
            ours.push(rates.0);
            theirs.push(rates.1);
        }
    }
    Ok(all)
}

/// Lets two store events by turns, and gives both rates.
async fn take_turns(mut one: (Contender, Store), mut other: (Contender, Store)) -> Result<(f64, f64)> {
    let mut took = (Duration::ZERO, Duration::ZERO);
    for turn in 0..TURNS {
        took.0 += one.1.store(turn, one.0.events()).await?;
        took.1 += other.1.store(turn, other.0.events()).await?;
    }
    let rate =
        |contender: Contender, took: Duration| f64::from(TURNS * contender.events()) / took.as_secs_f64();
    Ok((rate(one.0, took.0), rate(other.0, took.1)))
}

enum Store {
    OneFile(PathBuf),
    Sequence(PathBuf),
    Emitters(DlqSink, u32),
    Appends(Appends),
}

impl Store {
    /// Stores so many events, and tells how long that took.
    async fn store(&mut self, turn: u32, events: u32) -> Result<Duration> {
        let numbers = turn * events..(turn + 1) * events;
        let begun = Instant::now();
        match self {
            Self::OneFile(directory) => numbers.into_iter().try_for_each(|it| one_file(directory, it))?,
            Self::Sequence(directory) => numbers.into_iter().try_for_each(|it| sequence(directory, it))?,
            Self::Emitters(sink, count) => emit(sink, *count, numbers).await?,
            Self::Appends(appends) => appends.append(numbers).await?,
        }
        Ok(begun.elapsed())
    }
}

fn event(number: u32) -> CloudEvent {
    let data = "x".repeat(120);
    let json = format!(
        r#"{{"specversion":"1.0","id":"{number:026}","source":"/bench","type":"OrderPlaced","data":"{data}"}}"#
    );
    CloudEvent::from_json(json).expect("a CloudEvent")
}

fn line(number: u32) -> Vec<u8> {
    record(&event(number), "http-503: closed")
}

fn record(event: &CloudEvent, error: &str) -> Vec<u8> {
    format!("{{\"event\":{},\"error\":\"{error}\"}}\n", event.as_json()).into_bytes()
}

/// A sink that takes nothing.
fn closed() -> SharedSink {
    SharedSink::new(|_: CloudEvent| async { Err::<(), _>(Failure::transient("http-503", "closed")) })
}

/// What the original does, with a sync: the name is there before the content is.
fn one_file(directory: &Path, number: u32) -> Result<()> {
    let mut file = File::create_new(directory.join(format!("1767225600000-{number}.jsonl")))?;
    file.write_all(&line(number))?;
    Ok(file.sync_all()?)
}

/// The calls that one event takes, without a thread or a channel between.
fn sequence(directory: &Path, number: u32) -> Result<()> {
    let draft = directory.join(format!(".1767225600000-{number}.tmp"));
    let mut file = File::create_new(&draft)?;
    file.write_all(&line(number))?;
    file.sync_all()?;
    drop(file);
    fs::rename(&draft, directory.join(format!("1767225600000-{number}.jsonl")))?;
    Ok(File::open(directory)?.sync_all()?)
}

/// So many tasks at once, each with one event after the other.
async fn emit(sink: &DlqSink, emitters: u32, numbers: std::ops::Range<u32>) -> Result<()> {
    let tasks: Vec<_> = (0..emitters)
        .map(|emitter| {
            let (sink, own) =
                (sink.clone(), numbers.clone().skip(emitter as usize).step_by(emitters as usize));
            tokio::spawn(async move {
                for number in own {
                    sink.emit(event(number)).await?;
                }
                Ok::<(), Failure>(())
            })
        })
        .collect();
    for task in tasks {
        task.await?.map_err(|failure| anyhow::anyhow!("{failure}"))?;
    }
    Ok(())
}

/// The least that a group commit takes: a thread appends what waits and syncs once.
struct Appends {
    queue: mpsc::Sender<(Vec<u8>, oneshot::Sender<()>)>,
}

impl Appends {
    fn open(path: &Path) -> Result<Self> {
        let mut file = OpenOptions::new().append(true).create_new(true).open(path)?;
        let (queue, waiting) = mpsc::channel::<(Vec<u8>, oneshot::Sender<()>)>();
        // An error ends the thread, and whoever waits is told by that.
        std::thread::spawn(move || -> std::io::Result<()> {
            while let Ok(first) = waiting.recv() {
                let (lines, answers): (Vec<_>, Vec<_>) =
                    std::iter::once(first).chain(waiting.try_iter()).unzip();
                file.write_all(&lines.concat())?;
                file.sync_data()?;
                for answer in answers {
                    let _ = answer.send(());
                }
            }
            Ok(())
        });
        Ok(Self { queue })
    }

    /// Tasks whose sink is closed hand over lines.
    async fn append(&self, numbers: std::ops::Range<u32>) -> Result<()> {
        let tasks: Vec<_> = (0..EMITTERS)
            .map(|emitter| {
                let own = numbers.clone().skip(emitter as usize).step_by(EMITTERS as usize);
                let (queue, sink) = (self.queue.clone(), closed());
                tokio::spawn(async move {
                    for number in own {
                        let event = event(number);
                        let Err(failure) = sink.emit(event.clone()).await else { continue };
                        let (answer, safe) = oneshot::channel();
                        queue.send((record(&event, &failure.to_string()), answer))?;
                        safe.await?;
                    }
                    Ok::<(), anyhow::Error>(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok(())
    }
}

fn print(all: &[Measured]) {
    println!("{:<28} {:>12} {:>8}", "contender", "events/s", "spread");
    for Measured { pair: (our, their, _), ours, theirs } in all {
        println!("{:<28} {}", our.name(), told(ours, 0));
        println!("{:<28} {}", their.name(), told(theirs, 0));
    }
    println!();
    println!("{:<54} {:>6} {:>8} {:>10}", "ratio within each round", "median", "spread", "asked for");
    for Measured { pair: (our, their, goal), ours, theirs } in all {
        let ratios: Vec<_> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        println!("{:<46} {} {goal:>9}", format!("{} / {}", our.name(), their.name()), told(&ratios, 2));
    }
}

/// Median and spread.
fn told(values: &[f64], digits: usize) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (sorted.first(), sorted.last()) else { return "none".to_owned() };
    let median = sorted[sorted.len() / 2];
    let spread = (most - least) / median;
    let wide = if spread > TOO_WIDE { " (wide)" } else { "" };
    format!("{median:>12.digits$} {:>7.0}%{wide}", spread * 100.0)
}
