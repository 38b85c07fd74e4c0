//! One connection: its requests in turn, and the answers to them.

use crate::answer::{Answer, Content};
use crate::body::Body;
use crate::head::{Head, HeadLimits};
use crate::metrics::{Active, Refused};
use crate::route;
use crate::status;
use crate::stream::Stream;
use crate::watch::{Phase, Watched};
use crate::worker::Worker;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;
use tokio::net::TcpStream;
use tracing::debug;

/// Bytes of heads that are read at once.
const READ_BYTES: usize = 16 << 10;
/// Longest body that is read only to be thrown away, so that the connection can go on behind it.
const SKIP_BYTES_MAX: usize = 64 << 10;
/// Bytes that a client may still send after the last answer.
const LINGER_BYTES: usize = 1 << 20;
/// Capacity of a buffer that an idle connection keeps.
const KEPT_BYTES: usize = 4 << 10;

/// Serves a connection until it ends.
pub(crate) async fn serve(worker: Rc<Worker>, socket: TcpStream, peer: SocketAddr) {
    let site = worker.site.clone();
    let _open = Active::new(&site.counts.connections);
    let watched = worker.watch();
    // Heads and the ends of files go at once; what follows a head waits for it by MSG_MORE.
    let _ = socket.set_nodelay(true);
    let stream = match &site.tls {
        None => Stream::Plain(socket),
        Some(acceptor) => {
            let handshake = acceptor.accept(socket);
            let shaken = tokio::select! {
                shaken = handshake => shaken,
                () = watched.late() => Err(io::ErrorKind::TimedOut.into()),
            };
            match shaken {
                Ok(stream) => Stream::Tls(Box::new(stream)),
                Err(error) => {
                    site.counts.refused(Refused::Tls);
                    debug!(%peer, %error, "A handshake of TLS failed");
                    return;
                }
            }
        }
    };
    talk(&worker, stream, peer, &watched, Desk::Files).await;
}

/// Serves a connection to the page of the server until it ends.
pub(crate) async fn serve_page(worker: Rc<Worker>, socket: TcpStream, peer: SocketAddr) {
    // Of the page a connection is not counted, and no drain waits for it.
    let watched = Watched::new(Instant::now());
    talk(&worker, Stream::Plain(socket), peer, &watched, Desk::Page).await;
}

async fn talk(worker: &Worker, stream: Stream, peer: SocketAddr, watched: &Watched, desk: Desk) {
    let mut connection = Connection {
        worker,
        stream,
        peer,
        buffer: Vec::new(),
        watched,
        desk,
    };
    let ended = tokio::select! {
        biased;
        ended = connection.converse() => Some(ended),
        () = watched.late() => None,
    };
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => debug!(%peer, %error, "A connection broke"),
        None => connection.put_off(),
    }
}

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Desk {
    Files,
    Page,
}

struct Connection<'a> {
    worker: &'a Worker,
    stream: Stream,
    peer: SocketAddr,
    /// Bytes that came and belong to no request yet.
    buffer: Vec<u8>,
    watched: &'a Watched,
    desk: Desk,
}

