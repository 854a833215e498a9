//! A statement with its bound values, written once for databases that mark values differently.

use std::fmt::{self, Write};

use backstop_core::Timestamp;

/// A value that is bound to a statement or read from a row. Values never become part of the text.
///
/// Its `Debug` shows kinds and sizes, never contents: a payload is a value too.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// A text, or NULL.
    Text(Option<String>),
    /// A whole number, or NULL.
    Int(Option<i64>),
    /// A moment in UTC, or NULL.
    Time(Option<Timestamp>),
    /// Only for keys: bytes in a text column that are not text.
    Bytes(Vec<u8>),
    /// Only bound, and only where the database has arrays: any number of texts behind one mark, so that
    /// the text of the statement does not change with their number.
    Texts(Vec<String>),
    /// The same for whole numbers.
    Ints(Vec<i64>),
    /// Only in rows: the column holds something else, and this says what is wrong. One such row must not
    /// keep the others from being read.
    Unreadable(String),
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(None) | Self::Int(None) | Self::Time(None) => f.write_str("NULL"),
            Self::Text(Some(text)) => write!(f, "text of {} bytes", text.len()),
            Self::Int(Some(number)) => write!(f, "{number}"),
            Self::Time(Some(moment)) => write!(f, "{moment}"),
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Texts(texts) => write!(f, "{} texts", texts.len()),
            Self::Ints(numbers) => write!(f, "{} numbers", numbers.len()),
            Self::Unreadable(_) => f.write_str("unreadable"),
        }
    }
}

impl Value {
    /// The text, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { text.as_deref() } else { None }
    }

    /// The number, if it is one.
    pub(crate) fn int(&self) -> Option<i64> {
        if let Self::Int(number) = self { *number } else { None }
    }

    /// The moment, if it is one.
    pub(crate) fn time(&self) -> Option<Timestamp> {
        if let Self::Time(moment) = self { *moment } else { None }
    }

    /// The texts of a column, from rows that have no other.
    pub(crate) fn texts(rows: Vec<Vec<Self>>) -> Vec<String> {
        let text = |value| if let Self::Text(text) = value { text } else { None };
        rows.into_iter().flatten().filter_map(text).collect()
    }

    /// The whole numbers of a column, from rows that have no other.
    pub(crate) fn ints(rows: &[Vec<Self>]) -> Vec<i64> {
        rows.iter().flatten().filter_map(Self::int).collect()
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        Self::Text(text.map(str::to_owned))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(Some(number))
    }
}

impl From<Timestamp> for Value {
    fn from(moment: Timestamp) -> Self {
        Self::Time(Some(moment))
    }
}

/// How a database marks the place of a bound value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// `?`, in order.
    Question,
    /// `$1`, `$2`, …
    Dollar,
}

/// The text of a statement and the values bound to it.
///
/// ```
/// use backstop_sql::statement::{Marks, Statement};
///
/// let mut statement = Statement::new(Marks::Dollar);
/// statement.push("delete from t where id = ").bind("7").push(" and n < ").bind(3);
/// assert_eq!(statement.text(), "delete from t where id = $1 and n < $2");
/// assert_eq!(statement.values().len(), 2);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    marks: Marks,
    text: String,
    values: Vec<Value>,
    prepared: bool,
}

impl Statement {
    /// An empty statement.
    pub fn new(marks: Marks) -> Self {
        Self { marks, text: String::new(), values: Vec::new(), prepared: true }
    }

