//! Requests to a bucket: signed, sent, and their refusals read.

use super::access::S3Access;
use super::xml;
use crate::mover::{Access, DestinationError, MoveError, client};
use crate::pace::{Pace, Paced};
use rusty_s3::{Bucket, Method, UrlStyle};
use std::time::Duration;
use ureq::http::{Request, Response};
use ureq::{Agent, Body, RequestExt as _, SendBody};

/// Time that a signature is good for, and longest time of a request with its body.
const GOOD: Duration = Duration::from_secs(6 * 3600);
/// Attempts at a request that fails for a moment, and the pause after the first one, which doubles.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);
/// Longest answer that is read.
const ANSWER_MAX: u64 = 4 << 20;

/// A request before it is signed.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    /// Key of the object; none for the bucket itself.
    pub(super) key: Option<&'a str>,
    pub(super) query: &'a [(&'a str, &'a str)],
    /// Headers that are signed, by names in lower case.
    pub(super) headers: &'a [(&'a str, &'a str)],
    /// Body of PUT and POST.
    pub(super) body: &'a [u8],
}

/// Why a request was not carried out.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) method: Method,
    /// Status of the answer; none without an answer.
    pub(super) status: Option<u16>,
    /// Code of the error, such as `NoSuchBucket`; empty if the answer names none.
    pub(super) code: String,
    message: String,
}

impl Refusal {
    fn without_answer(method: Method, error: impl std::fmt::Display) -> Self {
        Self {
            method,
            status: None,
            code: String::new(),
            message: error.to_string(),
        }
    }

    /// Whether the same request may succeed a moment later.
    fn is_for_a_moment(&self) -> bool {
        match self.status {
            None | Some(408 | 429) => true,
            Some(status) => status >= 500 && status != 501,
        }
    }

    /// Whether no repetition helps: the bucket is not there, or the keys are not good.
    fn is_for_good(&self) -> bool {
        match self.status {
            Some(301 | 307 | 400 | 404) => true,
            // Keys that may write but not list are refused by this name.
            Some(403) => !matches!(self.code.as_str(), "" | "AccessDenied"),
            _ => false,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            method,
            code,
            message,
            ..
        } = self;
        match self.status {
            Some(status) => write!(f, "{method}: status {status} {code} {message}"),
            None => write!(f, "{method}: {message}"),
        }
    }
}

impl From<Refusal> for MoveError {
    fn from(refusal: Refusal) -> Self {
        Self::at_destination(refusal)
    }
}

/// A bucket at a server.
#[derive(Debug)]
pub(super) struct Store {
    destination: String,
    bucket: Bucket,
    access: S3Access,
    agent: Agent,
}

impl Store {
    /// Opens a bucket, and asks the server for it. A server that does not answer is no fault: files wait for it.
    pub(super) fn open(
        destination: &str,
        bucket: &str,
        access: &Access,
    ) -> Result<Self, DestinationError> {
        let s3 = &access.s3;
        s3.keys_now(destination)?;
        let region = s3.region.clone().unwrap_or_else(|| "us-east-1".to_owned());
        let (endpoint, style) = match &s3.endpoint {
            Some(endpoint) => (endpoint.clone(), UrlStyle::Path),
            // A certificate of AWS is for names without a dot in front of the server's.
            None if bucket.contains('.') => (of_aws(&region), UrlStyle::Path),
            None => (of_aws(&region), UrlStyle::VirtualHost),
        };
        let refused = || DestinationError::Address {
            found: format!("endpoint \"{endpoint}\" of {destination}"),
            expected: "an address of a server such as https://store.example.org",
        };
        let url = endpoint.parse().map_err(|_| refused())?;
        let made = Bucket::new(url, style, bucket.to_owned(), region).map_err(|_| refused())?;
        let store = Self {
            destination: destination.to_owned(),
            agent: client::agent(made.base_url().as_str(), destination, access)?,
            bucket: made,
            access: s3.clone(),
        };
        let ask = Ask {
            method: Method::Get,
            key: None,
            query: &[("list-type", "2"), ("max-keys", "1")],
            headers: &[],
            body: &[],
        };
        match store.send_once(&ask, &Pace::default()) {
            Err(refusal) if refusal.is_for_good() => Err(DestinationError::Refused {
                destination: destination.to_owned(),
                error: refusal.to_string(),
            }),
            Ok(_) | Err(_) => Ok(store),
        }
    }

    /// Sends a request, and again if it fails for a moment.
    pub(super) fn send(&self, ask: &Ask<'_>, pace: &Pace) -> Result<Response<Body>, Refusal> {
        let mut pause = PAUSE;
        for _ in 1..ATTEMPTS {
            match self.send_once(ask, pace) {
                Err(refusal) if refusal.is_for_a_moment() && !pace.is_ending() => {
                    tracing::debug!(destination = %self.destination, %refusal, "A request is sent again");
                }
                sent => return sent,
            }
            let paused = pace.pause(pause);
            paused.map_err(|error| Refusal::without_answer(ask.method, error))?;
            pause *= 2;
        }
        self.send_once(ask, pace)
    }

    /// Sends a request, and returns the text of the answer.
    pub(super) fn ask(&self, ask: &Ask<'_>, pace: &Pace) -> Result<String, Refusal> {
        text(&mut self.send(ask, pace)?).map_err(|error| Refusal::without_answer(ask.method, error))
    }

    fn send_once(&self, ask: &Ask<'_>, pace: &Pace) -> Result<Response<Body>, Refusal> {
        let failed = |error: &dyn std::fmt::Display| Refusal::without_answer(ask.method, error);
        let url = self.sign(ask).map_err(|error| failed(&error))?;
        let mut request = Request::builder().method(ask.method.to_str()).uri(url);
        for (name, value) in ask.headers {
            request = request.header(*name, *value);
        }
        let has_body = matches!(ask.method, Method::Put | Method::Post);
        let sent = if has_body {
            // Orders are small: the rate is for what is copied.
            let unpaced = Pace::default();
            let pace = match ask.method {
                Method::Put => pace,
                _ => &unpaced,
            };
            let mut body = Paced::new(ask.body, pace);
            let request = request
                .header("content-length", ask.body.len().to_string())
                .header("content-type", "application/octet-stream")
                .body(SendBody::from_reader(&mut body))
                .map_err(|error| failed(&error))?;
            request
                .with_agent(&self.agent)
                .configure()
                .timeout_send_body(Some(GOOD))
                .run()
        } else {
            let request = request.body(()).map_err(|error| failed(&error))?;
            self.agent.run(request)
        };
        let mut answer = sent.map_err(|error| failed(&error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let said = text(&mut answer).unwrap_or_default();
        let of = |name| xml::text_of(&said, name).unwrap_or_default();
        Err(Refusal {
            method: ask.method,
            status: Some(answer.status().as_u16()),
            code: of("Code"),
            message: of("Message"),
        })
    }

    /// Returns the address of a request with its signature.
    fn sign(&self, ask: &Ask<'_>) -> Result<String, DestinationError> {
        let keys = self.access.keys_now(&self.destination)?;
        let asked = (ask.method, ask.key);
        Ok(keys.sign(&self.bucket, asked, ask.query, ask.headers, GOOD))
    }
}

fn of_aws(region: &str) -> String {
    format!("https://s3.{region}.amazonaws.com")
}

fn text(answer: &mut Response<Body>) -> Result<String, ureq::Error> {
    let body = answer.body_mut().with_config().limit(ANSWER_MAX);
    body.lossy_utf8(true).read_to_string()
}
