//! The names of event and aggregate types: strings, or your own enums.

/// The aggregate type of an event that names none.
pub const GLOBAL: &str = "__GLOBAL__";

/// The type of an event: a string, or any enum that can give its name:
///
/// ```
/// use backstop_core::event::{Event, EventType};
///
/// enum User { Created, Deleted }
///
/// impl EventType for User {
///     fn name(&self) -> &str {
///         match self {
///             User::Created => "UserCreated",
///             User::Deleted => "UserDeleted",
///         }
///     }
/// }
///
/// let event = Event::of_json(User::Created, "{}")?;
/// assert_eq!(event.event_type(), "UserCreated");
/// # let _ = User::Deleted;
/// # Ok::<(), backstop_core::InvalidEvent>(())
/// ```
pub trait EventType {
    /// The name that is stored and that handlers are registered for.
    fn name(&self) -> &str;
}

/// The type of the thing an event is about: a string, or any enum that can give its name.
pub trait AggregateType {
    /// The name that is stored and that handlers are registered for.
    fn name(&self) -> &str;
}

macro_rules! strings_are {
    ($($name:ident for $text:ty),*) => {$(
        impl $name for $text {
            fn name(&self) -> &str {
                self
            }
        }
    )*};
}

strings_are!(EventType for &str, EventType for String, AggregateType for &str, AggregateType for String);

impl<T: EventType> EventType for &T {
    fn name(&self) -> &str {
        (*self).name()
    }
}

impl<T: AggregateType> AggregateType for &T {
    fn name(&self) -> &str {
        (*self).name()
    }
}
