//! Requests over HTTP that the collector makes: scrapes, forwarding, queries that are passed on.
//!
//! A client has one connection at most, which is kept from request to request and made again when it is gone.

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// A URL that cannot be asked.
    #[error("found {found:?}, expected a URL such as http://127.0.0.1:8428/api/v1/write")]
    Url {
        /// URL of the configuration.
        found: String,
    },
    /// File of a CA.
    #[error(transparent)]
    Identity(#[from] sheaf_auth::IdentityError),
    /// File of a token.
    #[error("cannot read the token in {}: {source}", path.display())]
    Token {
        /// File of the configuration.
        path: PathBuf,
        /// Reason.
        source: std::io::Error,
    },
    /// No connection.
    #[error("cannot connect: {0}")]
    Connect(#[from] std::io::Error),
    /// A connection that broke, or an answer that is no HTTP.
    #[error("no answer: {0}")]
    Answer(#[from] hyper::Error),
    /// A body that broke or is too long.
    #[error("no whole answer: {0}")]
    Body(String),
    /// Nothing within the time.
    #[error("no answer within {} ms", .0.as_millis())]
    Time(Duration),
}

/// Answer with its whole body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Address that answered.
    pub(crate) peer: SocketAddr,
}

/// Place that is asked, and how it is reached.
#[derive(Clone)]
pub(crate) struct Place {
    /// Host and port.
    authority: String,
    host: String,
    port: u16,
    /// Path and query.
    path: String,
    tls: Option<Arc<ClientConfig>>,
    token_file: Option<PathBuf>,
    token_word: &'static str,
}

impl Place {
    /// Reads a URL, and the file of the CA for `https`. Empty paths are no files.
    pub(crate) fn new(
        url: &str,
        ca: &Path,
        token_file: &Path,
        token_word: &'static str,
    ) -> Result<Self, ClientError> {
        let (uri, is_tls) = read_url(url).ok_or_else(|| ClientError::Url {
            found: url.to_owned(),
        })?;
        let authority = uri.authority().expect("read_url() looked for it");
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let tls = is_tls.then(|| sheaf_auth::web::client(ca)).transpose()?;
        let place = Self {
            port: authority
                .port_u16()
                .unwrap_or(if is_tls { 443 } else { 80 }),
            authority: authority.to_string(),
            host,
            path: uri
                .path_and_query()
                .map_or("/", |path| path.as_str())
                .to_owned(),
            tls,
            token_file: (!token_file.as_os_str().is_empty()).then(|| token_file.to_owned()),
            token_word,
        };
        place.token()?;
        Ok(place)
    }

    /// Path and query of the URL.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the first line of the token's file, which is read again each time.
    fn token(&self) -> Result<Option<String>, ClientError> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        let token = read_token(path)?;
        Ok(Some(format!("{} {token}", self.token_word)))
    }
}

/// Returns the first line of the file of a token.
pub(crate) fn read_token(path: &Path) -> Result<String, ClientError> {
    let failed = |source| ClientError::Token {
        path: path.to_owned(),
        source,
    };
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let kind = std::io::ErrorKind::InvalidData;
        let text = "found no token, expected one line of visible characters";
        return Err(failed(std::io::Error::new(kind, text)));
    }
    Ok(token.to_owned())
}

/// Splits a URL of HTTP; returns whether it is one of TLS.
pub(crate) fn read_url(url: &str) -> Option<(Uri, bool)> {
    let uri: Uri = url.parse().ok()?;
    uri.authority()?;
    match uri.scheme_str()? {
        "http" => Some((uri, false)),
        "https" => Some((uri, true)),
        _ => None,
    }
}

/// Client of one place.
pub(crate) struct Client {
    place: Place,
    connection: Option<(SendRequest<Full<Bytes>>, SocketAddr)>,
}

impl Client {
    pub(crate) fn new(place: Place) -> Self {
        Self {
            place,
            connection: None,
        }
    }

    /// Sends a request to the place itself and waits for its whole answer.
    pub(crate) async fn ask(
        &mut self,
        method: Method,
        headers: &[(&'static str, &'static str)],
        body: Bytes,
        bytes_max: usize,
        within: Duration,
    ) -> Result<Answer, ClientError> {
        let path = self.place.path.clone();
        let asked = async {
            let (response, peer) = self.send(method, &path, headers, body).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, bytes_max).collect().await;
            let body = body.map_err(|error| ClientError::Body(error.to_string()))?;
            Ok(Answer {
                status: head.status,
                headers: head.headers,
                body: body.to_bytes(),
                peer,
            })
        };
        let asked = tokio::time::timeout(within, asked).await;
        let asked = asked.unwrap_or(Err(ClientError::Time(within)));
        if asked.is_err() {
            // The rest of an answer may be in it.
            self.connection = None;
        }
        asked
    }

    /// Sends a request for `path`; returns the answer before its body has come.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &'static str)],
        body: Bytes,
    ) -> Result<(Response<Incoming>, SocketAddr), ClientError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        let wrong = || ClientError::Url {
            found: path.to_owned(),
        };
        *request.uri_mut() = path.parse().map_err(|_| wrong())?;
        let wanted = request.headers_mut();
        wanted.insert(
            header::HOST,
            self.place.authority.parse().map_err(|_| wrong())?,
        );
        wanted.insert(
            header::USER_AGENT,
            "sheaf-monitor".parse().expect("visible"),
        );
        for (name, value) in headers {
            let value = header::HeaderValue::from_static(value);
            wanted.insert(header::HeaderName::from_static(name), value);
        }
        if let Some(token) = self.place.token()? {
            wanted.insert(
                header::AUTHORIZATION,
                token.parse().expect("visible characters"),
            );
        }
        let is_ready = match &mut self.connection {
            Some((sender, _)) => sender.ready().await.is_ok(),
            None => false,
        };
        if !is_ready {
            self.connection = Some(self.connect().await?);
        }
        let (sender, peer) = self.connection.as_mut().expect("made above");
        let peer = *peer;
        match sender.send_request(request).await {
            Ok(response) => Ok((response, peer)),
            Err(error) => {
                self.connection = None;
                Err(error.into())
            }
        }
    }

    async fn connect(&self) -> Result<(SendRequest<Full<Bytes>>, SocketAddr), ClientError> {
        let place = &self.place;
        let stream = TcpStream::connect((place.host.as_str(), place.port)).await?;
        stream.set_nodelay(true)?;
        let peer = stream.peer_addr()?;
        let Some(config) = &place.tls else {
            return Ok((handshake(stream).await?, peer));
        };
        let name = ServerName::try_from(place.host.clone()).map_err(|_| ClientError::Url {
            found: place.host.clone(),
        })?;
        let stream = TlsConnector::from(config.clone())
            .connect(name, stream)
            .await?;
        Ok((handshake(stream).await?, peer))
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Full<Bytes>>, ClientError> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the connection, or when the sender is dropped; a broken one is seen by the sender.
    tokio::spawn(connection);
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_scheme_and_an_authority() {
        let none = Path::new("");
        let place = Place::new("http://[::1]:8428/api/v1/write?a=b", none, none, "Bearer").unwrap();
        assert_eq!((place.host.as_str(), place.port), ("::1", 8428));
        assert_eq!(place.path, "/api/v1/write?a=b");
        for wrong in ["", "127.0.0.1:80", "ftp://a/", "http:///x"] {
            assert!(Place::new(wrong, none, none, "Bearer").is_err(), "{wrong}");
        }
        let missing = Place::new("http://a", none, Path::new("/nowhere"), "Bearer");
        assert!(matches!(missing, Err(ClientError::Token { .. })));
    }
}
