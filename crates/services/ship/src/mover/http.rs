//! A server that takes files by PUT, as WebDAV does.

use super::{Access, Checksum, DestinationError, Made, MoveError, Mover, Stored, client, sum};
use crate::pace::{Pace, open_paced};
use sheaf_write::Sums;
use std::path::{Path, PathBuf};
use ureq::http::{Response, StatusCode};
use ureq::typestate::WithoutBody;
use ureq::{Agent, Body, RequestBuilder, SendBody};

#[derive(Debug)]
pub(super) struct Http {
    address: String,
    token_file: Option<PathBuf>,
    agent: Agent,
}

impl Http {
    pub(super) fn make(address: &str, access: &Access) -> Made {
        let agent = client::agent(address, address, access)?;
        if let Some(path) = &access.token_file {
            token(path)?;
        }
        Ok(Box::new(Self {
            address: address.to_owned(),
            token_file: access.token_file.clone(),
            agent,
        }))
    }

    fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Adds the token to a request.
    fn with_token<B>(&self, request: RequestBuilder<B>) -> Result<RequestBuilder<B>, MoveError> {
        let Some(file) = &self.token_file else {
            return Ok(request);
        };
        let token = token(file).map_err(MoveError::at_destination)?;
        Ok(request.header("authorization", format!("Bearer {token}")))
    }

    /// Sends a request without a body.
    fn ask(&self, request: RequestBuilder<WithoutBody>) -> Result<Response<Body>, MoveError> {
        let answer = self.with_token(request)?.call();
        answer.map_err(MoveError::at_destination)
    }
}

fn token(path: &Path) -> Result<String, DestinationError> {
    let refused = |error: String| DestinationError::Access {
        path: path.to_owned(),
        error,
    };
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    let token = text.trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        return Err(refused("found no token, expected one word".to_owned()));
    }
    Ok(token.to_owned())
}

/// Reads `adler32=…` of a digest header.
fn adler32_of(answer: &Response<Body>) -> Option<u32> {
    let headers = answer.headers().get_all("digest");
    let mut digests = headers.iter().filter_map(|value| value.to_str().ok());
    digests.find_map(|text| {
        text.split(',').find_map(|one| {
            let (name, value) = one.trim().split_once('=')?;
            let is_it = name.eq_ignore_ascii_case("adler32");
            is_it.then(|| u32::from_str_radix(value.trim(), 16).ok())?
        })
    })
}

/// Refuses an answer that says that something did not work.
fn checked(what: &str, mut answer: Response<Body>) -> Result<Response<Body>, MoveError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let body = answer.body_mut().with_config().limit(1000);
    let body = body.lossy_utf8(true).read_to_string().unwrap_or_default();
    let line = body.lines().next().unwrap_or_default();
    Err(MoveError::Destination(format!(
        "{what}: status {status} {line}"
    )))
}

impl Mover for Http {
    fn copy(&self, source: &Path, name: &str, _: &Sums, pace: &Pace) -> Result<Sums, MoveError> {
        let length = std::fs::metadata(source).map_err(MoveError::Source)?.len();
        let mut file = open_paced(source, pace).map_err(MoveError::Source)?;
        let request = self
            .agent
            .put(self.url(name))
            .header("content-length", length.to_string())
            .header("content-type", "application/octet-stream");
        let sent = self
            .with_token(request)?
            .send(SendBody::from_reader(&mut file));
        checked("PUT", sent.map_err(MoveError::at_destination)?)?;
        Ok(file.sums())
    }

    fn remove(&self, name: &str, _: &Pace) -> Result<(), MoveError> {
        let answer = self.ask(self.agent.delete(self.url(name)))?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(());
        }
        checked("DELETE", answer).map(drop)
    }

    fn stored(&self, name: &str, _: &Sums, _: &Pace) -> Result<Option<Stored>, MoveError> {
        let url = self.url(name);
        let head = self.ask(self.agent.head(&url).header("want-digest", "adler32"))?;
        if head.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let head = checked("HEAD", head)?;
        let length = head.headers().get("content-length");
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        if let (Some(bytes), Some(adler32)) = (length, adler32_of(&head)) {
            let checksum = Checksum::Adler32(adler32);
            return Ok(Some(Stored { bytes, checksum }));
        }
        // A server that knows no Adler-32: all of the file comes back.
        let mut answer = checked("GET", self.ask(self.agent.get(&url))?)?;
        let stored = sum(answer.body_mut().as_reader());
        let stored = stored.map_err(MoveError::at_destination)?;
        Ok(Some(stored.into()))
    }
}
