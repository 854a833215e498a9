//! `backstop check`: everything that is wrong with a settings file, at once.

use std::path::Path;

use crate::commands::{outbox_told, queue_told};
use crate::config;
use crate::config::Settings;
use crate::plain::plain;

pub(crate) fn run(file: &Path) -> anyhow::Result<()> {
    let checked = config::load(file)?;
    for warning in checked.warnings() {
        eprintln!("warning: {warning}");
    }
    let (settings, _) = checked.settings()?;
    summarize(file, &settings);
    Ok(())
}

fn summarize(file: &Path, settings: &Settings) {
    println!("{} is fine", plain(&file.display().to_string()));
    for outbox in &settings.outbox {
        println!("  outbox {}: {}", outbox.name, outbox_told(outbox));
    }
    for queue in &settings.queue {
        println!("  queue {}: {}", queue.name, queue_told(queue));
    }
    for dlq in &settings.dlq {
        println!("  dlq {}: {}", dlq.name, plain(&dlq.config.directory.display().to_string()));
    }
    let server = &settings.server;
    match (server.enabled, server.tokens.len()) {
        (false, _) => println!("  server: off"),
        (true, 0) => println!("  server: http://{}", server.address),
        (true, tokens) => println!("  server: http://{}, for the holders of {tokens} tokens", server.address),
    }
}
