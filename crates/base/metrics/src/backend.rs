//! Back ends that metrics are sent to, named by URIs.
//!
//! A row of [`SCHEMES`] registers a kind: its scheme, what follows it, its options with their defaults, and how it is
//! opened. Errors, help and the reference page are made of the rows.

mod carrier;
mod encoder;
mod http;
mod messages;
mod packed;
mod page;
mod uri;

pub(crate) use carrier::{Carrier, CarryError};
pub(crate) use encoder::Encoder;
pub(crate) use packed::{Format, Packed};
pub(crate) use page::Page;

use crate::reporting::Verbosity;
use carrier::{Stdout, Tcp, Udp, Unix};
use http::{Http, Request};
use messages::{Message, Messages};
use sheaf_samples::wire::line_protocol::Precision;
use sheaf_samples::wire::{DATAGRAM_BYTES, otlp, remote_write};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;
use uri::{Uri, escaped};

/// Bytes of a payload of a stream.
const STREAM_BYTES: usize = 64 << 10;
/// Bytes of lines in the body of a request.
const BODY_BYTES: usize = 512 << 10;
/// Datagrams of a farm's own network may be larger than the default, up to the largest there is.
const DATAGRAM_BYTES_MAX: usize = 65_507;
/// Least bytes of a datagram: the account of a flush fits.
const DATAGRAM_BYTES_LEAST: usize = 512;

/// Kind of back end.
#[derive(Debug)]
pub struct Scheme {
    /// Name before `://`.
    pub name: &'static str,
    /// Place behind `://`, such as `HOST:PORT`; empty for nothing.
    pub place: &'static str,
    /// Description, a sentence.
    pub help: &'static str,
    /// Options beside [`VERBOSITY`].
    pub options: &'static [BackendOption],
    plan: fn(&Uri) -> Result<Plan, BackendError>,
}

/// Option of a back end.
#[derive(Debug)]
pub struct BackendOption {
    /// Name in the URI.
    pub name: &'static str,
    /// Value if it is left out; empty for none.
    pub default: &'static str,
    /// Description, a sentence.
    pub help: &'static str,
}

/// Option that every kind has.
pub const VERBOSITY: BackendOption = BackendOption {
    name: "verbosity",
    default: "",
    help: "Metrics that the back end takes: prod, info or debug; that of the process if it is left out.",
};

const BYTES: BackendOption = BackendOption {
    name: "bytes",
    default: "1432",
    help: "Bytes of a datagram at most, 512 to 65507.",
};

const fn option(name: &'static str, default: &'static str, help: &'static str) -> BackendOption {
    BackendOption {
        name,
        default,
        help,
    }
}

const DB: BackendOption = option("db", "", "Database, which has to exist.");
const ORG: BackendOption = option("org", "", "Organization.");
const BUCKET: BackendOption = option("bucket", "", "Bucket.");
const TLS: BackendOption = option(
    "tls",
    "off",
    "Whether the connection is encrypted: on or off.",
);
const CA: BackendOption = option(
    "ca",
    "",
    "Certificates that the server's is signed with, as PEM; needed with tls=on.",
);
const TOKEN_FILE: BackendOption = option(
    "token_file",
    "",
    "File whose first line is the token that the process shows.",
);

/// Headers of remote write.
const REMOTE_WRITE: &[(&str, &str)] = &[
    ("content-type", remote_write::CONTENT_TYPE),
    ("content-encoding", remote_write::CONTENT_ENCODING),
    ("x-prometheus-remote-write-version", remote_write::VERSION),
];

/// Headers of OpenTelemetry's request.
const OTLP: &[(&str, &str)] = &[("content-type", otlp::CONTENT_TYPE)];

