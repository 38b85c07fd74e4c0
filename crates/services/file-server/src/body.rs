//! Bodies of requests as they come.

use crate::chunk::{ChunkError, Chunks, Piece};
use crate::head::{Framing, Head};
use crate::stream::Stream;
use crate::watch::{Phase, Watched};
use std::io;
use std::time::Instant;
use thiserror::Error;

/// Bytes of chunks that are read at once.
const CHUNKS_BYTES: usize = 64 << 10;

/// Reason why a body did not come whole.
#[derive(Debug, Error)]
pub(crate) enum BodyError {
    /// Connection that broke, or ended within the body.
    #[error("the connection ended within the body: {0}")]
    Broken(#[from] io::Error),
    /// Bytes that are no chunks.
    #[error(transparent)]
    Chunks(#[from] ChunkError),
    /// More than the request may have.
    #[error("found a body of more than {0} bytes")]
    TooLong(usize),
}

#[derive(Debug)]
enum Left {
    Length(u64),
    Chunks(Chunks),
    Done,
}

/// Body of one request, taken from its connection.
#[derive(Debug)]
pub(crate) struct Body<'a> {
    stream: &'a mut Stream,
    /// Bytes of the connection that were read already: of the body, and of what follows it.
    buffer: &'a mut Vec<u8>,
    watched: &'a Watched,
    left: Left,
    /// Whether the client waits to be asked.
    awaits_continue: bool,
}

impl<'a> Body<'a> {
    pub(crate) fn new(
        head: &Head,
        stream: &'a mut Stream,
        buffer: &'a mut Vec<u8>,
        watched: &'a Watched,
    ) -> Self {
        let left = match head.framing {
            Framing::Length(0) => Left::Done,
            Framing::Length(bytes) => Left::Length(bytes),
            Framing::Chunked => Left::Chunks(Chunks::default()),
        };
        Self {
            awaits_continue: head.expects_continue && !matches!(left, Left::Done),
            stream,
            buffer,
            watched,
            left,
        }
    }

    /// Returns the number of bytes that are still to come, if the client has stated it.
    pub(crate) fn stated(&self) -> Option<u64> {
        match self.left {
            Left::Length(bytes) => Some(bytes),
            Left::Chunks(_) => None,
            Left::Done => Some(0),
        }
    }

    /// Watch over the connection.
    pub(crate) fn watched(&self) -> &Watched {
        self.watched
    }

    /// Returns whether nothing of it is left on the connection.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.left, Left::Done)
    }

    /// Returns whether it can be read to its end without waiting for more than `most` bytes.
    pub(crate) fn is_short(&self, most: u64) -> bool {
        !self.awaits_continue && self.stated().is_some_and(|bytes| bytes <= most)
    }

    /// Appends bytes of the body to `into` until it has `full` bytes, or the body ends. Returns how many came.
    ///
    /// # Errors
    ///
    /// [`BodyError`] if the connection ends before the body, or chunks are none.
    pub(crate) async fn fill(
        &mut self,
        into: &mut Vec<u8>,
        full: usize,
    ) -> Result<usize, BodyError> {
        if std::mem::take(&mut self.awaits_continue) {
            self.stream
                .write(b"HTTP/1.1 100 Continue\r\n\r\n", false)
                .await?;
            self.stream.flush().await?;
        }
        if self.watched.phase() != Phase::Receiving {
            self.watched.enter(Phase::Receiving, Instant::now());
        }
        let before = into.len();
        while into.len() < full && !self.is_done() {
            let room = full - into.len();
            match &mut self.left {
                Left::Done => {}
                Left::Length(left) => {
                    let most = usize::try_from(*left).unwrap_or(usize::MAX).min(room);
                    let got = if self.buffer.is_empty() {
                        into.reserve(most);
                        let got = self.stream.read(into, most).await?;
                        self.watched.moved(got as u64);
                        got
                    } else {
                        let got = most.min(self.buffer.len());
                        into.extend(self.buffer.drain(..got));
                        got
                    };
                    if got == 0 {
                        return Err(BodyError::Broken(io::ErrorKind::UnexpectedEof.into()));
                    }
                    *left -= got as u64;
                    if *left == 0 {
                        self.left = Left::Done;
                    }
                }
                Left::Chunks(chunks) => match chunks.next(self.buffer)? {
                    Piece::Skip(bytes) => drop(self.buffer.drain(..bytes)),
                    Piece::Data(bytes) => {
                        into.extend(self.buffer.drain(..bytes));
                    }
                    Piece::Done => self.left = Left::Done,
                    Piece::More => {
                        self.buffer.reserve(CHUNKS_BYTES);
                        let got = self.stream.read(self.buffer, CHUNKS_BYTES).await?;
                        self.watched.moved(got as u64);
                        if got == 0 {
                            return Err(BodyError::Broken(io::ErrorKind::UnexpectedEof.into()));
                        }
                    }
                },
            }
        }
        Ok(into.len() - before)
    }

    /// Reads all of a body that may have up to `most` bytes.
    ///
    /// # Errors
    ///
    /// As for [`fill`](Self::fill), and [`BodyError::TooLong`].
    pub(crate) async fn whole(&mut self, most: usize) -> Result<Vec<u8>, BodyError> {
        if self.stated().is_some_and(|bytes| bytes > most as u64) {
            return Err(BodyError::TooLong(most));
        }
        let mut all = Vec::new();
        self.fill(&mut all, most + 1).await?;
        if all.len() > most {
            return Err(BodyError::TooLong(most));
        }
        Ok(all)
    }

    /// Reads what is left of a short body, so that the connection can go on.
    pub(crate) async fn skip(&mut self, most: usize) -> Result<(), BodyError> {
        self.whole(most).await.map(drop)
    }
}
