//! The other end of the sink `shm`: a process that takes TFs from an EPN of its machine and looks at them where they
//! lie.
//!
//! ```no_run
//! use sheaf_node::consume::{Consumer, Next};
//! use std::time::Duration;
//!
//! let mut consumer = Consumer::connect("/run/sheaf/epn-0".as_ref(), Duration::from_secs(5))?;
//! loop {
//!     match consumer.next(None)? {
//!         // Its memory goes back with the tag, or when it is dropped.
//!         Next::Tf(tf) if tf.bytes() > 1 << 20 => tf.give_back("large")?,
//!         Next::Tf(tf) => println!("TF {} has {} bytes", tf.tf.0, tf.bytes()),
//!         Next::Nothing => {}
//!         Next::End => break,
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::sink::recomputed;
use bytes::Bytes;
use sheaf_formats::tf_file::{TfFileError, tf_of_head};
use sheaf_protocol::Tf;
use sheaf_transport::handover::{self, AnswerError, Borrower, Reply, TakeError};
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;
use thiserror::Error;

/// Why no TF comes.
#[derive(Debug, Error)]
pub enum ConsumeError {
    /// The EPN is not there, or breaks the rules.
    #[error(transparent)]
    Take(#[from] TakeError),
    /// Bytes that are no TF.
    #[error("the EPN gave something that is no TF: {0}")]
    Tf(#[from] TfFileError),
}

/// Result of a wait for the next TF.
#[derive(Debug)]
pub enum Next {
    /// A TF. Its payloads lie in the memory of the EPN, or of the FLPs: until all of them are dropped the EPN waits
    /// for that memory. Who wants to keep them for long copies them.
    Tf(Lent),
    /// None in time, or a signal came.
    Nothing,
    /// The EPN is gone, and all that it had offered is taken.
    End,
}

/// A TF that an EPN has lent. Dropped, it goes back without a word about it.
#[derive(Debug)]
pub struct Lent {
    tf: Tf<Bytes>,
    reply: Reply,
}

impl Deref for Lent {
    type Target = Tf<Bytes>;

    fn deref(&self) -> &Tf<Bytes> {
        &self.tf
    }
}

impl Lent {
    /// Gives the TF back with `tags`, words of a-z, 0-9, - and _ with a comma between two: streams of the EPN's farm
    /// file (`[[epn.sink.write.stream]]`) take it by them. It goes back when no payload of it is kept.
    ///
    /// # Errors
    ///
    /// [`AnswerError`] if the EPN writes nothing, or it cannot be passed on. The TF goes back without a tag then.
    pub fn give_back(self, tags: &str) -> Result<(), AnswerError> {
        self.reply.answer(tags, None)
    }

    /// As [`give_back`](Self::give_back), with bytes that were made of the TF: streams with `product = true` take them.
    ///
    /// # Errors
    ///
    /// As [`give_back`](Self::give_back), and if `product` is empty or larger than `epn.sink.product_mib_max`.
    pub fn give_back_with(self, tags: &str, product: &[u8]) -> Result<(), AnswerError> {
        self.reply.answer(tags, Some(product))
    }

    /// Returns the TF alone: it goes back without a tag when all its payloads are dropped.
    #[must_use]
    pub fn into_tf(self) -> Tf<Bytes> {
        self.tf
    }
}

/// A consumer of one EPN.
#[derive(Debug)]
pub struct Consumer {
    borrower: Borrower,
}

impl Consumer {
    /// Connects to the sink `shm` of an EPN at `path`, which has `timeout` to answer.
    ///
    /// # Errors
    ///
    /// [`ConsumeError::Take`] if no EPN is there, or something else, or the EPN has as many consumers as it takes.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, ConsumeError> {
        let borrower = Borrower::connect(path, timeout)?;
        Ok(Self { borrower })
    }

    /// Waits for the next TF for at most `timeout`, for ever without one.
    ///
    /// # Errors
    ///
    /// [`ConsumeError`]; no more TFs come then.
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Next, ConsumeError> {
        Ok(match self.borrower.next(timeout)? {
            handover::Next::Message(message) => Next::Tf(Lent {
                tf: tf_of_head(&message.head, message.bodies)?,
                reply: message.reply,
            }),
            handover::Next::Nothing => Next::Nothing,
            handover::Next::End => Next::End,
        })
    }

    /// Returns the socket to the EPN, which becomes readable when there is a TF after [`next`](Self::next) has returned
    /// [`Next::Nothing`].
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.borrower.socket()
    }

    /// Closes the connection, as the kernel does when the process dies.
    #[cfg(test)]
    pub(crate) fn die(&self) {
        let socket = self.borrower.socket();
        rustix::net::shutdown(socket, rustix::net::Shutdown::Both).expect("it is connected");
    }
}

/// Computes the CRC-32C of every payload of `tf` again, and says what differs from what its FLPs took.
#[must_use]
pub fn faults(tf: &Tf<Bytes>) -> Vec<String> {
    recomputed(tf).faults
}
