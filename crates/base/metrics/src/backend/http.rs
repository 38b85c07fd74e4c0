//! Payloads as requests over HTTP, in the clear or over TLS.

use super::carrier::{CONNECT_WITHIN, Carrier, CarryError, SEND_WITHIN};
use rustls::crypto::ring;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use ureq::Agent;
use ureq::http::StatusCode;
use ureq::tls::{PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};

/// Bytes of an answer that are read, for the log.
const ANSWER_BYTES_MAX: u64 = 1024;

/// Parts of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Address, path and query, without the scheme.
    pub(crate) target: String,
    /// Certificates that the server's is signed with; none for HTTP in the clear.
    pub(crate) ca: Option<PathBuf>,
    /// Headers of the format.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    /// Word before the token in the header `Authorization`.
    pub(crate) token_word: &'static str,
    /// File whose first line is the token.
    pub(crate) token_file: Option<PathBuf>,
}

/// Way to a server over HTTP. Keeps its connection.
pub(crate) struct Http {
    request: Request,
    url: String,
    agent: Agent,
}

impl Http {
    /// Makes the client. Its files are read here, the token again with every request.
    pub(crate) fn new(request: Request) -> io::Result<Self> {
        let config = Agent::config_builder()
            .timeout_connect(Some(CONNECT_WITHIN))
            .timeout_global(Some(SEND_WITHIN))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent("sheaf-metrics");
        let (scheme, config) = match &request.ca {
            None => ("http", config),
            Some(ca) => {
                let tls = TlsConfig::builder()
                    .provider(TlsProvider::Rustls)
                    .root_certs(roots(ca)?)
                    .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()));
                ("https", config.tls_config(tls.build()))
            }
        };
        if let Some(file) = &request.token_file {
            token(file)?;
        }
        Ok(Self {
            url: format!("{scheme}://{}", request.target),
            request,
            agent: config.build().into(),
        })
    }
}

impl Carrier for Http {
    fn send(&mut self, payload: &[u8]) -> Result<(), CarryError> {
        let mut request = self.agent.post(&self.url);
        for (name, value) in self.request.headers {
            request = request.header(*name, *value);
        }
        if let Some(file) = &self.request.token_file {
            let token = token(file).map_err(|error| CarryError::Later(error.to_string()))?;
            request = request.header(
                "authorization",
                format!("{} {token}", self.request.token_word),
            );
        }
        let later = |error: ureq::Error| CarryError::Later(error.to_string());
        let mut answer = request.send(payload).map_err(later)?;
        let status = answer.status();
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        // An answer that is longer than that ends its connection, and nothing else.
        let body = body.lossy_utf8(true).read_to_string().unwrap_or_default();
        if status.is_success() {
            return Ok(());
        }
        let line = body.lines().next().unwrap_or_default();
        let text = format!("status {status}: {line}");
        // A server that is overloaded, or does not know its rights yet, may take the same body later.
        let is_passing = status.is_server_error()
            || [
                StatusCode::REQUEST_TIMEOUT,
                StatusCode::TOO_MANY_REQUESTS,
                StatusCode::UNAUTHORIZED,
                StatusCode::FORBIDDEN,
            ]
            .contains(&status);
        Err(if is_passing {
            CarryError::Later(text)
        } else {
            CarryError::Refused(text)
        })
    }
}

/// Reads the certificates in a PEM file.
fn roots(path: &Path) -> io::Result<RootCerts> {
    let pem = std::fs::read(path).map_err(|error| named(path, &error))?;
    let certificates = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<_> = certificates.collect();
    if certificates.is_empty() {
        let text = format!("{}: found no certificate, expected PEM", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(RootCerts::new_with_certs(&certificates))
}

/// Reads the first line of a file.
fn token(path: &Path) -> io::Result<String> {
    let text = std::fs::read_to_string(path).map_err(|error| named(path, &error))?;
    let token = text.lines().next().unwrap_or_default().trim();
    let is_good = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_good {
        let text = format!("{}: found no token, expected one line", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(token.to_owned())
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn request(target: String) -> Request {
        Request {
            target,
            ca: None,
            headers: &[("x-format", "lines")],
            token_word: "Token",
            token_file: None,
        }
    }

    /// Answers one request with `status`, and returns it.
    fn serve(listener: &TcpListener, status: &str) -> String {
        let (mut stream, _) = listener.accept().unwrap();
        let mut text = String::new();
        let mut buffer = [0; 4096];
        while !text.ends_with("END") {
            let length = stream.read(&mut buffer).unwrap();
            text += std::str::from_utf8(&buffer[..length]).unwrap();
        }
        let answer =
            format!("HTTP/1.1 {status}\r\ncontent-length: 3\r\nconnection: close\r\n\r\nwhy");
        stream.write_all(answer.as_bytes()).unwrap();
        text
    }

    #[test]
    fn a_payload_is_a_post_with_headers_and_token() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "secret\n").unwrap();
        let target = format!("{}/write?db=a%20b", listener.local_addr().unwrap());
        let request = Request {
            token_file: Some(file),
            ..request(target)
        };
        let mut http = Http::new(request).unwrap();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| serve(&listener, "204 No Content"));
            http.send(b"a value=1\nEND").unwrap();
            let text = server.join().unwrap().to_lowercase();
            assert!(
                text.starts_with("post /write?db=a%20b http/1.1\r\n"),
                "{text}"
            );
            for line in ["x-format: lines\r\n", "authorization: token secret\r\n"] {
                assert!(text.contains(line), "{text}");
            }
            assert!(text.ends_with("\r\n\r\na value=1\nend"), "{text}");
        });
    }

    #[test]
    fn a_status_says_whether_another_attempt_is_worth_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap().to_string();
        let mut http = Http::new(request(target)).unwrap();
        let mut answer = |status: &'static str| {
            std::thread::scope(|scope| {
                scope.spawn(|| serve(&listener, status));
                http.send(b"END").unwrap_err()
            })
        };
        for status in ["503 Busy", "429 Slow", "401 Who"] {
            let error = answer(status);
            assert!(matches!(error, CarryError::Later(_)), "{status}");
        }
        let error = answer("400 Bad");
        assert!(
            matches!(&error, CarryError::Refused(text) if text == "status 400 Bad Request: why"),
            "{error}"
        );
        drop(listener);
        assert!(matches!(http.send(b"END"), Err(CarryError::Later(_))));
    }

    #[test]
    fn files_that_are_not_as_expected_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        let with = |ca: Option<&Path>, token: Option<&Path>| {
            let request = Request {
                ca: ca.map(Path::to_owned),
                token_file: token.map(Path::to_owned),
                ..request("127.0.0.1:1".to_owned())
            };
            Http::new(request).err().unwrap().to_string()
        };
        let missing = folder.path().join("missing");
        assert!(with(Some(&empty), None).ends_with("empty: found no certificate, expected PEM"));
        assert!(with(None, Some(&empty)).ends_with("empty: found no token, expected one line"));
        assert!(with(None, Some(&missing)).contains("missing: No such file"));
    }
}
