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
//!         // Its memory goes back when it is dropped.
//!         Next::Tf(tf) => println!("TF {} has {} bytes", tf.tf.0, tf.bytes()),
//!         Next::Nothing => {}
//!         Next::End => break,
//!     }
//! }
//! # Ok::<(), sheaf_node::consume::ConsumeError>(())
//! ```

use crate::sink::recomputed;
use bytes::Bytes;
use sheaf_formats::tf_file::{TfFileError, tf_of_head};
use sheaf_protocol::Tf;
use sheaf_transport::handover::{self, Borrower, TakeError};
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

/// Returns the next TF.
#[derive(Debug)]
pub enum Next {
    /// A TF. Its payloads lie in the memory of the EPN, or of the FLPs: until all of them are dropped the EPN waits
    /// for that memory. Who wants to keep them for long copies them.
    Tf(Tf<Bytes>),
    /// None in time, or a signal came.
    Nothing,
    /// The EPN is gone, and all that it had offered is taken.
    End,
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

    /// The next TF, waited for for at most `timeout`; `None`: for ever.
    ///
    /// # Errors
    ///
    /// [`ConsumeError`]; no more TFs come then.
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Next, ConsumeError> {
        Ok(match self.borrower.next(timeout)? {
            handover::Next::Message(message) => {
                Next::Tf(tf_of_head(&message.head, message.bodies)?)
            }
            handover::Next::Nothing => Next::Nothing,
            handover::Next::End => Next::End,
        })
    }
}

/// Computes the CRC-32C of every payload of `tf` again, and says what differs from what its FLPs took.
#[must_use]
pub fn faults(tf: &Tf<Bytes>) -> Vec<String> {
    recomputed(tf).faults
}
