//! Two questions in Kafka's own protocol that tell whether a broker is ready for clients.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::port::local;

const PATIENCE: Duration = Duration::from_secs(2);

const METADATA: (i16, i16) = (3, 7);
const FIND_COORDINATOR: (i16, i16) = (10, 2);

/// Whether the broker knows itself as part of the cluster, and can say who coordinates a group.
///
/// The second question makes a new broker create the topic of group offsets, so that no test pays for it.
pub(super) fn is_ready(port: u16) -> bool {
    has_brokers(port).unwrap_or(false) && has_coordinator(port).unwrap_or(false)
}

fn has_brokers(port: u16) -> io::Result<bool> {
    // No topics, and none to be created.
    let answer = ask(port, METADATA, &[0, 0, 0, 0, 0])?;
    // The time throttled, then the list of brokers.
    Ok(number(&answer, 4).is_some_and(|brokers| brokers > 0))
}

fn has_coordinator(port: u16) -> io::Result<bool> {
    let mut body = text("backstop-probe");
    body.push(0);
    let answer = ask(port, FIND_COORDINATOR, &body)?;
    // The time throttled, then the error code.
    Ok(answer.get(4..6) == Some(&[0, 0]))
}

/// Sends one request and returns the body of its answer.
fn ask(port: u16, request: (i16, i16), body: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&local(port), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&frame(request, body))?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(0);
    // Whoever sits on this port may not be Kafka: do not believe any length.
    if !(4..=1 << 20).contains(&length) {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    // The request's number comes first.
    Ok(answer.split_off(4))
}

/// A request: its length, its key and version, its number, who asks, and the body.
fn frame((key, version): (i16, i16), body: &[u8]) -> Vec<u8> {
    let mut request = Vec::new();
    request.extend(key.to_be_bytes());
    request.extend(version.to_be_bytes());
    request.extend(1_i32.to_be_bytes());
    request.extend(text("xtask"));
    request.extend(body);
    let length = u32::try_from(request.len()).unwrap_or(u32::MAX);
    length.to_be_bytes().into_iter().chain(request).collect()
}

fn text(value: &str) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    length.to_be_bytes().into_iter().chain(value.bytes()).collect()
}

fn number(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn a_request_carries_its_length_key_version_number_and_sender() {
        let request = frame(METADATA, &[9]);
        assert_eq!(request[..4], [0, 0, 0, 16]);
        assert_eq!(request[4..12], [0, 3, 0, 7, 0, 0, 0, 1]);
        assert_eq!(request[12..], [0, 5, b'x', b't', b'a', b's', b'k', 9]);
    }

    #[test]
    fn a_stranger_on_the_port_is_not_ready() {
        let listener = TcpListener::bind(local(0)).expect("a listener");
        let port = listener.local_addr().expect("its address").port();
        let stranger = thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            client.write_all(b"HTTP/1.1 400 Bad Request\r\n").expect("an answer");
        });
        assert!(!is_ready(port));
        stranger.join().expect("the stranger");
    }
}
