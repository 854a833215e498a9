//! Connections to no database, for parts that only pass them on: they count how many there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstop_sql::connection::{Column, Connection, Connections};
use backstop_sql::statement::{Statement, Value};
use backstop_sql::{BoxFuture, Error};

/// Where they come from.
#[derive(Clone, Default)]
pub(crate) struct Nowhere {
    open: Arc<AtomicUsize>,
    opened: Arc<AtomicUsize>,
}

impl Nowhere {
    /// How many were given out.
    pub(crate) fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }
}

impl Connections for Nowhere {
    fn connection(&self) -> BoxFuture<'_, Result<Box<dyn Connection>, Error>> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        assert_eq!(self.open.fetch_add(1, Ordering::SeqCst), 0, "the connection before was not given back");
        let line = Line(self.open.clone());
        Box::pin(async { Ok(Box::new(line) as Box<dyn Connection>) })
    }
}

struct Line(Arc<AtomicUsize>);

impl Drop for Line {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Connection for Line {
    fn give_up(&mut self) {}

    fn in_transaction(&self) -> bool {
        false
    }

    fn execute<'a>(&'a mut self, _: &'a Statement) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async { Ok(0) })
    }

    fn fetch<'a>(
        &'a mut self,
        _: &'a Statement,
        _: &'a [Column],
    ) -> BoxFuture<'a, Result<Vec<Vec<Value>>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}
