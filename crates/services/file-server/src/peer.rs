//! Requests to another server that a file is copied from or to.

use crate::outside::{CaError, is_safe};
use bytes::Bytes;
use http::header::{HOST, LOCATION};
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

/// Transfers at once.
const TRANSFERS_MAX: usize = 64;
/// Longest time until a server takes a connection, with TLS.
const CONNECT_WITHIN: Duration = Duration::from_secs(20);
/// Longest time until it answers.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);
/// Redirections that are followed: a redirector, and the server that has the file.
const REDIRECTIONS_MAX: u32 = 5;

/// Body that is sent.
pub(crate) type SentBody = UnsyncBoxBody<Bytes, io::Error>;

/// Answer of another server, whose connection ends with it.
pub(crate) struct Reply {
    pub(crate) response: Response<Incoming>,
    /// URL that answered, behind redirections.
    pub(crate) url: String,
    _connection: Running,
}

/// Task that ends when it is dropped.
struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Client of other servers.
#[derive(Clone)]
pub(crate) struct Peers {
    tls: Arc<ClientConfig>,
    /// Whether tokens and files may travel in the clear.
    is_insecure: bool,
    /// Whether all clients are on this machine. Others must not reach its own services through this server.
    is_local: bool,
    places: Arc<Semaphore>,
}

impl Peers {
    pub(crate) fn new(
        ca: Option<&std::path::Path>,
        is_insecure: bool,
        is_local: bool,
    ) -> Result<Self, CaError> {
        Ok(Self {
            tls: crate::outside::tls(ca)?,
            is_insecure,
            is_local,
            places: Arc::new(Semaphore::new(TRANSFERS_MAX)),
        })
    }

    /// Returns a place for a transfer, `None` if there are too many at once.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.places.clone().try_acquire_owned().ok()
    }

    /// Returns whether files may be copied from or to this URL.
    ///
    /// # Errors
    ///
    /// What was found and what is expected.
    pub(crate) fn check(&self, url: &str) -> Result<Uri, String> {
        let expected = || format!("found `{url}`, expected a URL with https and a host");
        let uri: Uri = url.parse().map_err(|_| expected())?;
        let is_allowed = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => self.is_insecure || (self.is_local && is_safe(url)),
            _ => false,
        };
        let is_good = uri.host().is_some() && !url.contains('@') && is_allowed;
        if is_good { Ok(uri) } else { Err(expected()) }
    }

    /// Sends a request, again where the answer is a redirection. `body` makes the body for each time.
    ///
    /// # Errors
    ///
    /// What failed, at which server.
    pub(crate) async fn send(
        &self,
        method: &Method,
        url: &str,
        headers: &HeaderMap,
        body: impl Fn() -> Result<SentBody, String>,
    ) -> Result<Reply, String> {
        let mut url = url.to_owned();
        for _ in 0..=REDIRECTIONS_MAX {
            let uri = self.check(&url)?;
            let reply = self.send_once(method, &uri, headers, body()?).await;
            let (response, connection) = reply.map_err(|error| format!("{url}: {error}"))?;
            let location = response
                .headers()
                .get(LOCATION)
                .filter(|_| response.status().is_redirection());
            match location.and_then(|location| location.to_str().ok()) {
                Some(location) if location.starts_with('/') => {
                    let scheme = uri.scheme_str().unwrap_or("https");
                    let authority = uri.authority().map_or("", |authority| authority.as_str());
                    url = format!("{scheme}://{authority}{location}");
                }
                Some(location) => location.clone_into(&mut url),
                None => {
                    return Ok(Reply {
                        response,
                        url,
                        _connection: connection,
                    });
                }
            }
        }
        Err(format!("{url}: more than {REDIRECTIONS_MAX} redirections"))
    }

    async fn send_once(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        body: SentBody,
    ) -> Result<(Response<Incoming>, Running), String> {
        let host = uri.host().unwrap_or_default();
        let is_tls = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        // Of an address of IPv6 the brackets belong to the URL.
        let name = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let connecting = async {
            let socket = TcpStream::connect((name.as_str(), port)).await?;
            socket.set_nodelay(true)?;
            Ok::<_, io::Error>(if is_tls {
                let name = ServerName::try_from(name.clone()).map_err(io::Error::other)?;
                let connector = TlsConnector::from(self.tls.clone());
                Box::new(connector.connect(name, socket).await?) as Box<dyn Io>
            } else {
                Box::new(socket)
            })
        };
        let stream = tokio::time::timeout(CONNECT_WITHIN, connecting).await;
        let stream = stream.map_err(|_| "no connection in time")?;
        let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
        // XRootD 5.5 knows `Content-Length` in this spelling alone, and takes an upload without one for empty.
        let handshake = http1::Builder::new()
            .title_case_headers(true)
            .handshake(TokioIo::new(stream))
            .await;
        let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
        let connection = tokio::task::spawn_local(async move {
            // What breaks shows in the answer, or in its body.
            let _ = connection.await;
        });
        let connection = Running(connection);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::builder().method(method).uri(path);
        if let Some(all) = request.headers_mut() {
            all.clone_from(headers);
        }
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let request = request.header(HOST, authority).body(body);
        let request = request.map_err(|error| error.to_string())?;
        // A body that is sent takes its time: the caller watches that its bytes move.
        let answer = if method == Method::PUT {
            sender.send_request(request).await
        } else {
            let answer = tokio::time::timeout(ANSWER_WITHIN, sender.send_request(request)).await;
            answer.map_err(|_| "no answer in time")?
        };
        Ok((answer.map_err(|error| error.to_string())?, connection))
    }
}

/// Bytes both ways, in the clear or in TLS.
trait Io: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Io for T {}

#[cfg(test)]
mod tests {
    use super::Peers;

    #[test]
    fn clients_from_elsewhere_reach_no_service_of_this_machine_in_the_clear() {
        let check = |is_insecure, is_local, url: &str| {
            let peers = Peers::new(None, is_insecure, is_local).unwrap();
            peers.check(url).is_ok()
        };
        let here = "http://127.0.0.1:9103/metrics";
        assert!(check(false, true, here) && check(true, false, here));
        assert!(!check(false, false, here));
        assert!(check(false, false, "https://store.example/a"));
        assert!(!check(false, true, "http://store.example/a"));
        assert!(!check(true, true, "ftp://store.example/a"));
    }
}
