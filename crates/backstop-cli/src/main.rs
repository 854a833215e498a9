//! The binary `backstop`: reads its arguments, wires the parts together and runs a command.

mod api;
mod args;
mod commands;
mod config;
mod confirm;
mod demo;
mod dlq;
mod handlers;
mod logging;
mod outbox;
mod output;
mod plain;
mod queue;
mod serve;
mod signals;
mod table;
mod target;
mod told;

use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command};

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A daemon's log is what it says; elsewhere it is for those who ask.
    let quietest = u8::from(matches!(arguments.command, Command::Serve(_)));
    let limits = logging::start(arguments.verbose.max(quietest), arguments.log_format);
    let ended = match arguments.command {
        Command::Demo(demo) => demo::run(demo).await,
        Command::Dlq(command) => dlq::run(*command).await,
        Command::Outbox(command) => outbox::run(*command).await,
        Command::Queue(command) => queue::run(*command).await,
        Command::Target(command) => target::run(*command).await,
        Command::Serve(args) => serve::run(&args.config).await,
        Command::Check(args) => commands::check::run(&args.config),
        Command::Init(args) => commands::init::run(&args.file),
        Command::Migrate(args) => commands::migrate::run(&args.config.config, args.triggers).await,
        Command::Token(args) => commands::token::run(&args.name, &args.role),
        Command::Reference => commands::reference::run(),
    };
    limits.tell();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One sentence for a person, whatever RUST_BACKTRACE says.
            eprintln!("error: {}", plain::told(&error));
            ExitCode::FAILURE
        }
    }
}
