//! A server that takes files by PUT, as WebDAV does.

use super::folder::copy_all;
use super::{Access, DestinationError, Made, MoveError, Mover, Stored};
use crate::pace::{Pace, PacedFile};
use rustls::crypto::ring;
use sheaf_write::{Kinds, Summing};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use ureq::http::{Response, StatusCode};
use ureq::tls::{PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};
use ureq::{Agent, Body, SendBody};

/// Longest time until a server takes a connection, and until it answers.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(super) struct Http {
    address: String,
    token_file: Option<PathBuf>,
    agent: Agent,
}

/// Sums what is written into it.
struct SummingSink(Summing);

impl Write for SummingSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Http {
    pub(super) fn make(address: &str, access: &Access) -> Made {
        let config = Agent::config_builder()
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(ANSWER))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent("sheaf-ship");
        let config = if address.starts_with("https://") {
            let ca = access.ca.as_ref().ok_or_else(|| DestinationError::NoCa {
                destination: address.to_owned(),
            })?;
            let tls = TlsConfig::builder()
                .provider(TlsProvider::Rustls)
                .root_certs(roots(ca)?)
                .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()));
            config.tls_config(tls.build())
        } else {
            config
        };
        if let Some(path) = &access.token_file {
            token(path)?;
        }
        Ok(Box::new(Self {
            address: address.to_owned(),
            token_file: access.token_file.clone(),
            agent: config.build().into(),
        }))
    }

    fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    fn authorization(&self) -> Result<Option<String>, MoveError> {
        let read = self.token_file.as_deref().map(token).transpose();
        let token = read.map_err(|error| MoveError::Destination(error.to_string()))?;
        Ok(token.map(|token| format!("Bearer {token}")))
    }

    fn ask(&self, is_head: bool, name: &str) -> Result<Response<Body>, MoveError> {
        let url = self.url(name);
        let mut request = match is_head {
            true => self.agent.head(&url),
            false => self.agent.get(&url),
        };
        if let Some(authorization) = self.authorization()? {
            request = request.header("authorization", authorization);
        }
        let answer = request.header("want-digest", "adler32").call();
        answer.map_err(|error| MoveError::Destination(error.to_string()))
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

/// Reads the certificates in a PEM file.
fn roots(path: &Path) -> Result<RootCerts, DestinationError> {
    let refused = |error: String| DestinationError::Access {
        path: path.to_owned(),
        error,
    };
    let pem = std::fs::read(path).map_err(|error| refused(error.to_string()))?;
    let certificates = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<_> = certificates.collect();
    if certificates.is_empty() {
        return Err(refused("found no certificate, expected PEM".to_owned()));
    }
    Ok(RootCerts::Specific(Arc::new(certificates)))
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

fn unexpected(what: &str, answer: &mut Response<Body>) -> MoveError {
    let status = answer.status();
    let body = answer.body_mut().with_config().limit(1000);
    let body = body.lossy_utf8(true).read_to_string().unwrap_or_default();
    let line = body.lines().next().unwrap_or_default();
    MoveError::Destination(format!("{what}: status {status} {line}"))
}

impl Mover for Http {
    fn copy(&self, source: &Path, name: &str, pace: &Pace) -> Result<Stored, MoveError> {
        let at_source = |error: io::Error| MoveError::Source(error.to_string());
        let length = std::fs::metadata(source).map_err(at_source)?.len();
        let mut file = PacedFile::open(source, pace).map_err(at_source)?;
        let mut request = self
            .agent
            .put(self.url(name))
            .header("content-length", length.to_string())
            .header("content-type", "application/octet-stream");
        if let Some(authorization) = self.authorization()? {
            request = request.header("authorization", authorization);
        }
        let sent = request.send(SendBody::from_reader(&mut file));
        let mut answer = sent.map_err(|error| MoveError::Destination(error.to_string()))?;
        if !answer.status().is_success() {
            return Err(unexpected("PUT", &mut answer));
        }
        let sums = file.sums();
        Ok(Stored {
            bytes: sums.bytes,
            adler32: sums.adler32,
        })
    }

    fn remove(&self, name: &str, _: &Pace) -> Result<(), MoveError> {
        let mut request = self.agent.delete(self.url(name));
        if let Some(authorization) = self.authorization()? {
            request = request.header("authorization", authorization);
        }
        let answer = request.call();
        let mut answer = answer.map_err(|error| MoveError::Destination(error.to_string()))?;
        match answer.status().is_success() {
            true => Ok(()),
            false => Err(unexpected("DELETE", &mut answer)),
        }
    }

    fn stored(&self, name: &str, _: &Pace) -> Result<Option<Stored>, MoveError> {
        let mut head = self.ask(true, name)?;
        if head.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if !head.status().is_success() {
            return Err(unexpected("HEAD", &mut head));
        }
        let length = head.headers().get("content-length");
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        if let (Some(bytes), Some(adler32)) = (length, adler32_of(&head)) {
            return Ok(Some(Stored { bytes, adler32 }));
        }
        // A server that knows no Adler-32: all of the file comes back.
        let mut answer = self.ask(false, name)?;
        if !answer.status().is_success() {
            return Err(unexpected("GET", &mut answer));
        }
        let mut sink = SummingSink(Summing::new(Kinds {
            crc32c: false,
            xxh3: false,
        }));
        copy_all(&mut answer.body_mut().as_reader(), &mut sink)
            .map_err(|error| MoveError::Destination(error.to_string()))?;
        let sums = sink.0.sums();
        Ok(Some(Stored {
            bytes: sums.bytes,
            adler32: sums.adler32,
        }))
    }
}