impl Connection<'_> {
    async fn converse(&mut self) -> io::Result<()> {
        loop {
            self.watched.enter(Phase::Idle, Instant::now());
            if self.buffer.is_empty() && self.buffer.capacity() > KEPT_BYTES {
                self.buffer = Vec::new();
            }
            let goes_on = match self.next_head().await? {
                Next::End => return Ok(()),
                Next::Head(head) => self.exchange(&head).await?,
                Next::Refused(mut answer) => {
                    self.worker.site.counts.refused(Refused::Head);
                    self.send(&mut answer, true).await?;
                    self.log("?", "?", answer.status, 0, Instant::now());
                    false
                }
            };
            if !goes_on {
                self.stream.linger(LINGER_BYTES).await;
                return Ok(());
            }
        }
    }

    /// Reads until the head of a request is there.
    async fn next_head(&mut self) -> io::Result<Next> {
        let limits = self.worker.site.limits;
        let limits = HeadLimits {
            bytes: limits.head_bytes_max,
            headers: limits.headers_max,
        };
        loop {
            if !self.buffer.is_empty() {
                match Head::parse(&self.buffer, limits) {
                    Ok(Some((head, length))) => {
                        self.buffer.drain(..length);
                        return Ok(Next::Head(head));
                    }
                    Ok(None) => {}
                    Err(error) => {
                        let answer = Answer::refusal(error.status(), &error).closing();
                        return Ok(Next::Refused(answer));
                    }
                }
                if self.watched.phase() == Phase::Idle {
                    self.watched.enter(Phase::Head, Instant::now());
                }
            }
            self.stream.readable().await?;
            let got = self.stream.read(&mut self.buffer, READ_BYTES).await;
            match got {
                Ok(0) => return Ok(Next::End),
                Ok(_) => {}
                // A client that is gone between two requests has broken nothing.
                Err(error) if self.buffer.is_empty() => {
                    debug!(peer = %self.peer, %error, "A connection ended");
                    return Ok(Next::End);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Answers one request. Returns whether the connection goes on.
    async fn exchange(&mut self, head: &Head) -> io::Result<bool> {
        let begun = Instant::now();
        self.watched.enter(Phase::Working, begun);
        let is_file = self.desk == Desk::Files && matches!(head.method(), "GET" | "PUT");
        let _transfer = is_file.then(|| self.worker.site.counts.transfer());
        let mut body = Body::new(head, &mut self.stream, &mut self.buffer, self.watched);
        let mut answer = match self.desk {
            Desk::Files => route::respond(&self.worker.site, head, &mut body).await,
            Desk::Page => status::respond(&self.worker.site, head),
        };
        if !body.is_done() {
            let goes_on = body.is_short(SKIP_BYTES_MAX as u64);
            if !goes_on || body.skip(SKIP_BYTES_MAX).await.is_err() {
                answer.closes = true;
            }
        }
        if !head.is_11 && matches!(answer.content, Content::Flow(_)) {
            answer = Answer::refusal(505, "expected HTTP/1.1, whose bodies may come in chunks");
        }
        if !head.keeps_alive || self.worker.is_stopping() {
            answer.closes = true;
        } else if !head.is_11 {
            answer = answer.with("Connection", "keep-alive");
        }
        let has_body = head.method() != "HEAD";
        let bytes = if has_body { answer.content.length() } else { 0 };
        let sent = self.send(&mut answer, has_body).await;
        let counts = &self.worker.site.counts;
        if self.desk == Desk::Files {
            counts.answered(head.method(), answer.status);
        }
        self.log(head.method(), head.target(), answer.status, bytes, begun);
        if sent.is_err() && is_file {
            counts.broken.increment();
        }
        sent?;
        Ok(!answer.closes)
    }

    async fn send(&mut self, answer: &mut Answer, has_body: bool) -> io::Result<()> {
        self.watched.enter(Phase::Sending, Instant::now());
        let site = &self.worker.site;
        let mut head = String::with_capacity(512);
        self.worker
            .date(|date| answer.write_head(&mut head, date, site.name.as_deref()));
        let mut head = head.into_bytes();
        match &mut answer.content {
            // One packet instead of two.
            Content::Bytes(bytes) if has_body => {
                head.extend_from_slice(bytes);
                self.stream.write(&head, false).await?;
            }
            content
                if has_body && (content.length() > 0 || matches!(content, Content::Flow(_))) =>
            {
                self.stream.write(&head, true).await?;
                self.stream
                    .send(content, self.watched, &site.counts)
                    .await?;
            }
            _ => self.stream.write(&head, false).await?,
        }
        self.stream.flush().await
    }

    /// Ends a connection whose client does not move, or that has nothing to do when the server stops.
    fn put_off(&mut self) {
        if self.worker.is_stopping() && self.watched.phase() == Phase::Idle {
            return;
        }
        let phase = self.watched.phase();
        let counts = &self.worker.site.counts;
        if phase != Phase::Idle {
            counts.refused(Refused::Slow);
            debug!(peer = %self.peer, ?phase, "A client was too slow");
        }
        if let (Phase::Head | Phase::Receiving, Stream::Plain(socket)) = (phase, &self.stream) {
            let answer = Answer::refusal(408, "the request did not come in time").closing();
            self.worker.send_at_once(&answer, socket);
        }
        if matches!(phase, Phase::Receiving | Phase::Sending) {
            counts.broken.increment();
        }
    }

    fn log(&self, method: &str, target: &str, status: u16, bytes: u64, begun: Instant) {
        let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        debug!(peer = %self.peer, method, target, status, bytes, ms, "Request");
    }
}

enum Next {
    /// The client has ended the connection.
    End,
    Head(Head),
    /// The head is refused; the connection cannot go on, as where the next request begins is not known.
    Refused(Answer),
}
