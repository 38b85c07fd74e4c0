//! Heads of requests, read strictly: what two programs could read differently is refused.
//!
//! A proxy in front of this server that finds another end of a request than this server does lets a client smuggle a
//! second request past it (RFC 9112, section 11.2). So lines end in CR LF alone, a length is stated once or not at all,
//! and never together with chunks.

use httparse::{EMPTY_HEADER, Request, Status};
use std::ops::Range;
use thiserror::Error;

/// Longest target of a request in bytes.
const TARGET_BYTES_MAX: usize = 8 << 10;
/// Room for headers; how many are allowed is a setting.
const HEADERS_ROOM: usize = 256;

/// Reason why a head is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum HeadError {
    /// Bytes that are no HTTP.
    #[error("found no request of HTTP/1.1: {0}")]
    Malformed(String),
    /// Another protocol, or a version of HTTP that has other framing.
    #[error("found another version, expected HTTP/1.1 or HTTP/1.0")]
    Version,
    /// Line that ends in LF alone.
    #[error("found a line that ends in LF, expected CR LF")]
    BareLf,
    /// More bytes than allowed.
    #[error("found a head of more than {0} bytes")]
    TooLong(usize),
    /// More headers than allowed.
    #[error("found more than {0} headers")]
    TooManyHeaders(usize),
    /// Longer than any path can be.
    #[error("found a target of {0} bytes, expected up to {TARGET_BYTES_MAX}")]
    TargetTooLong(usize),
    /// Without the header that HTTP/1.1 demands, or with several.
    #[error("found {0} headers `Host`, expected one")]
    Hosts(usize),
    /// Length and chunks at once.
    #[error("found `Content-Length` beside `Transfer-Encoding`, expected one of them")]
    LengthBesideChunks,
    /// Several lengths, or one that is none.
    #[error("found the length `{0}`, expected one decimal number")]
    Length(String),
    /// Chunks that HTTP/1.0 does not know.
    #[error("found `Transfer-Encoding` in a request of HTTP/1.0")]
    ChunksOf10,
    /// Coding of a transfer that this server does not know.
    #[error("found the transfer coding `{0}`, expected `chunked`")]
    Coding(String),
    /// Expectation that this server does not know.
    #[error("found the expectation `{0}`, expected `100-continue`")]
    Expectation(String),
}

impl HeadError {
    /// Status code of the answer.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Malformed(_)
            | Self::BareLf
            | Self::Hosts(_)
            | Self::LengthBesideChunks
            | Self::Length(_)
            | Self::ChunksOf10 => 400,
            Self::TargetTooLong(_) => 414,
            Self::Expectation(_) => 417,
            Self::TooLong(_) | Self::TooManyHeaders(_) => 431,
            Self::Coding(_) => 501,
            Self::Version => 505,
        }
    }
}

/// Length of the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// As many bytes; 0 without a header that states a length.
    Length(u64),
    /// Chunks, until an empty one.
    Chunked,
}

/// Bounds of a head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadLimits {
    pub(crate) bytes: usize,
    pub(crate) headers: usize,
}

/// Head of a request that keeps the rules of this server.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    text: Vec<u8>,
    method: Range<usize>,
    target: Range<usize>,
    headers: Vec<(Range<usize>, Range<usize>)>,
    /// Length of the body.
    pub(crate) framing: Framing,
    /// Whether a length or chunks were stated at all.
    pub(crate) states_body: bool,
    /// Whether it is HTTP/1.1, not 1.0.
    pub(crate) is_11: bool,
    /// Whether the client wants the connection to stay open.
    pub(crate) keeps_alive: bool,
    /// Whether the client sends the body only when it is asked for it.
    pub(crate) expects_continue: bool,
}

