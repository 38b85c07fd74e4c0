//! Bytes of an upload, written by another thread while the next ones come.

use crate::tree::TreeError;
use crate::upload::Upload;
use sheaf_write::Sums;
use tokio::task::JoinHandle;

/// Bytes that are written at once: one buffer fills while the other is written.
pub(crate) const WRITE_BYTES: usize = 256 << 10;

/// Upload, the buffer that was written, and how that went.
type Written = (Box<Upload>, Vec<u8>, Result<(), TreeError>);

/// Upload with a write under way.
#[derive(Debug)]
pub(crate) struct Writing(State);

#[derive(Debug)]
enum State {
    Idle(Box<Upload>),
    Busy(JoinHandle<Written>),
    /// A write has failed, and the upload is gone.
    Failed,
}

impl Writing {
    pub(crate) fn new(upload: Upload) -> Self {
        Self(State::Idle(Box::new(upload)))
    }

    /// Waits for the write before, and begins to write `bytes`. Returns an empty buffer for the next ones.
    ///
    /// # Errors
    ///
    /// That of the write before.
    pub(crate) async fn write(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>, TreeError> {
        let (mut upload, mut spare) = self.settled().await?;
        self.0 = State::Busy(tokio::task::spawn_blocking(move || {
            let written = upload.write(&bytes);
            (upload, bytes, written)
        }));
        spare.clear();
        Ok(spare)
    }

    /// Waits for the last write. Returns the checksums of all that was written.
    ///
    /// # Errors
    ///
    /// That of the last write.
    pub(crate) async fn sums(&mut self) -> Result<Sums, TreeError> {
        let (upload, _) = self.settled().await?;
        let sums = upload.sums();
        self.0 = State::Idle(upload);
        Ok(sums)
    }

    /// Gives the file its name, as [`Upload::finish`] does.
    ///
    /// # Errors
    ///
    /// [`TreeError`]; nothing has changed under the name then.
    pub(crate) async fn finish(mut self, is_synced: bool, is_new: bool) -> Result<Sums, TreeError> {
        let (upload, _) = self.settled().await?;
        let finished = tokio::task::spawn_blocking(move || upload.finish(is_synced, is_new)).await;
        finished.unwrap_or(Err(TreeError::Busy))
    }

    async fn settled(&mut self) -> Result<(Box<Upload>, Vec<u8>), TreeError> {
        match std::mem::replace(&mut self.0, State::Failed) {
            State::Idle(upload) => Ok((upload, Vec::new())),
            State::Busy(writing) => {
                // A thread that is gone: the program ends.
                let (upload, spare, written) = writing.await.map_err(|_| TreeError::Busy)?;
                written?;
                Ok((upload, spare))
            }
            State::Failed => Err(TreeError::Busy),
        }
    }
}
