//! Line protocol over TCP: lines of any number, one after the other, until the sender ends the stream.

use crate::security::{Rights, Stream};
use crate::shared::Shared;
use crate::wall;
use sheaf_intake::{Peer, Protocol};
use sheaf_samples::wire::line_protocol::Precision;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tracing::{debug, warn};

/// Bytes read at once.
const READ: usize = 256 << 10;
/// A sender that is silent for so long makes room for another.
const SILENT: Duration = Duration::from_secs(300);
/// Pause while the store has no room: the sender waits, by the window of TCP.
const AGAIN: Duration = Duration::from_millis(5);

/// Accepts senders until the collector stops.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener, places: Arc<Semaphore>) {
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            () = shared.stop.wait() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                let shared = shared.clone();
                tokio::spawn(async move {
                    if let Some((stream, rights)) = shared.guard.admit(stream).await {
                        receive(&shared, stream, address, rights).await;
                    }
                    drop(place);
                });
            }
            Err(error) => {
                warn!(%error, "Cannot accept a stream of lines");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Takes whole lines as they come; a rest at the end of the stream is a line as well.
///
/// Without `rights` the first line has to be `# token TOKEN`, which is a comment elsewhere.
async fn receive(
    shared: &Shared,
    mut stream: Box<dyn Stream>,
    address: SocketAddr,
    rights: Option<Rights>,
) {
    let peer = Peer {
        address: address.ip(),
        stream: u64::from(address.port()),
    };
    let line_max = shared.config.intake.line_bytes_max as usize;
    let mut bytes = Vec::with_capacity(READ);
    let mut is_admitted = rights.is_some_and(|rights| rights.include(Rights::Write));
    loop {
        while !shared.queue.has_room() {
            tokio::time::sleep(AGAIN).await;
        }
        bytes.reserve(READ);
        let read = tokio::select! {
            () = shared.stop.wait() => break,
            read = tokio::time::timeout(SILENT, stream.read_buf(&mut bytes)) => read,
        };
        match read {
            Ok(Ok(0)) => break,
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                debug!(%address, %error, "A stream of lines broke");
                break;
            }
            Err(_) => {
                warn!(%address, "A sender of lines was silent for {} s: closed", SILENT.as_secs());
                break;
            }
        }
        let whole = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map(|at| at + 1);
        // A line beyond the bound is taken in pieces, each of which the decoder refuses by code.
        let whole = whole.or((bytes.len() > line_max).then_some(bytes.len()));
        if let Some(whole) = whole {
            if !is_admitted {
                is_admitted = may_write(shared, &bytes[..whole]);
            }
            if !is_admitted {
                warn!(%address, "A sender of lines has no token, or one that may not write: closed");
                return;
            }
            take(shared, peer, &bytes[..whole]);
            bytes.drain(..whole);
        }
    }
    if !bytes.is_empty() && is_admitted {
        take(shared, peer, &bytes);
    }
}

/// Returns whether the first of `lines` has a token that may write.
fn may_write(shared: &Shared, lines: &[u8]) -> bool {
    let line = lines
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default();
    let token = line.strip_prefix("# token ").map(str::trim);
    match shared.guard.rights_of(token) {
        Some(rights) if rights.include(Rights::Write) => true,
        Some(_) => {
            shared.guard.note_rights();
            false
        }
        None => false,
    }
}

fn take(shared: &Shared, peer: Peer, lines: &[u8]) {
    let now_ms = wall::now_ms();
    let mut shard = shared.shard();
    shard.take(now_ms, peer, Protocol::Lines(Precision::Ns), lines);
    shard.flush();
}
