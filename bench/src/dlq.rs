//! The dead-letter directory against the raw calls: one file at a time, many emitters at once, and rolling files.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use backstop_core::{CloudEvent, Failure, SharedSink, Sink};
use backstop_disk::dlq::{DlqSink, Rolling, Settings};
use tokio::sync::oneshot;

const EMITTERS: u32 = 256;

/// A spread wider than this says more about the machine than about the contender.
const TOO_WIDE: f64 = 0.25;

/// A contender, and how many events it stores in a round.
type Contender = (&'static str, u32);

const ONE_FILE: Contender = ("raw one file + fsync", 256);
const RAW_SEQUENCE: Contender = ("raw sequence of calls", 512);
const ONE_EMITTER: Contender = ("one emitter", 512);
const MANY_EMITTERS: Contender = ("256 emitters", EMITTERS * 16);
const RAW_APPENDS: Contender = ("raw group-committed appends", EMITTERS * 128);
const ROLLING: Contender = ("rolling, 256 emitters", EMITTERS * 128);

/// What is asked for: the first is at least so many times the second.
const GOALS: [(Contender, Contender, f64); 3] =
    [(MANY_EMITTERS, ONE_FILE, 10.0), (ONE_EMITTER, RAW_SEQUENCE, 0.9), (ROLLING, RAW_APPENDS, 0.8)];

/// Measures every contender in turn, each time in a fresh directory below `place`, and prints medians and ratios.
pub(crate) async fn run(rounds: usize, place: &Path) -> Result<()> {
    let place = place.join(format!("bench-dlq-{}", std::process::id()));
    // What the build and others have left unwritten would be written, and waited for, by whoever comes first.
    Command::new("sync").status().context("cannot run sync")?;
    println!("load before: {}", load());
    let measured = measure_all(rounds, &place).await;
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

async fn measure_all(rounds: usize, place: &Path) -> Result<Vec<(&'static str, Vec<f64>)>> {
    let mut rates: Vec<(&str, Vec<f64>)> = Vec::new();
    for round in 1..=rounds {
        let mut contenders = [ONE_FILE, MANY_EMITTERS, RAW_SEQUENCE, ONE_EMITTER, RAW_APPENDS, ROLLING];
        // A disk that grows slower from one to the next must not always favour the same.
        if round % 2 == 0 {
            contenders.reverse();
        }
        for contender in contenders {
            let (name, events) = contender;
            let directory = place.join(format!("{round}-{name}"));
            fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
            let rate = f64::from(events) / measure(contender, &directory).await?.as_secs_f64();
            eprintln!("round {round}: {name}: {rate:.0} events/s");
            match rates.iter_mut().find(|(known, _)| *known == name) {
                Some((_, rates)) => rates.push(rate),
                None => rates.push((name, vec![rate])),
            }
        }
    }
    Ok(rates)
}

async fn measure(contender: Contender, directory: &Path) -> Result<Duration> {
    let (_, events) = contender;
    let settings = Settings::at(directory);
    match contender {
        ONE_FILE => one_file_at_a_time(directory, events),
        RAW_SEQUENCE => sequence_at_a_time(directory, events),
        ONE_EMITTER => emitters(settings, 1, events).await,
        MANY_EMITTERS => emitters(settings, EMITTERS, events).await,
        RAW_APPENDS => raw_appends(directory.join("appends"), events).await,
        _ => {
            emitters(
                settings.rolling(Rolling { max_bytes: u64::MAX, ..Rolling::default() }),
                EMITTERS,
                events,
            )
            .await
        }
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
fn one_file_at_a_time(directory: &Path, events: u32) -> Result<Duration> {
    let begun = Instant::now();
    for number in 0..events {
        let mut file = File::create_new(directory.join(format!("1767225600000-{number}.jsonl")))?;
        file.write_all(&line(number))?;
        file.sync_all()?;
    }
    Ok(begun.elapsed())
}

/// The calls that one event takes, one event after the other, without a thread or a channel between.
fn sequence_at_a_time(directory: &Path, events: u32) -> Result<Duration> {
    let begun = Instant::now();
    for number in 0..events {
        let draft = directory.join(format!(".1767225600000-{number}.tmp"));
        let mut file = File::create_new(&draft)?;
        file.write_all(&line(number))?;
        file.sync_all()?;
        drop(file);
        fs::rename(&draft, directory.join(format!("1767225600000-{number}.jsonl")))?;
        File::open(directory)?.sync_all()?;
    }
    Ok(begun.elapsed())
}

async fn emitters(settings: Settings, emitters: u32, events: u32) -> Result<Duration> {
    let sink = DlqSink::open(closed(), settings)?;
    let begun = Instant::now();
    let tasks: Vec<_> = (0..emitters)
        .map(|emitter| {
            let sink = sink.clone();
            tokio::spawn(async move {
                for number in (emitter..events).step_by(emitters as usize) {
                    sink.emit(event(number)).await?;
                }
                Ok::<(), Failure>(())
            })
        })
        .collect();
    for task in tasks {
        task.await?.map_err(|failure| anyhow::anyhow!("{failure}"))?;
    }
    Ok(begun.elapsed())
}

/// The least that a group commit takes: tasks whose sink is closed hand over lines, a thread appends what waits and
/// syncs once.
async fn raw_appends(path: PathBuf, events: u32) -> Result<Duration> {
    let mut file = OpenOptions::new().append(true).create_new(true).open(path)?;
    let (queue, waiting) = mpsc::channel::<(Vec<u8>, oneshot::Sender<()>)>();
    let writer = std::thread::spawn(move || -> std::io::Result<()> {
        while let Ok(first) = waiting.recv() {
            let (lines, answers): (Vec<_>, Vec<_>) = std::iter::once(first).chain(waiting.try_iter()).unzip();
            file.write_all(&lines.concat())?;
            file.sync_data()?;
            for answer in answers {
                let _ = answer.send(());
            }
        }
        Ok(())
    });
    let begun = Instant::now();
    let tasks: Vec<_> = (0..EMITTERS)
        .map(|emitter| {
            let (queue, sink) = (queue.clone(), closed());
            tokio::spawn(async move {
                for number in (emitter..events).step_by(EMITTERS as usize) {
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
    let took = begun.elapsed();
    drop(queue);
    writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
    Ok(took)
}

fn print(rates: &[(&str, Vec<f64>)]) {
    println!("{:<28} {:>12} {:>8}", "contender", "events/s", "spread");
    for (name, rates) in rates {
        println!("{name:<28} {}", told(rates, 0));
    }
    println!();
    println!("{:<54} {:>6} {:>8} {:>10}", "ratio within each round", "median", "spread", "asked for");
    let of = |wanted: Contender| rates.iter().find(|(name, _)| *name == wanted.0).map_or(&[][..], |it| &it.1);
    for (ours, theirs, goal) in GOALS {
        let ratios: Vec<_> = of(ours).iter().zip(of(theirs)).map(|(ours, theirs)| ours / theirs).collect();
        println!("{:<46} {} {goal:>9}", format!("{} / {}", ours.0, theirs.0), told(&ratios, 2));
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