/// All kinds of back ends.
pub const SCHEMES: &[Scheme] = &[
    Scheme {
        name: "influxdb-udp",
        place: "HOST:PORT",
        help: "InfluxDB line protocol in packed datagrams over UDP.",
        options: &[BYTES],
        plan: |uri| Ok(Plan::Udp(address(uri)?, bytes(uri)?)),
    },
    Scheme {
        name: "influxdb-unix",
        place: "/PATH",
        help: "InfluxDB line protocol in packed datagrams to a Unix socket.",
        options: &[BYTES],
        plan: |uri| Ok(Plan::Unix(path(uri)?, bytes(uri)?)),
    },
    Scheme {
        name: "influxdb-tcp",
        place: "HOST:PORT",
        help: "InfluxDB line protocol as a stream over TCP, connected again when it breaks.",
        options: &[],
        plan: |uri| Ok(Plan::Tcp(address(uri)?)),
    },
    Scheme {
        name: "influxdb-http",
        place: "HOST:PORT",
        help: "InfluxDB 1: line protocol by POST /write.",
        options: &[DB, TLS, CA, TOKEN_FILE],
        plan: |uri| {
            let query = format!(
                "/write?db={}&precision=ms",
                required(uri, DB.name, "a database")?
            );
            let request = request(
                uri,
                &query,
                "Token",
                &[("content-type", "text/plain; charset=utf-8")],
            )?;
            Ok(Plan::Http(request, Body::Lines))
        },
    },
    Scheme {
        name: "influxdb-http2",
        place: "HOST:PORT",
        help: "InfluxDB 2: line protocol by POST /api/v2/write.",
        options: &[ORG, BUCKET, TLS, CA, TOKEN_FILE],
        plan: |uri| {
            let org = required(uri, ORG.name, "an organization")?;
            let bucket = required(uri, BUCKET.name, "a bucket")?;
            let query = format!("/api/v2/write?org={org}&bucket={bucket}&precision=ms");
            let request = request(
                uri,
                &query,
                "Token",
                &[("content-type", "text/plain; charset=utf-8")],
            )?;
            Ok(Plan::Http(request, Body::Lines))
        },
    },
    Scheme {
        name: "prometheus",
        place: "HOST:PORT",
        help: "Page /metrics of the process, for a scraper; port 0 is no port.",
        options: &[],
        plan: |uri| Ok(Plan::Page(address(uri)?)),
    },
    Scheme {
        name: "remote-write",
        place: "HOST:PORT/PATH",
        help: "Prometheus remote write 1.0; the path is mostly /api/v1/write.",
        options: &[TLS, CA, TOKEN_FILE],
        plan: |uri| {
            let request = request(uri, "/api/v1/write", "Bearer", REMOTE_WRITE)?;
            Ok(Plan::Http(request, Body::Message(Message::RemoteWrite)))
        },
    },
    Scheme {
        name: "otlp-http",
        place: "HOST:PORT/PATH",
        help: "OpenTelemetry metrics over HTTP as protobuf; the path is mostly /v1/metrics.",
        options: &[TLS, CA, TOKEN_FILE],
        plan: |uri| {
            let request = request(uri, otlp::PATH, "Bearer", OTLP)?;
            Ok(Plan::Http(request, Body::Message(Message::Otlp)))
        },
    },
    Scheme {
        name: "statsd",
        place: "HOST:PORT",
        help: "StatsD gauges with tags, in packed datagrams over UDP. Without time: a receiver takes its own.",
        options: &[BYTES],
        plan: |uri| Ok(Plan::Statsd(address(uri)?, bytes(uri)?)),
    },
    Scheme {
        name: "stdout",
        place: "",
        help: "InfluxDB line protocol on the standard output, for a look.",
        options: &[],
        plan: |uri| nothing(uri).map(|()| Plan::Stdout),
    },
    Scheme {
        name: "none",
        place: "",
        help: "No back end: metrics are sampled and not sent.",
        options: &[],
        plan: |uri| nothing(uri).map(|()| Plan::Nothing),
    },
];

/// Back end that a process reports to, named by a URI.
///
/// ```
/// use sheaf_metrics::Backend;
///
/// let backend: Backend = "influxdb-udp://127.0.0.1:8089?verbosity=prod".parse().unwrap();
/// assert_eq!(backend.name(), "influxdb-udp://127.0.0.1:8089");
/// let error = "influx://127.0.0.1:8089".parse::<Backend>().unwrap_err();
/// assert!(error.to_string().contains("influxdb-udp"), "{error}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    text: String,
    uri: Uri,
    verbosity: Option<Verbosity>,
    plan: Plan,
}

/// Parts of a back end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Plan {
    Udp(String, usize),
    Unix(PathBuf, usize),
    Tcp(String),
    Http(Request, Body),
    Page(String),
    Statsd(String, usize),
    Stdout,
    Nothing,
}

/// Format of the bodies of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Lines,
    Message(Message),
}

