//! Answers: status, headers and where the bytes of the body come from.

use crate::range::ByteRange;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use std::fmt::{self, Display, Write as _};
use std::fs::File;
use std::io;
use std::pin::Pin;

/// Bytes that are made while they are sent, of a length that is not known before.
pub(crate) struct Flow {
    bytes: Pin<Box<dyn Stream<Item = io::Result<Bytes>>>>,
    /// Whether its pauses are the server's, so that no client is slow in them.
    pub(crate) is_paced: bool,
}

impl Flow {
    pub(crate) fn new(bytes: impl Stream<Item = io::Result<Bytes>> + 'static) -> Self {
        Self {
            bytes: Box::pin(bytes),
            is_paced: false,
        }
    }

    /// Makes one that has pauses of the server.
    pub(crate) fn paced(bytes: impl Stream<Item = io::Result<Bytes>> + 'static) -> Self {
        Self {
            is_paced: true,
            ..Self::new(bytes)
        }
    }

    /// Returns the next bytes, `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<io::Result<Bytes>> {
        self.bytes.next().await
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Flow")
    }
}

/// Body of an answer.
#[derive(Debug)]
pub(crate) enum Content {
    /// None, and no length stated: 204 and 304 have none.
    Nothing,
    /// These bytes.
    Bytes(Vec<u8>),
    /// A part of a file.
    File {
        file: File,
        range: Option<ByteRange>,
    },
    /// Several parts of a file, each with a head of its own, and what ends them (RFC 9110, section 14.6).
    Parts {
        file: File,
        parts: Vec<(String, ByteRange)>,
        end: String,
    },
    /// These bytes, in chunks.
    Flow(Flow),
    /// Bytes that are made while they are sent, of a length that is known before.
    Stream { flow: Flow, length: u64 },
}

impl Content {
    /// File that it is of.
    pub(crate) fn file(&self) -> Option<&File> {
        match self {
            Self::File { file, .. } | Self::Parts { file, .. } => Some(file),
            Self::Nothing | Self::Bytes(_) | Self::Flow(_) | Self::Stream { .. } => None,
        }
    }

    /// Length in bytes; 0 where it is not known before.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Nothing | Self::Flow(_) => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Stream { length, .. } => *length,
            Self::File { range, .. } => range.map_or(0, ByteRange::length),
            Self::Parts { parts, end, .. } => {
                let parts = parts
                    .iter()
                    .map(|(head, range)| head.len() as u64 + range.length());
                parts.sum::<u64>() + end.len() as u64
            }
        }
    }
}

/// Answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Lines of headers, each with its CR LF, but for those that every answer has.
    headers: String,
    pub(crate) content: Content,
    /// Whether the connection is closed behind it.
    pub(crate) closes: bool,
}

impl Answer {
    pub(crate) fn new(status: u16) -> Self {
        Self {
            status,
            headers: String::new(),
            content: Content::Nothing,
            closes: false,
        }
    }

    /// Makes an answer that says in a line why a request was refused.
    pub(crate) fn refusal(status: u16, why: impl Display) -> Self {
        let text = format!("{status} {}: {why}\n", reason(status));
        let answer = Self::new(status).with("Content-Type", "text/plain; charset=utf-8");
        answer.content(Content::Bytes(text.into_bytes()))
    }

    /// Adds a header.
    pub(crate) fn with(mut self, name: &str, value: impl Display) -> Self {
        let at = self.headers.len();
        // Writing to a string cannot fail.
        let _ = write!(self.headers, "{name}: {value}");
        // A value from outside must not begin a header of its own.
        let is_clean = |text: &str| !text.bytes().any(|byte| byte.is_ascii_control());
        if is_clean(&self.headers[at..]) {
            self.headers += "\r\n";
        } else {
            self.headers.truncate(at);
        }
        self
    }

    pub(crate) fn content(mut self, content: Content) -> Self {
        self.content = content;
        self
    }

    pub(crate) fn closing(mut self) -> Self {
        self.closes = true;
        self
    }

    /// Writes the head into `text`.
    pub(crate) fn write_head(&self, text: &mut String, date: &str, name: Option<&str>) {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "HTTP/1.1 {} {}\r\nDate: {date}\r\nServer: sheaf\r\n",
            self.status,
            reason(self.status)
        );
        if let Some(name) = name {
            let _ = write!(text, "X-Served-By: {name}\r\n");
        }
        text.push_str(&self.headers);
        match &self.content {
            Content::Flow(_) => text.push_str("Transfer-Encoding: chunked\r\n"),
            Content::Nothing if [204, 304].contains(&self.status) => {}
            content => {
                let _ = write!(text, "Content-Length: {}\r\n", content.length());
            }
        }
        if self.closes {
            text.push_str("Connection: close\r\n");
        }
        text.push_str("\r\n");
    }

    /// Returns head and body in one piece, for a client that is not waited for.
    pub(crate) fn to_bytes(&self, date: &str, name: Option<&str>) -> Vec<u8> {
        let mut text = String::new();
        self.write_head(&mut text, date, name);
        let mut bytes = text.into_bytes();
        if let Content::Bytes(body) = &self.content {
            bytes.extend_from_slice(body);
        }
        bytes
    }
}

/// Phrase of a status code.
pub(crate) fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(answer: &Answer) -> String {
        let mut text = String::new();
        answer.write_head(&mut text, "today", Some("s1"));
        text
    }

    #[test]
    fn a_head_states_the_length_where_there_can_be_one() {
        let text = head(&Answer::refusal(404, "no file"));
        assert_eq!(
            text,
            "HTTP/1.1 404 Not Found\r\nDate: today\r\nServer: sheaf\r\nX-Served-By: s1\r\n\
             Content-Type: text/plain; charset=utf-8\r\nContent-Length: 23\r\n\r\n"
        );
        assert!(head(&Answer::new(201)).contains("Content-Length: 0\r\n"));
        for status in [204, 304] {
            assert!(!head(&Answer::new(status)).contains("Content-Length"));
        }
        assert!(head(&Answer::new(200).closing()).ends_with("Connection: close\r\n\r\n"));
    }

    #[test]
    fn a_value_adds_no_header() {
        let answer = Answer::new(200).with("A", "1\r\nB: 2").with("C", "3");
        let text = head(&answer);
        assert!(
            !text.contains("B: 2") && text.contains("C: 3\r\n"),
            "{text}"
        );
    }
}
