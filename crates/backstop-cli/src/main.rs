//! The binary `backstop`: reads its arguments, wires the parts together and runs a command.

mod args;
mod demo;
mod dlq;
mod logging;
mod signals;

use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command};

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    logging::start(arguments.verbose);
    let ended = match arguments.command {
        Command::Demo(demo) => demo::run(demo).await,
        Command::Dlq(command) => dlq::run(*command).await,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One sentence for a person, whatever RUST_BACKTRACE says.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