impl Head {
    /// Reads the head at the start of `bytes`. Returns it with its length, `None` if it is not there as a whole yet.
    ///
    /// # Errors
    ///
    /// [`HeadError`] for what no client of this server may send; the connection is to be closed then.
    pub(crate) fn parse(
        bytes: &[u8],
        limits: HeadLimits,
    ) -> Result<Option<(Self, usize)>, HeadError> {
        // One empty line in front is allowed, which old clients send behind a body (RFC 9112, section 2.2).
        let skipped = if bytes.starts_with(b"\r\n") { 2 } else { 0 };
        let bytes = &bytes[skipped..];
        let Some(length) = end(bytes, limits)? else {
            return Ok(None);
        };
        let text = &bytes[..length];
        let mut room = [EMPTY_HEADER; HEADERS_ROOM];
        let allowed = limits.headers.min(HEADERS_ROOM);
        let mut request = Request::new(&mut room[..allowed]);
        match request.parse(text) {
            Ok(Status::Complete(parsed)) if parsed == length => {}
            Ok(_) => return Err(HeadError::Malformed("found no end of the head".to_owned())),
            Err(httparse::Error::TooManyHeaders) => {
                return Err(HeadError::TooManyHeaders(allowed));
            }
            Err(httparse::Error::Version) => return Err(HeadError::Version),
            Err(error) => return Err(HeadError::Malformed(error.to_string())),
        }
        let head = Self::of(text, &request)?;
        Ok(Some((head, skipped + length)))
    }

    fn of(text: &[u8], request: &Request<'_, '_>) -> Result<Self, HeadError> {
        let begin = text.as_ptr() as usize;
        let range = |part: &[u8]| {
            // An empty value need not lie in the text.
            if part.is_empty() {
                return 0..0;
            }
            let from = part.as_ptr() as usize - begin;
            from..from + part.len()
        };
        let target = request.path.unwrap_or_default();
        if target.len() > TARGET_BYTES_MAX {
            return Err(HeadError::TargetTooLong(target.len()));
        }
        let headers = request.headers.iter();
        let mut head = Self {
            text: text.to_vec(),
            method: range(request.method.unwrap_or_default().as_bytes()),
            target: range(target.as_bytes()),
            headers: headers
                .map(|header| (range(header.name.as_bytes()), range(header.value)))
                .collect(),
            framing: Framing::Length(0),
            states_body: false,
            is_11: request.version == Some(1),
            keeps_alive: false,
            expects_continue: false,
        };
        head.check_host()?;
        (head.framing, head.states_body) = head.read_framing()?;
        head.keeps_alive = head.reads_keep_alive();
        head.expects_continue = head.is_11 && head.read_expectation()?;
        Ok(head)
    }

    /// Method, as it was sent.
    pub(crate) fn method(&self) -> &str {
        self.text_at(&self.method)
    }

    /// Target, as it was sent.
    pub(crate) fn target(&self) -> &str {
        self.text_at(&self.target)
    }

