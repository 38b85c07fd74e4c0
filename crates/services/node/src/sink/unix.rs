//! A consumer process: connects to a Unix socket and reads whole TFs, each with its length in front.
//!
//! A TF counts as delivered when its last byte was written to the socket. If the consumer ends before, the same TF
//! is written again from its first byte to the next one: a consumer that got a cut TF throws it away. What a
//! consumer had in its socket when it died is gone; who cannot bear that writes files (`docs/reference/tf-file.md`).

use super::handle::SinkHandle;
use super::vectored::write_all_vectored;
use super::{DeliverError, Delivery, Opening, Patience, Sink, SinkError, SinkKind, recomputed};
use crate::check::{Check, ConfigError, check_socket, path_for};
use bytes::Bytes;
use rustix::event::PollFlags;
use serde::{Deserialize, Serialize};
use sheaf_formats::tf_file::{payload_bytes, tf_file_head};
use sheaf_protocol::NodeId;
use sheaf_protocol::Tf;
use sheaf_transport::unix::UnixSocket;
use std::io::{self, IoSlice};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;
use tracing::{info, warn};

/// How long a consumer is waited for before its absence is logged.
const CONSUMER_WAIT: Duration = Duration::from_secs(1);

/// Writes TFs to one consumer at a time.
#[derive(Debug)]
pub struct Consumer {
    path: PathBuf,
    socket: UnixSocket,
    stream: Option<UnixStream>,
}

impl Consumer {
    /// Listens for a consumer at `path`.
    ///
    /// # Errors
    ///
    /// [`SinkError::Listen`] if the path cannot be listened at.
    pub fn listen(path: PathBuf) -> Result<Self, SinkError> {
        match UnixSocket::bind(&path) {
            Ok(socket) => Ok(Self {
                path,
                socket,
                stream: None,
            }),
            Err(error) => Err(SinkError::Listen {
                path,
                source: error.into(),
            }),
        }
    }

    /// The consumer that is connected, or the next one.
    fn stream(&mut self, patience: &Patience) -> Result<UnixStream, DeliverError> {
        if let Some(stream) = self.stream.take() {
            return Ok(stream);
        }
        loop {
            let error = match self.socket.accept() {
                Ok(stream) => {
                    info!(path = %self.path.display(), "A consumer takes TFs");
                    stream
                        .set_nonblocking(true)
                        .map_err(|error| self.failed(error))?;
                    return Ok(stream);
                }
                Err(error) => error,
            };
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(self.failed(error));
            }
            let is_near = patience
                .wait(self.socket.as_fd(), PollFlags::IN, CONSUMER_WAIT)
                .map_err(|error| self.failed(error))?;
            if !is_near {
                return Err(DeliverError::NoConsumer {
                    path: self.path.clone(),
                });
            }
        }
    }

    fn failed(&self, source: io::Error) -> DeliverError {
        DeliverError::Consumer {
            path: self.path.clone(),
            source,
        }
    }
}

/// The `[epn.sink]` table with `kind = "unix"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct UnixSink {
    /// Where the EPN listens for its consumer. `{epn}` stands for the index of the EPN.
    pub path: PathBuf,
}

impl SinkKind for UnixSink {
    fn check(&self, check: &mut Check) {
        check.socket_path("epn.sink.path", &self.path);
    }

    fn check_files(&self, node: NodeId) -> Option<ConfigError> {
        check_socket("epn.sink.path", &path_for(&self.path, node))
    }

    fn open(&self, opening: Opening) -> Result<SinkHandle, SinkError> {
        let consumer = Consumer::listen(path_for(&self.path, opening.target.epn.into()))?;
        SinkHandle::spawn(Box::new(consumer), opening.queue_tfs, opening.wake)
    }
}

impl Sink for Consumer {
    fn name(&self) -> &'static str {
        "unix"
    }

    fn deliver(&mut self, tf: &Tf<Bytes>, patience: &Patience) -> Result<Delivery, DeliverError> {
        let head = tf_file_head(tf);
        let length = (head.len() as u64 + payload_bytes(tf)).to_le_bytes();
        loop {
            let stream = self.stream(patience)?;
            let payloads = tf.parts.iter().map(|part| IoSlice::new(&part.payload));
            let front = [IoSlice::new(&length), IoSlice::new(&head)];
            let mut slices: Vec<IoSlice<'_>> = front.into_iter().chain(payloads).collect();
            match write_all_vectored(&mut &stream, &mut slices, || await_room(&stream, patience)) {
                Ok(()) => {
                    self.stream = Some(stream);
                    return Ok(recomputed(tf));
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    return Err(self.failed(error));
                }
                Err(error) => {
                    warn!(tf_id = tf.tf.0, %error, "The consumer has gone; the next one gets this TF whole");
                }
            }
        }
    }
}

