//! One request before thousands of clients make theirs: whether an object is there, and how long it is.

use crate::engine::request;
use crate::head::{HEAD_BYTES_MAX, parse};
use crate::plan::{Load, Method, Target, Tls};
use crate::tls::{self, TlsError};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use thiserror::Error;

/// Reasons why there is no answer.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The connection.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Certificates of authorities.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The library of TLS, such as a name that is none.
    #[error(transparent)]
    Library(#[from] rustls::Error),
    /// Bytes that are no answer.
    #[error("found {bytes} bytes that are no head of an answer of HTTP/1.1")]
    NoHead {
        /// How many.
        bytes: usize,
    },
}

/// Answer to a request for the head of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Status.
    pub status: u16,
    /// Bytes of the object, if the answer says so.
    pub length: Option<u64>,
    /// Name of the server, if the answer has the usual field.
    pub server: Option<String>,
}

/// Asks for the head of `target` with further `fields`, over a connection of its own. Waits for `patience` at each
/// step.
///
/// # Errors
///
/// All of [`ProbeError`].
pub fn probe(
    target: &Target,
    fields: &[String],
    tls: &Tls,
    patience: Duration,
) -> Result<Probe, ProbeError> {
    let load = Load {
        targets: vec![target.clone()],
        method: Method::Head,
        fields: fields.to_vec(),
        ..Load::default()
    };
    let request = request(&load, 0, 0, None);
    let stream = TcpStream::connect_timeout(&target.address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    if !target.is_tls {
        return ask(stream, &request, &load.server_header);
    }
    let name = ServerName::try_from(target.name().to_owned());
    let name = name.map_err(|error| rustls::Error::General(error.to_string()))?;
    let connection = ClientConnection::new(tls::config(tls)?, name)?;
    let stream = StreamOwned::new(connection, stream);
    ask(stream, &request, &load.server_header)
}

fn ask(
    mut stream: impl Read + Write,
    request: &[u8],
    server_header: &str,
) -> Result<Probe, ProbeError> {
    stream.write_all(request)?;
    stream.flush()?;
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece)?;
        bytes.extend_from_slice(&piece[..read]);
        let no_head = || ProbeError::NoHead { bytes: bytes.len() };
        let head = parse(&bytes, server_header).map_err(|_| no_head())?;
        if let Some(head) = head {
            return Ok(Probe {
                status: head.status,
                length: head.length,
                server: head.server.map(str::to_owned),
            });
        }
        if read == 0 || bytes.len() > HEAD_BYTES_MAX {
            return Err(no_head());
        }
    }
}
