//! The types that settings have in code: read from what a file says, written as a file would, held to the same rules.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use super::kind::{Plain, is_percent, millis, written};
use super::{Secret, ValueKind};
use crate::setting::Quantity;

/// A type that a setting can have.
pub trait Setting: Sized {
    /// The value that is written there, or the rule it breaks, worded to follow the key.
    fn read(value: &Value, kind: ValueKind) -> Result<Self, String>;

    /// As a settings file writes it; `Null` for no value.
    fn written(&self) -> Value;

    /// The rules that a value set in code breaks: the same as for one in a file.
    fn broken_rules(&self, kind: ValueKind) -> Vec<String>;

    /// Whether there is a value at all.
    fn is_given(&self) -> bool {
        match self.written() {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(values) => !values.is_empty(),
            _ => true,
        }
    }
}

/// A scalar of a file, in the notation of its kind.
fn scalar(value: &Value, kind: ValueKind) -> Result<Value, String> {
    match value {
        Value::String(text) => kind.read(text),
        Value::Number(_) | Value::Bool(_) => kind.read(&value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(format!("must be {}", kind.rule())),
    }
}

fn unfit(kind: ValueKind) -> String {
    format!("must be {}", kind.rule())
}

fn broken(kept: Result<Value, String>) -> Vec<String> {
    kept.err().into_iter().collect()
}

/// What is beyond the bounds of a kind.
fn out_of_bounds<Q: Quantity>(value: Q, min: Option<Q>, max: Option<Q>) -> Vec<String> {
    let low = min.is_some_and(|min| value < min);
    let high = max.is_some_and(|max| value > max);
    match (min, max) {
        _ if !low && !high => Vec::new(),
        (Some(min), Some(max)) => vec![format!("must be between {} and {}", min.told(), max.told())],
        (Some(min), None) => vec![format!("must be at least {}", min.told())],
        (None, Some(max)) => vec![format!("must be at most {}", max.told())],
        (None, None) => Vec::new(),
    }
}

/// Types that are a text to everybody else.
macro_rules! texts {
    ($($type:ty: |$text:ident| $read:expr, |$value:ident| $write:expr;)*) => {$(
        impl Setting for $type {
            fn read(value: &Value, kind: ValueKind) -> Result<Self, String> {
                let read = scalar(value, kind)?;
                let $text = read.as_str().ok_or_else(|| unfit(kind))?;
                $read.ok_or_else(|| unfit(kind))
            }

            fn written(&self) -> Value {
                let $value = self;
                Value::String($write)
            }

            fn broken_rules(&self, kind: ValueKind) -> Vec<String> {
                let $value = self;
                let text: String = $write;
                broken(kind.read(&text))
            }
        }
    )*};
}

texts! {
    String: |text| Some(text.to_owned()), |value| value.clone();
    Secret: |text| Some(Secret::from(text)), |value| value.reveal().to_owned();
    PathBuf: |text| Some(PathBuf::from(text)), |value| value.display().to_string();
    SocketAddr: |text| text.parse().ok(), |value| value.to_string();
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Setting for $type {
            fn read(value: &Value, kind: ValueKind) -> Result<Self, String> {
                let number = scalar(value, kind)?.as_u64().and_then(|number| number.try_into().ok());
                number.ok_or_else(|| unfit(kind))
            }

            fn written(&self) -> Value {
                Value::from(*self)
            }

            fn broken_rules(&self, kind: ValueKind) -> Vec<String> {
                match kind {
                    ValueKind::Number { min, max } => {
                        let value = u64::try_from(*self).unwrap_or(u64::MAX);
                        out_of_bounds(value, Some(min), (max < u64::MAX).then_some(max))
                    }
                    other => broken(other.read(&self.to_string())),
                }
            }
        }
    )*};
}

numbers!(u32, u64, usize);

impl Setting for bool {
    fn read(value: &Value, kind: ValueKind) -> Result<Self, String> {
        scalar(value, kind)?.as_bool().ok_or_else(|| unfit(kind))
    }

