//! The right to deliver from a table: a lock that the database keeps, alone or shared with others that claim.

#[cfg(feature = "_server")]
pub(crate) mod session;

use crate::{BoxFuture, Error};

/// With whom a node shares its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// With nobody.
    Alone,
    /// With others that claim their rows, and with nobody in a single-process mode.
    Claiming,
}

/// The right to deliver from a table. It ends when this is dropped, and with the process. After an explicit release
/// it is free when that call returns.
pub struct Right(Box<dyn Holder>);

/// What holds the right: a locked file, or a connection with a lock.
pub(crate) trait Holder: Send + Sync {
    /// Whether the right is still held. A file's lock lasts as long as the process.
    fn is_held(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async { true })
    }

    /// Takes the right again after it was lost, or says that somebody else has it by now.
    fn retake(&mut self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    /// Gives the right back.
    fn release(self: Box<Self>) -> BoxFuture<'static, ()>;
}

impl Right {
    pub(crate) fn held_by(holder: impl Holder + 'static) -> Self {
        Self(Box::new(holder))
    }

    pub(crate) async fn is_held(&mut self) -> bool {
        self.0.is_held().await
    }

    pub(crate) async fn retake(&mut self) -> Result<(), Error> {
        self.0.retake().await
    }

    pub(crate) async fn release(self) {
        self.0.release().await;
    }
}
