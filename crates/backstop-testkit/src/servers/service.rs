//! Finding a server, or saying why the test is skipped.

use std::io;

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{PATIENCE, skip, url, workspace};

/// A server that tests may use.
pub(super) struct Service {
    /// As people call it.
    pub(super) label: &'static str,
    /// The folder below `target/services`.
    pub(super) folder: &'static str,
    /// The variable that says where it is.
    pub(super) variable: &'static str,
}

impl Service {
    /// Where it should be; `None` if nobody says, and then the test is marked as skipped.
    pub(super) fn place(&self) -> Option<String> {
        let place = workspace::setting(self.variable);
        if place.is_none() {
            let why = workspace::why_unavailable(self.folder);
            let why =
                why.unwrap_or_else(|| format!("{} is not set and no services were started", self.variable));
            skip(format_args!("no {}: {why}", self.label));
        }
        place
    }

    /// The same, if something also listens there.
    pub(super) async fn answering_place(&self, default_port: u16) -> Option<String> {
        let place = self.place()?;
        // Of several addresses, as Kafka's bootstrap may hold, the first tells enough.
        let first = place.split(',').next().unwrap_or(&place);
        match timeout(PATIENCE, TcpStream::connect(url::address(first, default_port))).await {
            Ok(Ok(_)) => Some(place),
            Ok(Err(error)) => self.skip_unanswered(&error),
            Err(elapsed) => self.skip_unanswered(&elapsed.into()),
        }
    }

    /// Marks the test as skipped since the server is not there.
    pub(super) fn skip_unanswered<T>(&self, error: &io::Error) -> Option<T> {
        skip(format_args!("the {} of {} does not answer: {error}", self.label, self.variable));
        None
    }
}
