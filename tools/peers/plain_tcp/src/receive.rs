//! The receiving side: large reads into an arena, frames checked where they lie.

use crate::frame::{Header, Layout};
use crate::link::Link;
use crate::pair::{Side, SideReport, Window};
use crate::pool::Pool;
use crate::process;
use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Receives the warm-up and the measured window, and refuses whatever is not as it must be.
///
/// The clock of the measured window starts when its first byte can be read and stops when the read
/// that completed its last message has returned.
pub(crate) fn receive(side: &Side, stream: TcpStream) -> Result<SideReport> {
    let arena = Pool::new(side.pool_bytes)?;
    let link = Link::of_receiver(stream, side.tls.as_ref())?;
    let mut reader = Reader::new(side, arena, link);
    reader.release_sender()?;
    reader.read_window().context("warm-up")?;
    reader.release_sender()?;

    reader.link.wait()?;
    let start = Instant::now();
    let cpu_s = process::cpu_s();
    let busy_s = peer_harness::machine_busy_s()?;
    let (messages, end) = reader.read_window()?;
    let machine_busy_s = peer_harness::machine_busy_s()? - busy_s;
    let cpu_s = process::cpu_s() - cpu_s;
    reader.release_sender()?;
    let seconds = end.duration_since(start).as_secs_f64();
    Ok(SideReport {
        messages,
        cpu_s,
        rss_bytes_max: process::rss_bytes_max()?,
        huge_page_bytes: process::huge_page_bytes(),
        window: Some(Window {
            seconds,
            machine_busy_s,
        }),
    })
}

/// Bytes received but not yet delivered lie in `arena[start..end]`.
///
/// The position runs through the whole arena before it starts again at the front, so that reads fall
/// on memory that has left the caches. A frame never crosses the end: what has arrived of it is moved
/// to the front, which is at most one read.
struct Reader {
    link: Link,
    arena: Pool,
    start: usize,
    end: usize,
    read_bytes: usize,
    payload_bytes: usize,
    layout: Layout,
}

/// State of the frame at the front of the received bytes.
enum Next {
    /// Message checked and delivered.
    Message,
    /// The window is over, after this many messages.
    End(u64),
    /// The frame needs this many bytes in all.
    Partial(usize),
}

impl Reader {
    fn new(side: &Side, arena: Pool, link: Link) -> Self {
        Self {
            link,
            layout: Layout::new(side.payload_bytes, arena.len()),
            arena,
            start: 0,
            end: 0,
            read_bytes: side.read_bytes,
            payload_bytes: side.payload_bytes,
        }
    }

    fn release_sender(&mut self) -> Result<()> {
        self.link.write_all(&[1]).context("the sender is gone")
    }

    /// Reads to the end of a window. Gives the number of messages and when the last was complete.
    fn read_window(&mut self) -> Result<(u64, Instant)> {
        let mut sequence = 0;
        let mut now = Instant::now();
        let mut last = now;
        loop {
            match self.next(sequence)? {
                Next::Message => {
                    sequence += 1;
                    last = now;
                }
                Next::End(count) => {
                    ensure!(
                        count == sequence,
                        "{sequence} messages came, {count} were sent"
                    );
                    let left = self.end - self.start;
                    ensure!(left == 0, "{left} bytes follow the end of a window");
                    return Ok((count, last));
                }
                Next::Partial(needed) => {
                    let got = self.read(needed)?;
                    ensure!(
                        got > 0,
                        "the stream ends after {sequence} messages, in a window"
                    );
                    now = Instant::now();
                }
            }
        }
    }

    fn next(&mut self, sequence: u64) -> Result<Next> {
        let bytes = &self.arena[self.start..self.end];
        let Some((header, rest)) = bytes.split_first_chunk() else {
            return Ok(Next::Partial(Header::SIZE));
        };
        let header = Header::decode(header);
        if header.bytes == Header::END {
            self.start += Header::SIZE;
            return Ok(Next::End(header.sequence));
        }
        if header.bytes != self.payload_bytes as u64 || header.sequence != sequence {
            bail!(
                "message {} of {} bytes came, message {sequence} of {} bytes was expected",
                header.sequence,
                header.bytes,
                self.payload_bytes
            );
        }
        let frame_bytes = Header::SIZE + self.payload_bytes;
        let Some(payload) = rest.get(..self.payload_bytes) else {
            return Ok(Next::Partial(frame_bytes));
        };
        let expected = self.layout.last_byte(sequence);
        if payload.last().copied() != expected {
            bail!(
                "message {sequence} ends with byte {:02x?}, expected {expected:02x?}",
                payload.last()
            );
        }
        self.start += frame_bytes;
        Ok(Next::Message)
    }

    /// Reads what is there, at a place where `needed` bytes from the start of the frame fit.
    fn read(&mut self, needed: usize) -> Result<usize> {
        if self.start + needed > self.arena.len() {
            self.arena.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let room_end = self.arena.len().min(self.end + self.read_bytes);
        loop {
            match self.link.read(&mut self.arena[self.end..room_end]) {
                Ok(got) => {
                    self.end += got;
                    return Ok(got);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot receive"),
            }
        }
    }
}