/// Back end as it is opened.
pub(crate) enum Opened {
    /// Batches are encoded and carried.
    Lane(Box<dyn Encoder>, Box<dyn Carrier>),
    /// Metrics are served at this address.
    Page(String),
    /// Nothing is done.
    Nothing,
}

/// Why a URI names no back end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BackendError {
    /// The text is no URI.
    #[error(
        "found back end {found:?}, expected a URI such as influxdb-udp://127.0.0.1:8089; known schemes: {}",
        names()
    )]
    NoUri {
        /// The text.
        found: String,
    },
    /// A kind that does not exist.
    #[error("found scheme {found:?}, expected one of {}", names())]
    Scheme {
        /// The scheme.
        found: String,
    },
    /// The kind needs something else behind `://`.
    #[error("found {found:?} behind {scheme}://, expected {expected}")]
    Place {
        /// The scheme.
        scheme: String,
        /// Text found.
        found: String,
        /// Text expected.
        expected: &'static str,
    },
    /// An option that the kind does not have.
    #[error("found option {found:?} of {scheme}, expected {known}")]
    Option {
        /// The scheme.
        scheme: String,
        /// Name of the option.
        found: String,
        /// Options that it has.
        known: String,
    },
    /// A value that the option cannot have.
    #[error("found {option}={found} of {scheme}, expected {expected}")]
    Value {
        /// The scheme.
        scheme: String,
        /// Name of the option.
        option: &'static str,
        /// Value of the option; empty if it is left out and may not be.
        found: String,
        /// Text expected.
        expected: String,
    },
}

/// Checks the lists of URIs of a configuration, each with its key and whether samples have to be sent to what it names.
/// No back end may stand there twice. `fail` gets key, found and expected of each mistake.
pub fn check_uris(lists: &[(&str, &[String], bool)], mut fail: impl FnMut(&str, String, &str)) {
    let mut names = BTreeSet::new();
    for (key, uris, has_to_send) in lists {
        for (at, uri) in uris.iter().enumerate() {
            let key = format!("{key}[{at}]");
            match uri.parse::<Backend>() {
                Ok(backend) => {
                    let name = backend.name();
                    if *has_to_send && !backend.is_sent_to() {
                        let expected = "a back end that samples are sent to";
                        fail(&key, format!("\"{uri}\""), expected);
                    }
                    let found = format!("\"{name}\" twice");
                    if !names.insert(name) {
                        fail(&key, found, "each back end once");
                    }
                }
                Err(error) => {
                    let message = error.to_string();
                    let expected = message.split_once("expected ");
                    let expected = expected.map_or("a back end", |(_, expected)| expected);
                    fail(&key, format!("\"{uri}\""), expected);
                }
            }
        }
    }
}

/// Lists the schemes.
fn names() -> String {
    let names = SCHEMES.iter().map(|scheme| scheme.name);
    names.collect::<Vec<_>>().join(", ")
}

impl FromStr for Backend {
    type Err = BackendError;

    fn from_str(text: &str) -> Result<Self, BackendError> {
        let uri = Uri::parse(text).ok_or_else(|| BackendError::NoUri {
            found: text.to_owned(),
        })?;
        let scheme = SCHEMES.iter().find(|scheme| scheme.name == uri.scheme);
        let scheme = scheme.ok_or_else(|| BackendError::Scheme {
            found: uri.scheme.clone(),
        })?;
        let known = || scheme.options.iter().chain([&VERBOSITY]);
        for (at, (option, _)) in uri.options.iter().enumerate() {
            let is_known = known().any(|known| known.name == option);
            let is_first = !uri.options[..at].iter().any(|(other, _)| other == option);
            if !is_known || !is_first {
                let names: Vec<_> = known().map(|option| option.name).collect();
                return Err(BackendError::Option {
                    scheme: uri.scheme.clone(),
                    found: option.clone(),
                    known: format!("each of {} once at most", names.join(", ")),
                });
            }
        }
        let verbosity = uri.option(VERBOSITY.name).map(|text| {
            text.parse()
                .map_err(|_| wrong(&uri, VERBOSITY.name, "prod, info or debug"))
        });
        Ok(Self {
            verbosity: verbosity.transpose()?,
            plan: (scheme.plan)(&uri)?,
            text: text.to_owned(),
            uri,
        })
    }
}

impl Backend {
    /// Returns the URI without its options, as metrics and logs name the back end.
    #[must_use]
    pub fn name(&self) -> String {
        self.uri.to_string()
    }