    /// Names and values of all headers.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let headers = self.headers.iter();
        headers.map(|(name, value)| (self.text_at(name), &self.text[value.clone()]))
    }

    /// Values of the headers with this name.
    pub(crate) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let headers = self.headers();
        headers.filter_map(move |(is, value)| is.eq_ignore_ascii_case(name).then_some(value))
    }

    /// Value of the header with this name; `None` if there is none, several, or one that is not text.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut all = self.all(name);
        let value = all.next()?;
        if all.next().is_some() {
            return None;
        }
        std::str::from_utf8(value).ok()
    }

    /// Values of the headers with this name that are text, joined as one list (RFC 9110, section 5.3).
    pub(crate) fn list(&self, name: &str) -> Option<String> {
        let texts = self
            .all(name)
            .filter_map(|value| std::str::from_utf8(value).ok());
        let joined = texts.fold(None::<String>, |list, text| match list {
            None => Some(text.to_owned()),
            Some(list) => Some(format!("{list}, {text}")),
        });
        joined.filter(|list| !list.is_empty())
    }

    fn text_at(&self, range: &Range<usize>) -> &str {
        // The parser takes methods, names and targets for text already.
        std::str::from_utf8(&self.text[range.clone()]).unwrap_or_default()
    }

    fn check_host(&self) -> Result<(), HeadError> {
        let hosts = self.all("host").count();
        let is_good = hosts == 1 || (hosts == 0 && !self.is_11);
        if is_good {
            Ok(())
        } else {
            Err(HeadError::Hosts(hosts))
        }
    }

    fn read_framing(&self) -> Result<(Framing, bool), HeadError> {
        let lengths: Vec<&[u8]> = self.all("content-length").collect();
        let codings: Vec<&[u8]> = self.all("transfer-encoding").collect();
        let shown =
            |values: &[&[u8]]| String::from_utf8_lossy(&values.join(&b", "[..])).into_owned();
        if !codings.is_empty() {
            if !lengths.is_empty() {
                return Err(HeadError::LengthBesideChunks);
            }
            if !self.is_11 {
                return Err(HeadError::ChunksOf10);
            }
            return match codings[..] {
                [coding] if coding.eq_ignore_ascii_case(b"chunked") => Ok((Framing::Chunked, true)),
                _ => Err(HeadError::Coding(shown(&codings))),
            };
        }
        let length = match lengths[..] {
            [] => return Ok((Framing::Length(0), false)),
            [one] if !one.is_empty() && one.iter().all(u8::is_ascii_digit) => {
                std::str::from_utf8(one)
                    .ok()
                    .and_then(|text| text.parse().ok())
            }
            _ => None,
        };
        let length = length.ok_or_else(|| HeadError::Length(shown(&lengths)))?;
        Ok((Framing::Length(length), true))
    }

    fn reads_keep_alive(&self) -> bool {
        let has = |option: &str| {
            let mut lists = self.all("connection");
            lists.any(|list| {
                let mut options = list.split(|byte| *byte == b',');
                options.any(|one| one.trim_ascii().eq_ignore_ascii_case(option.as_bytes()))
            })
        };
        !has("close") && (self.is_11 || has("keep-alive"))
    }

    fn read_expectation(&self) -> Result<bool, HeadError> {
        let mut all = self.all("expect");
        match (all.next(), all.next()) {
            (None, _) => Ok(false),
            (Some(one), None) if one.eq_ignore_ascii_case(b"100-continue") => Ok(true),
            (Some(one), _) => {
                let shown = String::from_utf8_lossy(one).into_owned();
                Err(HeadError::Expectation(shown))
            }
        }
    }
}

