//! The lines of a file, none longer than a limit, whatever a crash or somebody else left there.

use std::io::{self, BufRead, Read};

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line with its newline; the last may have none. The caller checks whether it is text.
    Bytes(Vec<u8>),
    /// A line beyond the limit, which was passed over.
    TooLong,
    /// There is no more.
    End,
}

/// Reads a line of at most this many bytes. The newline counts, even the one that a torn last line lacks.
pub(crate) fn read_line(reader: &mut impl BufRead, limit: usize) -> io::Result<Line> {
    let mut line = Vec::new();
    reader.by_ref().take(limit as u64).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(Line::End);
    }
    if line.len() == limit && !line.ends_with(b"\n") {
        reader.skip_until(b'\n')?;
        return Ok(Line::TooLong);
    }
    Ok(Line::Bytes(line))
}

#[cfg(test)]
mod tests {
    use super::Line::{End, TooLong};
    use super::*;

    const LIMIT: usize = 5;

    fn lines(content: &[u8]) -> Vec<Line> {
        // Lines go on beyond what is read at once.
        let mut reader = io::BufReader::with_capacity(2, content);
        let mut lines = Vec::new();
        loop {
            lines.push(read_line(&mut reader, LIMIT).unwrap());
            if lines.last() == Some(&End) {
                return lines;
            }
        }
    }

    fn bytes(line: &[u8]) -> Line {
        Line::Bytes(line.to_vec())
    }

    #[test]
    fn an_empty_file_ends_at_once() {
        assert_eq!(lines(b""), [End]);
    }

    #[test]
    fn a_line_may_be_as_long_as_the_limit_with_its_newline() {
        assert_eq!(lines(b"1234\n1234\n"), [bytes(b"1234\n"), bytes(b"1234\n"), End]);
    }

    #[test]
    fn a_longer_line_is_passed_over_and_the_next_one_is_read() {
        assert_eq!(lines(b"12345\n1\n"), [TooLong, bytes(b"1\n"), End]);
        assert_eq!(lines(b"1234567890\n\n1"), [TooLong, bytes(b"\n"), bytes(b"1"), End]);
    }

    #[test]
    fn the_last_line_needs_no_newline_but_room_for_it() {
        assert_eq!(lines(b"1\n1234"), [bytes(b"1\n"), bytes(b"1234"), End]);
        assert_eq!(lines(b"12345"), [TooLong, End]);
        assert_eq!(lines(b"123456"), [TooLong, End]);
    }

    #[test]
    fn what_is_no_text_is_a_line_all_the_same() {
        assert_eq!(lines(b"\xff\xfe\n1\n"), [bytes(b"\xff\xfe\n"), bytes(b"1\n"), End]);
    }
}