    /// Returns the URI as it was given.
    #[must_use]
    pub fn uri(&self) -> String {
        self.text.clone()
    }

    /// Returns the verbosity that the URI states.
    #[must_use]
    pub fn verbosity(&self) -> Option<Verbosity> {
        self.verbosity
    }

    /// Returns whether samples are sent to the back end; others are read, or do nothing.
    #[must_use]
    pub fn is_sent_to(&self) -> bool {
        !matches!(self.plan, Plan::Page(_) | Plan::Nothing)
    }

    /// Opens the back end. Connections are made later, by its thread.
    ///
    /// # Errors
    ///
    /// If a file that the URI names cannot be read or is not as expected.
    pub(crate) fn open(&self) -> io::Result<Opened> {
        let lane = |bytes: usize, format: Format, carrier: Box<dyn Carrier>| {
            Opened::Lane(Box::new(Packed::new(bytes, format)), carrier)
        };
        let lines = Format::Lines(Precision::Ns);
        Ok(match &self.plan {
            Plan::Udp(address, bytes) => lane(*bytes, lines, Box::new(Udp::new(address.clone()))),
            Plan::Unix(path, bytes) => lane(*bytes, lines, Box::new(Unix::new(path.clone()))),
            Plan::Tcp(address) => lane(STREAM_BYTES, lines, Box::new(Tcp::new(address.clone()))),
            Plan::Http(request, body) => {
                let http = Box::new(Http::new(request.clone())?);
                match body {
                    // As the query says.
                    Body::Lines => lane(BODY_BYTES, Format::Lines(Precision::Ms), http),
                    Body::Message(message) => Opened::Lane(Box::new(Messages::new(*message)), http),
                }
            }
            Plan::Page(address) => Opened::Page(address.clone()),
            Plan::Statsd(address, bytes) => {
                lane(*bytes, Format::Statsd, Box::new(Udp::new(address.clone())))
            }
            Plan::Stdout => lane(STREAM_BYTES, lines, Box::new(Stdout)),
            Plan::Nothing => Opened::Nothing,
        })
    }
}

/// The URI without its options.
impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(f)
    }
}

fn misplaced(uri: &Uri, expected: &'static str) -> BackendError {
    BackendError::Place {
        scheme: uri.scheme.clone(),
        found: uri.place.clone(),
        expected,
    }
}

fn wrong(uri: &Uri, option: &'static str, expected: impl Into<String>) -> BackendError {
    BackendError::Value {
        scheme: uri.scheme.clone(),
        option,
        found: uri.option(option).unwrap_or_default().to_owned(),
        expected: expected.into(),
    }
}

fn address(uri: &Uri) -> Result<String, BackendError> {
    let address = uri.address().map(str::to_owned);
    address.ok_or_else(|| misplaced(uri, "HOST:PORT"))
}

fn path(uri: &Uri) -> Result<PathBuf, BackendError> {
    if uri.place.starts_with('/') && uri.place.len() > 1 {
        Ok(PathBuf::from(&uri.place))
    } else {
        Err(misplaced(
            uri,
            "an absolute path: influxdb-unix:///run/metrics",
        ))
    }
}

fn nothing(uri: &Uri) -> Result<(), BackendError> {
    if uri.place.is_empty() {
        Ok(())
    } else {
        Err(misplaced(uri, "nothing"))
    }
}

/// Returns a value that has to be there, escaped for a query.
fn required(uri: &Uri, option: &'static str, expected: &str) -> Result<String, BackendError> {
    let value = uri.option(option).filter(|value| !value.is_empty());
    value
        .map(escaped)
        .ok_or_else(|| wrong(uri, option, expected))
}

/// Returns the request to the address of `uri`, whose own path counts more than `path`.
fn request(
    uri: &Uri,
    path: &str,
    token_word: &'static str,
    headers: &'static [(&'static str, &'static str)],
) -> Result<Request, BackendError> {
    let scheme = SCHEMES.iter().find(|scheme| scheme.name == uri.scheme);
    let place = scheme.map_or("", |scheme| scheme.place);
    let (address, own) = uri
        .address_and_path()
        .ok_or_else(|| misplaced(uri, place))?;
    let has_path = own.len() > 1;
    if has_path && !place.ends_with("/PATH") {
        return Err(misplaced(uri, place));
    }
    let path = if has_path { own } else { path };
    let file = |option: &str| uri.option(option).map(PathBuf::from);
    let ca = match (uri.option(TLS.name).unwrap_or(TLS.default), file(CA.name)) {
        ("on", Some(ca)) => Some(ca),
        ("on", None) => return Err(wrong(uri, CA.name, "a file of certificates, since tls=on")),
        ("off", None) => None,
        ("off", Some(_)) => return Err(wrong(uri, CA.name, "tls=on beside it")),
        _ => return Err(wrong(uri, TLS.name, "on or off")),
    };
    Ok(Request {
        target: format!("{address}{path}"),
        ca,
        headers,
        token_word,
        token_file: file(TOKEN_FILE.name),
    })
}

