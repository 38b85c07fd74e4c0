//! Requests to the servers that have the file: for what they know of it, and for ranges.

use super::config::FetchConfig;
use super::error::FetchError;
use crate::digest::Stated;
use crate::link;
use crate::outside;
use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;
use ureq::http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, LINK, LOCATION};
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};
use url::Url;

/// Redirections that are followed.
const REDIRECTIONS_MAX: u32 = 5;
/// Longest time until a server takes a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest time until a server tells a checksum, for which it may have to read the file.
const FACTS_WITHIN: Duration = Duration::from_secs(120);
/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

/// Trouble with one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Gone a moment later, perhaps.
    ForNow(String),
    /// The server does not have the file; behind one address another may have it.
    Missing(String),
    /// The server has no use for this file any more.
    ForGood(String),
    /// The fault is on this side.
    Here(String),
}

impl Trouble {
    /// Description of it.
    pub(super) fn text(self) -> String {
        match self {
            Self::ForNow(text) | Self::Missing(text) | Self::ForGood(text) | Self::Here(text) => {
                text
            }
        }
    }
}

/// Facts that a server knows of the file.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) bytes: u64,
    pub(super) etag: Option<String>,
    pub(super) stated: Stated,
    /// Whether it says that it has ranges.
    pub(super) has_ranges: bool,
    /// Addresses of copies that it names.
    pub(super) links: Vec<Url>,
}

/// Range of a file that is fetched.
#[derive(Clone, Debug)]
pub(super) struct Asked<'a> {
    pub(super) url: &'a Url,
    pub(super) range: Range<u64>,
    /// Bytes of the whole file.
    pub(super) bytes: u64,
    /// Version that the server must still have; `None` where a checksum decides.
    pub(super) etag: Option<&'a str>,
}

/// Client of all servers of one file.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    token: Option<String>,
    /// Servers that were named by the user, who get the token.
    named: BTreeSet<String>,
    stall: Duration,
}

impl Client {
    pub(super) fn new(config: &FetchConfig, urls: &[Url]) -> Result<Self, FetchError> {
        let agent = outside::agent(config.ca.as_deref());
        let token = config.token_file.as_deref().map(token).transpose()?;
        Ok(Self {
            agent: agent.map_err(|error| FetchError::Access(error.to_string()))?,
            token,
            named: urls.iter().map(server_of).collect(),
            stall: config.stall,
        })
    }

    /// Asks what a server knows of the file.
    pub(super) fn facts(&self, url: &Url) -> Result<Facts, Trouble> {
        let headers = [
            ("want-digest", "adler32, crc32c;q=0.9".to_owned()),
            ("want-repr-digest", "adler=10, crc32c=9".to_owned()),
        ];
        let (answer, at) = self.send("HEAD", url, &headers, FACTS_WITHIN)?;
        let headers = answer.headers();
        let length = headers.get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let bytes = length.ok_or_else(|| {
            Trouble::ForGood("found no length of the file, expected `Content-Length`".to_owned())
        })?;
        let links = link::duplicates(&list(headers, LINK.as_str()));
        Ok(Facts {
            bytes,
            etag: headers
                .get(ETAG)
                .and_then(|etag| etag.to_str().ok())
                .filter(|etag| etag.starts_with('"'))
                .map(str::to_owned),
            stated: Stated::of_answer(&list(headers, "digest"), &list(headers, "repr-digest")),
            has_ranges: list(headers, ACCEPT_RANGES.as_str()).contains("bytes"),
            links: links
                .iter()
                .filter_map(|address| next_url(&at, address).ok())
                .collect(),
        })
    }