    fn written(&self) -> Value {
        Value::from(*self)
    }

    fn broken_rules(&self, _: ValueKind) -> Vec<String> {
        Vec::new()
    }
}

/// A percentage.
impl Setting for f64 {
    fn read(value: &Value, kind: ValueKind) -> Result<Self, String> {
        scalar(value, kind)?.as_f64().ok_or_else(|| unfit(kind))
    }

    fn written(&self) -> Value {
        Value::String(self.to_string())
    }

    fn broken_rules(&self, kind: ValueKind) -> Vec<String> {
        if is_percent(*self) { Vec::new() } else { vec![unfit(kind)] }
    }
}

impl Setting for Duration {
    fn read(value: &Value, kind: ValueKind) -> Result<Self, String> {
        let read = scalar(value, kind)?;
        let millis = read.as_str().and_then(|text| millis(text, Plain::Nothing));
        millis.map(Self::from_millis).ok_or_else(|| unfit(kind))
    }

    fn written(&self) -> Value {
        Value::String(written(*self))
    }

    fn broken_rules(&self, kind: ValueKind) -> Vec<String> {
        match kind {
            ValueKind::Time { min, max, .. } => {
                out_of_bounds(*self, (!min.is_zero()).then_some(min), Some(max))
            }
            other => broken(other.read(&written(*self))),
        }
    }
}

impl<T: Setting> Setting for Option<T> {
    fn read(value: &Value, kind: ValueKind) -> Result<Self, String> {
        if value.is_null() { Ok(None) } else { T::read(value, kind).map(Some) }
    }

    fn written(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::written)
    }

    fn broken_rules(&self, kind: ValueKind) -> Vec<String> {
        self.as_ref().map(|value| value.broken_rules(kind)).unwrap_or_default()
    }
}

impl<T: Setting> Setting for Vec<T> {
    fn read(value: &Value, kind: ValueKind) -> Result<Self, String> {
        match value {
            Value::Array(values) => values.iter().map(|value| T::read(value, kind)).collect(),
            one => Ok(vec![T::read(one, kind)?]),
        }
    }

    fn written(&self) -> Value {
        self.iter().map(T::written).collect()
    }

    fn broken_rules(&self, kind: ValueKind) -> Vec<String> {
        self.iter().flat_map(|value| value.broken_rules(kind)).collect()
    }
}

impl<T: Setting> Setting for BTreeMap<String, T> {
    fn read(value: &Value, kind: ValueKind) -> Result<Self, String> {
        let Value::Object(values) = value else { return Err("must be names with values".to_owned()) };
        values.iter().map(|(name, value)| Ok((name.clone(), T::read(value, kind)?))).collect()
    }

    fn written(&self) -> Value {
        Value::Object(self.iter().map(|(name, value)| (name.clone(), value.written())).collect::<Map<_, _>>())
    }

    fn broken_rules(&self, kind: ValueKind) -> Vec<String> {
        self.values().flat_map(|value| value.broken_rules(kind)).collect()
    }
}

/// What a setter takes for a setting of type `T`: the type itself, and whatever converts to it plainly.
pub trait Given<T> {
    /// As the type.
    fn given(self) -> T;
}

impl<T> Given<T> for T {
    fn given(self) -> T {
        self
    }
}

impl<T> Given<Option<T>> for T {
    fn given(self) -> Option<T> {
        Some(self)
    }
}

macro_rules! given {
    ($($type:ty: $($from:ty),*;)*) => {$($(
        impl Given<$type> for $from {
            fn given(self) -> $type {
                self.into()
            }
        }

        impl Given<Option<$type>> for $from {
            fn given(self) -> Option<$type> {
                Some(self.into())
            }
        }
    )*)*};
}

given! {
    String: &str, &String;
    Secret: &str, String;
    PathBuf: &str, String, &Path, &PathBuf;
}
