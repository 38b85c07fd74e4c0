//! Connections, in the clear or in TLS, and how files get into them.

use crate::answer::Content;
use crate::range::ByteRange;
use crate::watch::{Phase, Watched};
use rustix::fs::sendfile;
use rustix::net::SendFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::Instant;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// Most bytes that one call hands to the kernel, so that other connections of the thread get their turn.
const SEND_BYTES: u64 = 2 << 20;
/// Bytes that are read from a file at once to be encrypted.
const READ_BYTES: usize = 64 << 10;
/// Least room for bytes that come.
const ROOM_BYTES: usize = 4 << 10;

/// Connection with a client.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Where moved bytes are counted.
pub(crate) trait Meter {
    /// Counts bytes of bodies that were sent.
    fn sent(&self, bytes: u64);
}

impl Stream {
    /// Waits until bytes are there, without holding memory for them.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.readable().await,
            // TLS may have decrypted bytes already, of which the socket does not know.
            Self::Tls(_) => Ok(()),
        }
    }

    /// Appends bytes that come to `buffer`, up to `most`. Returns their number; 0 at the end.
    pub(crate) async fn read(&mut self, buffer: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        buffer.reserve(most.min(ROOM_BYTES));
        let most = most as u64;
        match self {
            Self::Plain(stream) => stream.take(most).read_buf(buffer).await,
            Self::Tls(stream) => stream.take(most).read_buf(buffer).await,
        }
    }

    /// Sends bytes; with `has_more` the kernel may wait for those that follow.
    pub(crate) async fn write(&mut self, bytes: &[u8], has_more: bool) -> io::Result<()> {
        match self {
            Self::Tls(stream) => stream.write_all(bytes).await,
            Self::Plain(stream) => {
                let mut flags = SendFlags::NOSIGNAL;
                flags.set(SendFlags::MORE, has_more);
                let mut rest = bytes;
                while !rest.is_empty() {
                    let send = || Ok(rustix::net::send(&*stream, rest, flags)?);
                    let sent = stream.async_io(Interest::WRITABLE, send).await?;
                    rest = &rest[sent..];
                }
                Ok(())
            }
        }
    }

    /// Hands all bytes to the kernel, which TLS may still hold.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(stream) => stream.flush().await,
        }
    }

    /// Sends the body of an answer.
    pub(crate) async fn send(
        &mut self,
        content: &mut Content,
        watched: &Watched,
        meter: &impl Meter,
    ) -> io::Result<()> {
        match content {
            Content::Nothing | Content::File { range: None, .. } => Ok(()),
            Content::Bytes(bytes) => {
                self.write(bytes, false).await?;
                meter.sent(bytes.len() as u64);
                Ok(())
            }
            Content::File {
                file,
                range: Some(range),
            } => self.send_file(file, *range, watched, meter).await,
            Content::Parts { file, parts, end } => {
                for (head, range) in parts {
                    self.write(head.as_bytes(), true).await?;
                    self.send_file(file, *range, watched, meter).await?;
                }
                self.write(end.as_bytes(), false).await
            }
            Content::Stream { flow, length } => {
                watched.enter(Phase::Working, Instant::now());
                let mut left = *length;
                while let Some(bytes) = flow.next().await {
                    let bytes = bytes?;
                    // More than was stated would be taken for the next answer.
                    let most = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    watched.enter(Phase::Sending, Instant::now());
                    self.write(&bytes[..most], false).await?;
                    watched.enter(Phase::Working, Instant::now());
                    meter.sent(most as u64);
                    left -= most as u64;
                }
                match left {
                    0 => Ok(()),
                    _ => Err(io::ErrorKind::UnexpectedEof.into()),
                }
            }
            Content::Flow(flow) => {
                if flow.is_paced {
                    watched.enter(Phase::Working, Instant::now());
                }
                while let Some(bytes) = flow.next().await {
                    let bytes = bytes?;
                    // An empty chunk would be the last one.
                    if bytes.is_empty() {
                        continue;
                    }
                    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
                    chunk.extend_from_slice(&bytes);
                    chunk.extend_from_slice(b"\r\n");
                    self.write(&chunk, false).await?;
                    self.flush().await?;
                    watched.moved(bytes.len() as u64);
                    meter.sent(bytes.len() as u64);
                }
                self.write(b"0\r\n\r\n", false).await
            }
        }
    }

    /// Sends a part of a file.
    ///
    /// # Errors
    ///
    /// That of the connection, or `UnexpectedEof` if the file has been cut meanwhile: what was stated cannot be sent.
    async fn send_file(
        &mut self,
        file: &File,
        range: ByteRange,
        watched: &Watched,
        meter: &impl Meter,
    ) -> io::Result<()> {
        let mut at = range.first;
        let mut left = range.length();
        let mut buffer = Vec::new();
        // Bytes since other connections had their turn.
        let mut in_turn = 0;
        while left > 0 {
            let moved = match self {
                Self::Plain(stream) => {
                    let most = usize::try_from(left.min(SEND_BYTES)).unwrap_or(usize::MAX);
                    let send = || Ok(sendfile(&*stream, file, Some(&mut at), most)?);
                    stream.async_io(Interest::WRITABLE, send).await?
                }
                Self::Tls(stream) => {
                    let most = usize::try_from(left).unwrap_or(usize::MAX);
                    buffer.resize(most.min(READ_BYTES), 0);
                    let got = file.read_at(&mut buffer, at)?;
                    stream.write_all(&buffer[..got]).await?;
                    at += got as u64;
                    got
                }
            };
            if moved == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let moved = moved as u64;
            left -= moved;
            in_turn += moved;
            watched.moved(moved);
            meter.sent(moved);
            if in_turn >= SEND_BYTES && left > 0 {
                in_turn = 0;
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Ends the connection so that the client reads the last answer, although bytes of it may not have been read.
    ///
    /// A socket that is closed with unread bytes is reset, and the answer with it (RFC 9112, section 9.6).
    pub(crate) async fn linger(&mut self, most: usize) {
        let ended = match self {
            Self::Plain(stream) => stream.shutdown().await,
            Self::Tls(stream) => stream.shutdown().await,
        };
        if ended.is_err() {
            return;
        }
        let mut unread = Vec::with_capacity(READ_BYTES);
        let mut bytes = 0;
        while bytes < most {
            unread.clear();
            match self.read(&mut unread, READ_BYTES).await {
                Ok(0) | Err(_) => return,
                Ok(got) => bytes += got,
            }
        }
    }
}
