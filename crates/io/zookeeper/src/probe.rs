//! Diagnosis of servers with which a client in the clear gets no session.
//!
//! A secure port of ZooKeeper takes the request of a plain client for a broken record of TLS and is silent or
//! closes, so that the client only knows that time is over. A server that answers to the first message of TLS is one of
//! these.

use crate::tunnel::is_early_end;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// First bytes of the records that a server of TLS answers with: an alert, a message of the handshake.
const RECORDS_OF_TLS: [u8; 2] = [0x15, 0x16];

/// Reason why there is no session with a server.
#[derive(Debug, Error)]
enum Cause {
    #[error(
        "{server} answers in TLS: found the secure port of ZooKeeper, expected the plain one; set \
         membership.tls = true, or name the plain port"
    )]
    Secure { server: String },
    #[error("{server} cannot be reached: {source}")]
    Unreachable { server: String, source: io::Error },
    #[error("{server} does not answer within {} ms", patience.as_millis())]
    Silent { server: String, patience: Duration },
    #[error(
        "{server} answers in another protocol: found the byte {found:#04x}, expected ZooKeeper"
    )]
    Foreign { server: String, found: u8 },
}

/// Returns why there is no session with `servers`, each of which has `patience` to answer. `None` if one ends the
/// connection as a plain ZooKeeper does.
pub(crate) async fn cause(servers: &[String], patience: Duration) -> Option<String> {
    let mut first = None;
    for server in servers {
        let found = tokio::time::timeout(patience, cause_of(server)).await;
        let cause = found.unwrap_or_else(|_| {
            let server = server.clone();
            Some(Cause::Silent { server, patience })
        })?;
        if let Cause::Secure { .. } = cause {
            return Some(cause.to_string());
        }
        first.get_or_insert(cause);
    }
    first.map(|cause| cause.to_string())
}

async fn cause_of(server: &str) -> Option<Cause> {
    let server = server.to_owned();
    let mut stream = match TcpStream::connect(server.as_str()).await {
        Ok(stream) => stream,
        Err(source) => return Some(Cause::Unreachable { server, source }),
    };
    let mut first = [0];
    let answer = async {
        stream.write_all(&client_hello()?).await?;
        stream.read_exact(&mut first).await
    };
    match answer.await {
        Ok(_) if RECORDS_OF_TLS.contains(&first[0]) => Some(Cause::Secure { server }),
        Ok(_) => Some(Cause::Foreign {
            server,
            found: first[0],
        }),
        Err(error) if is_early_end(error.kind()) => None,
        Err(source) => Some(Cause::Unreachable { server, source }),
    }
}

/// Returns the first message of a client of TLS.
fn client_hello() -> io::Result<Vec<u8>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("zookeeper").map_err(io::Error::other)?;
    let mut client = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    /// Returns the cause with a server that reads, writes `answer` and ends its connection.
    fn cause_with(answer: &'static [u8]) -> Option<String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 5];
            stream.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes[0], 0x16, "it is the first message of TLS");
            stream.write_all(answer).unwrap();
        });
        let found = run(&[address]);
        server.join().unwrap();
        found
    }

    fn run(servers: &[String]) -> Option<String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(cause(servers, Duration::from_secs(60)))
    }

    #[test]
    fn what_answers_at_the_port_is_named() {
        let secure = cause_with(&[0x15, 3, 3, 0, 2, 2, 40]).unwrap();
        assert!(secure.contains("found the secure port"), "{secure}");
        assert!(secure.contains("membership.tls = true"), "{secure}");
        let foreign = cause_with(b"HTTP/1.1 400").unwrap();
        assert!(foreign.contains("found the byte 0x48"), "{foreign}");
        assert_eq!(cause_with(b""), None, "as a plain ZooKeeper");
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let away = run(&[address]).unwrap();
        assert!(away.contains("cannot be reached"), "{away}");
    }
}
