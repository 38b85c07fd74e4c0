//! The sending side: header and payload as they lie in memory, many messages to one system call.

use crate::frame::{Header, Layout, fill};
use crate::link::Link;
use crate::pair::{Side, SideReport, Span};
use crate::pool::Pool;
use crate::process;
use anyhow::{Context, Result, ensure};
use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Most messages of one `writev`: Linux takes 1024 pieces (`IOV_MAX`), and a message has two.
const BATCH_MESSAGES_MAX: usize = 512;

/// Sends the warm-up and the measured window, each after the receiver has said that it is ready.
pub(crate) fn send(side: &Side, stream: TcpStream) -> Result<SideReport> {
    let mut link = Link::of_sender(stream, side.tls.as_ref())?;
    let mut pool = Pool::new(side.pool_bytes)?;
    fill(&mut pool);
    let mut batch = Batch::new(side, &pool);
    await_receiver(&mut link)?;
    batch.send_window(&mut link, side.warm_up)?;
    await_receiver(&mut link)?;
    let cpu_s = process::cpu_s();
    let messages = batch.send_window(&mut link, side.measured)?;
    await_receiver(&mut link)?;
    Ok(SideReport {
        messages,
        cpu_s: process::cpu_s() - cpu_s,
        rss_bytes_max: process::rss_bytes_max()?,
        huge_page_bytes: process::huge_page_bytes(),
        window: None,
    })
}

/// Waits for the one byte by which the receiver says: all is well so far, go on.
fn await_receiver(link: &mut Link) -> Result<()> {
    link.read_exact(&mut [0]).context("the receiver is gone")
}

struct Batch<'a> {
    pool: &'a [u8],
    layout: Layout,
    payload_bytes: usize,
    messages_max: usize,
    headers: Vec<[u8; Header::SIZE]>,
}

impl<'a> Batch<'a> {
    fn new(side: &Side, pool: &'a [u8]) -> Self {
        let messages_max = side.batch_bytes.div_ceil(Header::SIZE + side.payload_bytes);
        Self {
            pool,
            layout: Layout::new(side.payload_bytes, pool.len()),
            payload_bytes: side.payload_bytes,
            messages_max: messages_max.clamp(1, BATCH_MESSAGES_MAX),
            headers: Vec::new(),
        }
    }

    /// Sends messages for as long as `span` says and closes the window. Gives their number.
    fn send_window(&mut self, link: &mut Link, span: Span) -> Result<u64> {
        let deadline = match span {
            Span::Seconds(seconds) => Some(Instant::now() + Duration::from_secs_f64(seconds)),
            Span::Messages(_) => None,
        };
        let mut sequence = 0;
        loop {
            let left = match span {
                Span::Seconds(_) => u64::MAX,
                Span::Messages(count) => count - sequence,
            };
            if left == 0 || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
            let count = left.min(self.messages_max as u64);
            self.send_messages(link, sequence, count)
                .with_context(|| format!("cannot send message {sequence}"))?;
            sequence += count;
        }
        link.write_all(
            &Header {
                bytes: Header::END,
                sequence,
            }
            .encode(),
        )?;
        Ok(sequence)
    }

    fn send_messages(&mut self, link: &mut Link, first: u64, count: u64) -> Result<()> {
        self.headers.clear();
        self.headers.extend((first..first + count).map(|sequence| {
            Header {
                bytes: self.payload_bytes as u64,
                sequence,
            }
            .encode()
        }));
        let mut pieces = Vec::with_capacity(2 * self.headers.len());
        for (sequence, header) in (first..).zip(&self.headers) {
            let offset = self.layout.offset(sequence);
            pieces.push(IoSlice::new(header));
            pieces.push(IoSlice::new(
                &self.pool[offset..offset + self.payload_bytes],
            ));
        }
        write_all(link, &mut pieces)
    }
}

/// Writes all of `pieces`, of which the first is not empty.
fn write_all(link: &mut Link, mut pieces: &mut [IoSlice<'_>]) -> Result<()> {
    while !pieces.is_empty() {
        match link.write_vectored(pieces) {
            Ok(written) => {
                ensure!(written > 0, "the connection takes no more bytes");
                IoSlice::advance_slices(&mut pieces, written);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
