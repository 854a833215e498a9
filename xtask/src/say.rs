//! Lines for the person at the terminal, written so that a closed pipe (`| head`) is no panic.

/// Prints one line to standard output.
macro_rules! say {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($argument)*);
    }};
}

/// Prints one line to standard error.
macro_rules! complain {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($argument)*);
    }};
}

pub(crate) use complain;
pub(crate) use say;
