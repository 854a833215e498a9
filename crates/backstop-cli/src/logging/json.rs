//! Lines of the log as JSON, one object each, for programs that collect them.

use std::fmt;

use backstop_core::{Clock, SystemClock};
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::plain::is_invisible;

/// Writes `{"time": …, "level": …, "target": …, "message": …, "fields": {…}}`.
pub(super) struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (metadata, mut fields) = (event.metadata(), Fields::default());
        event.record(&mut fields);
        let line = json!({
            "time": SystemClock.now(),
            "level": metadata.level().as_str(),
            "target": metadata.target(),
            "message": fields.message,
            "fields": fields.others,
        });
        writeln!(writer, "{}", ascii_where_it_matters(&line.to_string()))
    }
}

/// What JSON leaves as it is and a terminal would act upon, or hide.
fn ascii_where_it_matters(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    for c in line.chars() {
        if c.is_control() || is_invisible(c) {
            let units = &mut [0; 2];
            kept.extend(c.encode_utf16(units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            kept.push(c);
        }
    }
    kept
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.others.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.add(field, format!("{value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.add(field, value),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_and_hides_nothing() {
        let line = json!({ "why": "a\nb \u{202e}é\u{9b}\u{e0001} \"" }).to_string();
        let kept = ascii_where_it_matters(&line);
        assert_eq!(kept, r#"{"why":"a\nb \u202eé\u009b\udb40\udc01 \""}"#);
        let read: Value = serde_json::from_str(&kept).unwrap();
        assert_eq!(read["why"], "a\nb \u{202e}é\u{9b}\u{e0001} \"", "nothing is lost");
    }
}
