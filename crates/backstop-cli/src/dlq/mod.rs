//! `backstop dlq`: the tools of the dead-letter directory on the command line.

mod args;
mod redrive;
mod rows;
mod shown;
mod target;

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, bail};
use backstop_disk::dlq::{Damaged, Directory, Filter, Finding, Form, Found};

pub(crate) use args::Command;
use shown::{entry_as_json, entry_as_line};

use crate::args::ago;
use crate::output::{Output, also, count};
use crate::plain::plain;

pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::List(args) => list(args),
        Command::Inspect(args) => inspect(&args),
        Command::Fsck(args) => fsck(&args),
        Command::Redrive(args) => redrive::run(args).await,
        Command::Purge(args) => purge(args),
        Command::Export(args) => export(args),
    }
}

fn list(args: args::List) -> anyhow::Result<()> {
    let directory = Directory::open(args.directory)?;
    let mut output = Output::new();
    let (mut entries, mut damaged) = (0_u64, 0_u64);
    let mut open: Option<(Damaged, u64)> = None;
    // A file with many damaged lines is told once, when its end is known.
    let tell = |open: Option<(Damaged, u64)>| {
        if let Some((first, lines)) = open {
            eprintln!("{}", plain(&damaged_line(&first, lines)));
        }
    };
    for found in directory.entries(args.matching.narrow(Filter::all())).take(args.limit.unwrap_or(usize::MAX))
    {
        let line = match found? {
            Found::Entry(entry) => {
                entries += 1;
                if args.json { entry_as_json(&entry)? } else { entry_as_line(&entry) }
            }
            Found::Damaged(found) => {
                damaged += 1;
                match &mut open {
                    Some((first, lines)) if first.place.file() == found.place.file() => *lines += 1,
                    _ => tell(open.replace((found, 1))),
                }
                continue;
            }
        };
        if !output.line(&line)? {
            return Ok(());
        }
    }
    output.end()?;
    tell(open);
    eprintln!("{}", count(entries, "entry", "entries") + &also(damaged, "damaged"));
    Ok(())
}

fn inspect(args: &args::Inspect) -> anyhow::Result<()> {
    let found = Directory::open(&args.directory)?.inspect(&args.entry)?;
    let Some(entry) = found.clone().entry() else {
        let Found::Damaged(damaged) = found else { return Ok(()) };
        bail!("{} is damaged: {}", plain(&damaged.place.to_string()), plain(&damaged.why));
    };
    let mut output = Output::new();
    output.line(&entry_as_json(&entry)?)?;
    output.end()
}

fn fsck(args: &args::Fsck) -> anyhow::Result<()> {
    let mut output = Output::new();
    let mut told = Ok(true);
    let checked = Directory::open(&args.directory)?.fsck(|finding| {
        let line = match finding {
            Finding::Damaged { first, lines, .. } => damaged_line(&first, lines),
            Finding::Leftover(name) => format!("left by a crash: {name}"),
            Finding::Foreign(name) => format!("not ours: {name}"),
            other => format!("{other:?}"),
        };
        if matches!(told, Ok(true)) {
            told = output.line(&plain(&line));
        }
    })?;
    told?;
    output.end()?;
    let sound = count(checked.sound, "sound entry", "sound entries");
    let rest = also(checked.damaged, "damaged")
        + &also(checked.leftovers, "left by crashes")
        + &also(checked.foreign, "not ours");
    eprintln!("{sound}{rest}");
    if checked.damaged > 0 {
        bail!("{} damaged; look at the files named above and move them elsewhere", checked.damaged);
    }
    Ok(())
}

fn purge(args: args::Purge) -> anyhow::Result<()> {
    let filter = match args.which.older_than {
        Some(time) => Filter::all().until(ago(time)),
        None => Filter::all(),
    };
    let directory = Directory::open(args.directory)?;
    let done = directory.purge(args.matching.narrow(filter)).dry_run(args.dry_run).run()?;
    let verb = if args.dry_run { "would delete" } else { "deleted" };
    let (events, files) = (count(done.events, "event", "events"), count(done.files, "file", "files"));
    eprintln!(
        "{verb} {events} in {files}{}",
        also(done.kept, "kept: damaged, in use, or not all of it to be deleted")
    );
    Ok(())
}

fn export(args: args::Export) -> anyhow::Result<()> {
    let directory = Directory::open(args.directory)?;
    let (filter, form) =
        (args.matching.narrow(Filter::all()), if args.records { Form::Records } else { Form::Events });
    let done = match args.to {
        None => match directory.export(filter, form, BufWriter::new(io::stdout().lock())) {
            Err(backstop_disk::Error::Export(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(());
            }
            done => done?,
        },
        Some(path) => {
            let cannot = || format!("cannot write {}; name a file that does not exist yet", path.display());
            // Events may hold what not everybody should read.
            let options = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            let mut file = BufWriter::new(options.with_context(cannot)?);
            let done = directory.export(filter, form, &mut file)?;
            file.flush().and_then(|()| file.get_ref().sync_all()).with_context(cannot)?;
            done
        }
    };
    eprintln!(
        "exported {}{}",
        count(done.exported, "event", "events"),
        also(done.damaged, "damaged and skipped")
    );
    Ok(())
}

/// A damaged file on a line: the first of its damaged lines, and how many more there are.
fn damaged_line(first: &Damaged, lines: u64) -> String {
    let more = match lines - 1 {
        0 => String::new(),
        1 => "; and 1 more line of it".to_owned(),
        more => format!("; and {more} more lines of it"),
    };
    format!("damaged: {}: {}{more}", first.place, first.why)
}