fn bytes(uri: &Uri) -> Result<usize, BackendError> {
    let Some(text) = uri.option(BYTES.name) else {
        return Ok(DATAGRAM_BYTES);
    };
    let bytes = text.parse().ok();
    let in_range =
        bytes.filter(|bytes| (DATAGRAM_BYTES_LEAST..=DATAGRAM_BYTES_MAX).contains(bytes));
    let expected = || format!("{DATAGRAM_BYTES_LEAST} to {DATAGRAM_BYTES_MAX}");
    in_range.ok_or_else(|| wrong(uri, BYTES.name, expected()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(uri: &str, expected: &str) {
        let error = uri.parse::<Backend>().unwrap_err().to_string();
        assert!(error.contains(expected), "{uri}: {error}");
    }

    #[test]
    fn a_wrong_uri_is_refused_by_what_was_found_and_expected() {
        let all = names();
        refused("localhost:8089", &format!("known schemes: {all}"));
        refused(
            "influx://localhost:8089",
            &format!("found scheme \"influx\", expected one of {all}"),
        );
        refused(
            "influxdb-udp://localhost",
            "found \"localhost\" behind influxdb-udp://, expected HOST:PORT",
        );
        refused(
            "influxdb-udp://localhost:1?packed=no",
            "found option \"packed\" of influxdb-udp, expected each of bytes, verbosity once at most",
        );
        refused(
            "influxdb-udp://localhost:1?bytes=9&bytes=9",
            "found option \"bytes\"",
        );
        refused(
            "influxdb-udp://localhost:1?bytes=100",
            "found bytes=100 of influxdb-udp, expected 512 to 65507",
        );
        refused(
            "stdout://?verbosity=loud",
            "found verbosity=loud of stdout, expected prod, info or debug",
        );
        refused("influxdb-unix://run/x", "expected an absolute path");
        refused(
            "influxdb-http://h:1",
            "found db= of influxdb-http, expected a database",
        );
        refused(
            "influxdb-http2://h:1?org=a",
            "found bucket= of influxdb-http2, expected a bucket",
        );
        refused("influxdb-http://h:1/x?db=a", "expected HOST:PORT");
        refused("remote-write://h/x", "expected HOST:PORT/PATH");
        refused(
            "remote-write://h:1/x?tls=on",
            "found ca= of remote-write, expected a file of certificates",
        );
        refused("remote-write://h:1/x?ca=f", "expected tls=on beside it");
        refused("remote-write://h:1/x?tls=yes", "expected on or off");
        refused("none://x", "found \"x\" behind none://, expected nothing");
    }

    #[test]
    fn a_request_has_the_query_of_its_server() {
        for (uri, expected) in [
            (
                "influxdb-http://h:1/?db=a b",
                "h:1/write?db=a%20b&precision=ms",
            ),
            (
                "influxdb-http2://h:1?org=o%26&bucket=b",
                "h:1/api/v2/write?org=o%26&bucket=b&precision=ms",
            ),
            ("remote-write://h:1", "h:1/api/v1/write"),
            ("remote-write://h:1/push/", "h:1/push/"),
        ] {
            let backend: Backend = uri.parse().unwrap();
            let Plan::Http(request, _) = backend.plan else {
                panic!("{uri}")
            };
            assert_eq!(request.target, expected);
        }
    }

    #[test]
    fn every_scheme_has_a_help_and_its_defaults_are_those_of_the_code() {
        for scheme in SCHEMES {
            assert!(scheme.help.ends_with('.'), "{}", scheme.name);
            assert!(
                scheme
                    .options
                    .iter()
                    .all(|option| option.help.ends_with('.'))
            );
        }
        assert_eq!(BYTES.default, DATAGRAM_BYTES.to_string());
    }
}