/// Waits until the consumer has read something, however long that takes, unless the node ends.
fn await_room(stream: &UnixStream, patience: &Patience) -> io::Result<()> {
    loop {
        if patience.wait_once_more(stream.as_fd(), PollFlags::OUT, CONSUMER_WAIT)? {
            return Ok(());
        }
        if patience.is_ending() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Wakes, delivered, tf, wakes};
    use super::super::{SinkEvent, SinkHandle};
    use super::*;
    use sheaf_formats::tf_file::read_tf_file;
    use sheaf_protocol::TfId;
    use std::io::Read as _;
    use std::path::Path;

    /// More than a socket holds.
    const LARGE: &[u8] = &[7; 4 << 20];

    fn sink(path: &Path, queue_tfs: u32) -> (SinkHandle, Wakes) {
        let (wake, wakes) = wakes();
        let sink = Box::new(Consumer::listen(path.into()).unwrap());
        (SinkHandle::spawn(sink, queue_tfs, wake).unwrap(), wakes)
    }

    /// Reads the next TF as a consumer does; `None` at the end of the stream.
    fn read_tf(stream: &mut UnixStream) -> Option<Vec<u8>> {
        let mut length = [0; 8];
        match stream.read(&mut length).unwrap() {
            0 => return None,
            got => stream.read_exact(&mut length[got..]).unwrap(),
        }
        let mut bytes = vec![0; usize::try_from(u64::from_le_bytes(length)).unwrap()];
        stream.read_exact(&mut bytes).unwrap();
        Some(bytes)
    }

    fn id(bytes: &[u8]) -> u64 {
        read_tf_file(bytes).unwrap().tf.0
    }

    #[test]
    fn a_consumer_reads_whole_tfs_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("consumer");
        let (mut sink, wakes) = sink(&path, 8);
        let tfs = [tf(1, &[b"abc", b""]), tf(2, &[]), tf(3, &[LARGE, b"x"])];
        for tf in &tfs {
            sink.offer(tf.clone()).unwrap();
        }
        let mut consumer = UnixStream::connect(&path).unwrap();
        let read = std::thread::spawn(move || {
            std::iter::from_fn(|| read_tf(&mut consumer))
                .map(|bytes| id(&bytes))
                .collect::<Vec<_>>()
        });
        for tf in &tfs {
            assert_eq!(wakes.next(&mut sink), delivered(tf));
            assert_eq!(wakes.next(&mut sink), SinkEvent::freed(tf.bytes()));
        }
        drop(sink);
        assert_eq!(read.join().unwrap(), [1, 2, 3]);
        assert!(!path.exists());
    }

    #[test]
    fn a_consumer_that_dies_inside_a_tf_leaves_it_to_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("consumer");
        let (mut sink, wakes) = sink(&path, 8);
        let mut first = UnixStream::connect(&path).unwrap();
        let tfs = [tf(1, &[b"a"]), tf(2, &[LARGE])];
        for tf in &tfs {
            sink.offer(tf.clone()).unwrap();
        }
        assert_eq!(id(&read_tf(&mut first).unwrap()), 1);
        first.read_exact(&mut [0; 100]).unwrap(); // TF 2 has begun.
        drop(first);
        let mut second = UnixStream::connect(&path).unwrap();
        assert_eq!(id(&read_tf(&mut second).unwrap()), 2);
        for tf in &tfs {
            assert_eq!(wakes.next(&mut sink), delivered(tf));
            assert_eq!(wakes.next(&mut sink), SinkEvent::freed(tf.bytes()));
        }
    }

    #[test]
    fn without_a_consumer_tfs_wait_and_it_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("consumer");
        let (mut sink, wakes) = sink(&path, 2);
        sink.offer(tf(1, &[b"a"])).unwrap();
        sink.offer(tf(2, &[b"b"])).unwrap();
        assert!(sink.offer(tf(3, &[b"c"])).is_err());
        let expected = format!("no consumer is connected at {}", path.display());
        assert_eq!(
            wakes.next(&mut sink),
            SinkEvent::Failed {
                tf: TfId(1),
                error: expected,
                is_storage: false,
            }
        );
        let mut consumer = UnixStream::connect(&path).unwrap();
        assert_eq!(id(&read_tf(&mut consumer).unwrap()), 1);
        assert_eq!(id(&read_tf(&mut consumer).unwrap()), 2);
    }

    #[test]
    fn a_consumer_that_is_away_or_stuck_does_not_keep_the_node() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("consumer");
        let (mut away, _) = sink(&path, 8);
        away.offer(tf(1, &[b"a"])).unwrap();
        away.finish();
        assert_eq!(away.poll(), None);
        assert!(away.offer(tf(2, &[])).is_err());
        drop(away);
        let (mut stuck, wakes) = sink(&path, 8);
        let _consumer = UnixStream::connect(&path).unwrap();
        stuck.offer(tf(1, &[b"a"])).unwrap();
        assert_eq!(wakes.next(&mut stuck), delivered(&tf(1, &[b"a"])));
        stuck.offer(tf(2, &[LARGE])).unwrap();
        stuck.finish();
        assert_eq!(stuck.poll(), Some(SinkEvent::freed(1)));
        assert_eq!(stuck.poll(), None);
    }

    #[test]
    fn a_path_that_is_taken_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("consumer");
        let _taken = Consumer::listen(path.clone()).unwrap();
        let error = Consumer::listen(path.clone()).unwrap_err().to_string();
        let path = path.display();
        assert_eq!(
            error,
            format!("cannot listen for a consumer at {path}: another process listens there")
        );
    }
}
