//! Heads of answers of HTTP/1.1: what a client has to know of one. Pure.

use crate::fate::Failure;

/// Longest head that is read, in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 16 << 10;
/// Most fields of a head.
const FIELDS_MAX: usize = 100;

/// Head of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    /// Status.
    pub(crate) status: u16,
    /// Bytes of the body, if the head says so.
    pub(crate) length: Option<u64>,
    /// Whether the body comes in chunks.
    pub(crate) is_chunked: bool,
    /// Whether the server leaves the connection open.
    pub(crate) keeps_alive: bool,
    /// Value of the field that names the server.
    pub(crate) server: Option<&'a str>,
    /// Bytes of the head.
    pub(crate) bytes: usize,
}

/// Reads the head at the start of `bytes`; `None` if it has not come to its end. The field `server_header` names the
/// server.
///
/// # Errors
///
/// [`Failure::BadAnswer`] if this is no head, or one that is too long or contradicts itself.
pub(crate) fn parse<'a>(bytes: &'a [u8], server_header: &str) -> Result<Option<Head<'a>>, Failure> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut answer = httparse::Response::new(&mut fields);
    let length = match answer.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(httparse::Status::Partial) | Err(_) => return Err(Failure::BadAnswer),
    };
    let mut head = Head {
        status: answer.code.ok_or(Failure::BadAnswer)?,
        length: None,
        is_chunked: false,
        keeps_alive: answer.version == Some(1),
        server: None,
        bytes: length,
    };
    for field in &*answer.headers {
        let value = std::str::from_utf8(field.value).ok().map(str::trim);
        let name = |name: &str| field.name.eq_ignore_ascii_case(name);
        if name("content-length") {
            let length = value.and_then(|value| value.parse().ok());
            let length = length.ok_or(Failure::BadAnswer)?;
            if head.length.is_some_and(|other| other != length) {
                return Err(Failure::BadAnswer);
            }
            head.length = Some(length);
        } else if name("transfer-encoding") {
            head.is_chunked = true;
        } else if name("connection") {
            let has = |wanted: &str| {
                let mut words = value.unwrap_or_default().split(',');
                words.any(|word| word.trim().eq_ignore_ascii_case(wanted))
            };
            head.keeps_alive = !has("close") && (head.keeps_alive || has("keep-alive"));
        } else if name(server_header) {
            head.server = value;
        }
    }
    Ok(Some(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, length, whether the connection stays, and server.
    type Facts<'a> = (u16, Option<u64>, bool, Option<&'a str>);

    fn read(text: &str) -> Result<Option<Facts<'_>>, Failure> {
        let head = parse(text.as_bytes(), "x-served-by")?;
        Ok(head.map(|head| (head.status, head.length, head.keeps_alive, head.server)))
    }

    #[test]
    fn heads_say_status_length_server_and_whether_the_connection_stays() {
        for (text, expected) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nX-Served-By: s1\r\n\r\nbody",
                (200, Some(10), true, Some("s1")),
            ),
            (
                "HTTP/1.1 206 Partial Content\r\nCONTENT-LENGTH:7\r\nConnection: foo, Close\r\n\r\n",
                (206, Some(7), false, None),
            ),
            ("HTTP/1.0 200 OK\r\n\r\n", (200, None, false, None)),
            (
                "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n\r\n",
                (200, None, true, None),
            ),
        ] {
            assert_eq!(read(text), Ok(Some(expected)), "{text:?}");
        }
    }

    #[test]
    fn a_head_that_has_not_come_to_its_end_is_awaited() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(read(&text[..end]), Ok(None), "{end} bytes");
        }
    }

    #[test]
    fn what_is_no_head_or_contradicts_itself_is_refused() {
        let long = format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(HEAD_BYTES_MAX));
        for text in [
            "SSH-2.0-OpenSSH_9.2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            long.as_str(),
        ] {
            assert_eq!(read(text), Err(Failure::BadAnswer), "{text:.40}");
        }
    }

    #[test]
    fn chunks_are_noticed() {
        let text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(parse(text, "x").unwrap().unwrap().is_chunked);
    }
}