    /// Fetches a range, and gives its bytes to `take` as they come, which returns whether to go on.
    pub(super) fn range(
        &self,
        asked: &Asked<'_>,
        mut take: impl FnMut(&[u8]) -> Result<bool, Trouble>,
    ) -> Result<(), Trouble> {
        let Range { start, end } = asked.range;
        let mut headers = vec![("range", format!("bytes={start}-{}", end - 1))];
        if let Some(etag) = asked.etag {
            headers.push(("if-match", etag.to_owned()));
        }
        let (mut answer, _) = self.send("GET", asked.url, &headers, self.stall)?;
        let mut skip = 0;
        if answer.status() == 206 {
            let found = list(answer.headers(), CONTENT_RANGE.as_str());
            let expected = format!("bytes {start}-{}/{}", end - 1, asked.bytes);
            if found != expected {
                return Err(Trouble::ForGood(format!(
                    "found the range `{found}`, expected `{expected}`"
                )));
            }
        } else {
            // A server without ranges sends all.
            skip = start;
            let length = list(answer.headers(), CONTENT_LENGTH.as_str());
            if length != asked.bytes.to_string() {
                let bytes = asked.bytes;
                return Err(Trouble::ForGood(format!(
                    "found a file of {length} bytes, expected {bytes}"
                )));
            }
        }
        let mut reader = answer.body_mut().as_reader();
        let broken = |error: io::Error| Trouble::ForNow(error.to_string());
        let skipped = io::copy(&mut reader.by_ref().take(skip), &mut io::sink());
        let mut left = end - start;
        if skipped.map_err(broken)? < skip {
            return Err(broken(io::ErrorKind::UnexpectedEof.into()));
        }
        let mut room = vec![0; READ_BYTES];
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(READ_BYTES);
            let got = reader.read(&mut room[..most]).map_err(broken)?;
            if got == 0 {
                return Err(broken(io::ErrorKind::UnexpectedEof.into()));
            }
            left -= got as u64;
            if !take(&room[..got])? {
                break;
            }
        }
        Ok(())
    }

    /// Sends a request, again where the answer is a redirection. Returns the answer and the address that gave it.
    fn send(
        &self,
        method: &str,
        url: &Url,
        headers: &[(&str, String)],
        within: Duration,
    ) -> Result<(Response<Body>, Url), Trouble> {
        let mut url = url.clone();
        for _ in 0..=REDIRECTIONS_MAX {
            let request = match method {
                "HEAD" => self.agent.head(url.as_str()),
                _ => self.agent.get(url.as_str()),
            };
            let mut request = request
                .config()
                .timeout_connect(Some(CONNECT.min(within)))
                .timeout_recv_response(Some(within))
                .timeout_recv_body(Some(within))
                .build()
                // Compressed bytes are none of the file.
                .header("accept-encoding", "identity");
            for (name, value) in headers {
                request = request.header(*name, value);
            }
            if let Some(token) = &self.token
                && self.named.contains(&server_of(&url))
            {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            let answer = request.call();
            let answer = answer.map_err(|error| Trouble::ForNow(error.to_string()))?;
            let status = answer.status();
            if !status.is_redirection() {
                return checked(answer).map(|answer| (answer, url));
            }
            let location = list(answer.headers(), LOCATION.as_str());
            url = next_url(&url, &location).map_err(Trouble::ForGood)?;
        }
        Err(Trouble::ForNow(format!(
            "more than {REDIRECTIONS_MAX} redirections"
        )))
    }
}

/// Refuses an answer that has no file.
fn checked(answer: Response<Body>) -> Result<Response<Body>, Trouble> {
    let status = answer.status().as_u16();
    let found = format!("status {}", answer.status());
    match status {
        200 | 206 => Ok(answer),
        401 | 403 | 405 | 410 | 412 | 416 | 501 => Err(Trouble::ForGood(found)),
        404 => Err(Trouble::Missing(found)),
        _ => Err(Trouble::ForNow(found)),
    }
}

/// Returns the address that `to` is at, seen from `from`.
fn next_url(from: &Url, to: &str) -> Result<Url, String> {
    let refused = || format!("found the address `{to}`, expected one with http or https");
    let url = from.join(to).map_err(|_| refused())?;
    if from.scheme() == "https" && url.scheme() != "https" {
        return Err(format!(
            "found the address `{to}`, expected https as before"
        ));
    }
    is_web(&url).then_some(url).ok_or_else(refused)
}

/// Returns whether a file can be fetched from this address.
pub(super) fn is_web(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.has_host() && url.username().is_empty()
}

fn server_of(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// Returns all values of a header as one list.
fn list(headers: &HeaderMap, name: &str) -> String {
    let values = headers.get_all(name).into_iter();
    let texts: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
    texts.join(", ")
}

fn token(path: &Path) -> Result<String, FetchError> {
    let refused =
        |error: &str| FetchError::Access(format!("cannot use {}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refused(&error.to_string()))?;
    let token = text.trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        return Err(refused("found no token, expected one word"));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_never_leads_out_of_tls() {
        let from = |url: &str, to: &str| {
            let next = next_url(&Url::parse(url).unwrap(), to);
            next.map_or_else(|error| error, |url| url.to_string())
        };
        assert_eq!(from("http://a/b/c", "/d"), "http://a/d");
        assert_eq!(from("http://a/b", "https://c:8443/d"), "https://c:8443/d");
        for (url, to) in [
            ("https://a/b", "http://a/b"),
            ("http://a/b", "file:///etc/passwd"),
            ("http://a/b", "http://user@c/d"),
        ] {
            assert!(from(url, to).starts_with("found the address"), "{to}");
        }
    }
}