/// Returns the length of the head with its last empty line.
fn end(bytes: &[u8], limits: HeadLimits) -> Result<Option<usize>, HeadError> {
    let window = &bytes[..bytes.len().min(limits.bytes)];
    for at in memchr::memchr_iter(b'\n', window) {
        if at == 0 || window[at - 1] != b'\r' {
            return Err(HeadError::BareLf);
        }
        if window[..=at].ends_with(b"\r\n\r\n") {
            return Ok(Some(at + 1));
        }
    }
    if bytes.len() >= limits.bytes {
        return Err(HeadError::TooLong(limits.bytes));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: HeadLimits = HeadLimits {
        bytes: 400,
        headers: 4,
    };

    fn parse(text: &str) -> Result<Option<(Head, usize)>, HeadError> {
        Head::parse(text.as_bytes(), LIMITS)
    }

    fn with(headers: &str) -> Result<Head, HeadError> {
        let text = format!("PUT /a HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
        parse(&text).map(|head| head.expect("a whole head").0)
    }

    #[test]
    fn a_head_is_read_with_its_length() {
        let text = "GET /a?b HTTP/1.1\r\nHost: h\r\nRange:  bytes=0-1 \r\n\r\nrest";
        let (head, length) = parse(text).unwrap().unwrap();
        assert_eq!(&text[length..], "rest");
        assert_eq!((head.method(), head.target()), ("GET", "/a?b"));
        assert_eq!(head.get("RANGE"), Some("bytes=0-1"));
        assert_eq!(head.framing, Framing::Length(0));
        assert!(head.keeps_alive && head.is_11 && !head.states_body && !head.expects_continue);
        for cut in 0..length {
            assert!(parse(&text[..cut]).unwrap().is_none(), "{cut}");
        }
        let behind_a_body = format!("\r\n{text}");
        assert_eq!(parse(&behind_a_body).unwrap().unwrap().1, length + 2);
    }

    #[test]
    fn bodies_have_one_length() {
        assert_eq!(
            with("Content-Length: 12\r\n").unwrap().framing,
            Framing::Length(12)
        );
        let chunked = with("Transfer-Encoding: Chunked\r\nExpect: 100-continue\r\n").unwrap();
        assert_eq!(chunked.framing, Framing::Chunked);
        assert!(chunked.expects_continue && chunked.states_body);
        let refused = [
            ("Content-Length: 1\r\nContent-Length: 1\r\n", 400),
            ("Content-Length: 1, 1\r\n", 400),
            ("Content-Length: +1\r\n", 400),
            ("Content-Length: 0x1\r\n", 400),
            ("Content-Length: \r\n", 400),
            ("Content-Length: 99999999999999999999\r\n", 400),
            ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", 400),
            ("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", 400),
            ("Transfer-Encoding: gzip, chunked\r\n", 501),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                501,
            ),
            ("Transfer-Encoding: xchunked\r\n", 501),
            ("Transfer-Encoding : chunked\r\n", 400),
            ("Expect: tea\r\n", 417),
            (" folded: 1\r\n", 400),
            ("A: 1\r\n folded\r\n", 400),
            ("A: 1\nB: 2\r\n", 400),
            ("A: 1\rB: 2\r\n", 400),
            ("A: \0\r\n", 400),
            ("Host: other\r\n", 400),
        ];
        for (headers, status) in refused {
            let error = with(headers).expect_err(headers);
            assert_eq!(error.status(), status, "{headers}: {error}");
        }
    }

    #[test]
    fn what_is_too_long_is_refused_before_its_end() {
        let endless = format!("GET / HTTP/1.1\r\nHost: {}", "a".repeat(400));
        assert_eq!(parse(&endless).unwrap_err(), HeadError::TooLong(400));
        let many = with(&"A: 1\r\n".repeat(4)).unwrap_err();
        assert_eq!(many, HeadError::TooManyHeaders(4));
        assert_eq!(many.status(), 431);
        let long = format!(
            "GET /{} HTTP/1.1\r\nHost: h\r\n\r\n",
            "a".repeat(TARGET_BYTES_MAX)
        );
        let room = HeadLimits {
            bytes: 64 << 10,
            headers: 4,
        };
        assert_eq!(
            Head::parse(long.as_bytes(), room).unwrap_err().status(),
            414
        );
    }

    #[test]
    fn other_versions_and_missing_hosts_are_refused() {
        for (text, status) in [
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505),
            ("GET /\r\n\r\n", 400),
            ("GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
            ("\r\n\r\n\r\n", 400),
            ("\u{16}\u{3}\u{1}\r\n\r\n", 400),
        ] {
            assert_eq!(parse(text).expect_err(text).status(), status, "{text:?}");
        }
        assert_eq!(parse("GET / HTTP/1.1\n").unwrap_err(), HeadError::BareLf);
        let old = parse("GET / HTTP/1.0\r\n\r\n").unwrap().unwrap().0;
        assert!(!old.is_11 && !old.keeps_alive);
        let kept = "GET / HTTP/1.0\r\nConnection: x, Keep-Alive\r\n\r\n";
        assert!(parse(kept).unwrap().unwrap().0.keeps_alive);
        assert!(
            !with("Connection: keep-alive, close\r\n")
                .unwrap()
                .keeps_alive
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Head::parse(&bytes, LIMITS);
        }

        #[test]
        fn a_head_does_not_depend_on_what_follows(
            text in "GET /[a-z%.]{0,8} HTTP/1\\.[01]\r\nHost: h\r\n([A-Za-z-]{1,18}: ?[ -~]{0,9}\r\n){0,3}\r\n",
            rest in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let alone = Head::parse(text.as_bytes(), LIMITS);
            let longer = [text.as_bytes(), &rest].concat();
            let followed = Head::parse(&longer, LIMITS);
            prop_assert_eq!(format!("{alone:?}"), format!("{followed:?}"));
        }
    }
}