    /// A statement of our own without values, for which no database needs marks.
    pub(crate) fn plain(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::new(Marks::Question) }
    }

    /// The same statement, which the server must not remember: the next one may run on another connection.
    pub fn unprepared(&self) -> Self {
        Self { prepared: false, ..self.clone() }
    }

    /// The same statement with other values.
    pub(crate) fn with_values(&self, other: impl Fn(Value) -> Value) -> Self {
        let Self { marks, text, values, prepared } = self.clone();
        Self { marks, text, values: values.into_iter().map(other).collect(), prepared }
    }

    /// Whether the server may prepare it once and remember it.
    pub fn is_prepared(&self) -> bool {
        self.prepared
    }

    /// Adds text of our own: never a value.
    pub fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Adds the mark of a value and the value.
    pub fn bind(&mut self, value: impl Into<Value>) -> &mut Self {
        self.values.push(value.into());
        match self.marks {
            Marks::Question => self.text.push('?'),
            // Writing into a String cannot fail.
            Marks::Dollar => write!(self.text, "${}", self.values.len()).unwrap_or_default(),
        }
        self
    }

    /// Puts text of our own in front, as in `explain …`: the marks stay as they are.
    pub fn prefix(&mut self, text: &str) -> &mut Self {
        self.text.insert_str(0, text);
        self
    }

    /// Adds text in which each `{name}` stands for the part of that name, so that a statement can be read in one piece.
    pub(crate) fn write(&mut self, template: &str, parts: Parts<'_>) -> &mut Self {
        let mut rest = template;
        while let Some((text, behind)) = rest.split_once('{') {
            let (name, after) = behind.split_once('}').unwrap_or((behind, ""));
            self.push(text);
            match parts.iter().find(|(known, _)| *known == name) {
                Some((_, part)) => part.add(self),
                None => debug_assert!(false, "nothing stands for {name} in {template}"),
            }
            rest = after;
        }
        self.push(rest)
    }

    /// Adds what `each` adds for every item, with commas in between.
    pub fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Self, T),
    ) -> &mut Self {
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.text.push_str(", ");
            }
            each(self, item);
        }
        self
    }

    /// The text, with marks where the values go.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The values, in the order of their marks.
    pub fn values(&self) -> &[Value] {
        &self.values
    }
}

/// What the names in a template stand for.
pub(crate) type Parts<'a> = &'a [(&'a str, &'a dyn Part)];

/// What stands for a name in a template: a value, or a function that adds text and values.
pub(crate) trait Part {
    /// Adds it to a statement.
    fn add(&self, statement: &mut Statement);
}

impl<F: Fn(&mut Statement)> Part for F {
    fn add(&self, statement: &mut Statement) {
        self(statement);
    }
}

impl Part for &str {
    fn add(&self, statement: &mut Statement) {
        statement.bind(*self);
    }
}

impl Part for Option<&str> {
    fn add(&self, statement: &mut Statement) {
        statement.bind(*self);
    }
}

impl Part for i64 {
    fn add(&self, statement: &mut Statement) {
        statement.bind(*self);
    }
}

impl Part for Timestamp {
    fn add(&self, statement: &mut Statement) {
        statement.bind(*self);
    }
}

/// A part that is text of our own, and no value.
pub(crate) struct Plain<T>(pub(crate) T);

impl<T: AsRef<str>> Part for Plain<T> {
    fn add(&self, statement: &mut Statement) {
        statement.push(self.0.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_template_names_stand_for_values_text_and_more() {
        let both = |statement: &mut Statement| {
            statement.bind(1).push(" or ").bind(2);
        };
        let mut statement = Statement::new(Marks::Dollar);
        statement.write(
            "select a from {table} where b = {b} and {both} and b <> {b}",
            &[("table", &Plain("t")), ("b", &"x"), ("both", &both)],
        );
        assert_eq!(statement.text(), "select a from t where b = $1 and $2 or $3 and b <> $4");
        assert_eq!(statement.values().len(), 4);
    }

    #[test]
    fn debug_never_shows_what_a_text_says() {
        let mut statement = Statement::new(Marks::Question);
        statement.bind("secret").bind(Value::Text(None)).bind(7);
        let shown = format!("{statement:?}");
        assert!(shown.contains("text of 6 bytes") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn a_list_has_commas_between_its_items_and_numbered_marks() {
        let mut statement = Statement::new(Marks::Dollar);
        statement.push("in (").list(["a", "b"], |statement, id| {
            statement.bind(id);
        });
        statement.push(")");
        assert_eq!(statement.text(), "in ($1, $2)");
        let mut statement = Statement::new(Marks::Question);
        statement.list([1, 2, 3], |statement, number| {
            statement.push("(").bind(number).push(")");
        });
        assert_eq!(statement.text(), "(?), (?), (?)");
    }
}
