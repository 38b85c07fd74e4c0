//! An FLP as a part of the program that makes its STFs.
//!
//! The farm file says `flp.source.kind = "program"`, and the program starts a [`Readout`] where another farm has a process
//! `sheaf run flp`. The FLP has a thread of its own; a payload is copied once, into its memory.
//!
//! ```no_run
//! use sheaf_node::config::FarmConfig;
//! use sheaf_node::readout::{Patience, Readout, ReadoutOptions};
//! use sheaf_protocol::{FlpId, PayloadFormat, TfId};
//!
//! let config = FarmConfig::load("farm.toml".as_ref())?;
//! let mut readout = Readout::start(config, FlpId(0), ReadoutOptions::default())?;
//! for tf in 0..1000 {
//!     let payload = vec![0; 100_000];
//!     // Waits while the farm takes nothing.
//!     readout.send(TfId(tf), PayloadFormat::Opaque, &[&payload], Patience::new(None, &mut || true))?;
//! }
//! // Waits until each STF is decided.
//! readout.close(Patience::new(None, &mut || true))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use crate::source::{Heartbeat, Patience, SendError};

use crate::config::FarmConfig;
use crate::role::{self, Build, RoleError, RoleOptions};
use crate::shutdown::Shutdown;
use crate::source::StfSender;
use sheaf_protocol::{FlpId, PayloadFormat, TfId, copy_digested, crc32c};
use sheaf_scheduler::Mode;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use thiserror::Error;

/// Options of a readout beside the farm file.
#[derive(Clone, Debug, Default)]
pub struct ReadoutOptions {
    /// Where the metrics of the FLP are served; overrides the farm file.
    pub metrics: Option<String>,
    /// Where the event log of the FLP is appended.
    pub events: Option<PathBuf>,
    /// Program that runs.
    pub build: Build,
}

/// Why a readout cannot begin or go on.
#[derive(Debug, Error)]
pub enum ReadoutError {
    /// The farm file has another source.
    #[error(
        "found flp.source.kind = {found:?}, expected \"program\": with other kinds FLPs are processes of their own \
         (`sheaf run flp`)"
    )]
    Kind {
        /// The kind in the farm file.
        found: &'static str,
    },
    /// The farm has fewer FLPs.
    #[error("found index {index}, expected one below {flps} (run.flps)")]
    Index {
        /// The index.
        index: u16,
        /// FLPs of the farm.
        flps: u32,
    },
    /// There are no heartbeats in such a farm.
    #[error(
        "the farm has no heartbeats: found icn.scheduler.mode = \"data-driven\", expected \"paced\"; number the TFs \
         yourself, or change the farm file"
    )]
    NotPaced,
    /// The FLP has failed.
    #[error(transparent)]
    Flp(#[from] RoleError),
    /// An STF was not taken.
    #[error(transparent)]
    Send(#[from] SendError),
    /// No thread can be had.
    #[error("cannot start the FLP: {0}")]
    Thread(io::Error),
    /// The FLP has panicked; its message is on the standard error.
    #[error("{flp} has failed: a defect of Sheaf, its message is on the standard error")]
    Panicked {
        /// The FLP.
        flp: FlpId,
    },
}

/// Returns the message of `error` and of what caused it, where the message does not say that itself: the text that
/// programs in other languages get.
#[must_use]
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = next.source();
    }
    text
}

/// An FLP in a thread of this process, and the way to it. Dropped, it takes no more STFs, and its thread ends when each
/// of those before is decided.
#[derive(Debug)]
pub struct Readout {
    flp: FlpId,
    is_paced: bool,
    sender: Option<StfSender>,
    /// The end of the FLP, until it is known.
    ends: Option<Receiver<Result<(), RoleError>>>,
}

impl Readout {
    /// Starts FLP `flp` of the farm. Returns when it takes STFs; the run may begin later.
    ///
    /// # Errors
    ///
    /// [`ReadoutError`] if the farm has no such FLP, or something that the FLP needs cannot be had.
    pub fn start(
        config: FarmConfig,
        flp: FlpId,
        options: ReadoutOptions,
    ) -> Result<Self, ReadoutError> {
        let found = config.flp.source.kind();
        if found != "program" {
            return Err(ReadoutError::Kind { found });
        }
        let flps = config.run.flps;
        if u32::from(flp.0) >= flps {
            let index = flp.0;
            return Err(ReadoutError::Index { index, flps });
        }
        let is_paced = config.icn.scheduler.mode == Mode::Paced;
        let (program, senders) = sync_channel(1);
        let (end, ends) = sync_channel(1);
        let work = move || {
            let options = RoleOptions {
                metrics: options.metrics,
                events: options.events,
                build: options.build,
                program: Some(program),
                ..RoleOptions::default()
            };
            // A program that waits no longer does not ask how the FLP ended.
            let _ = end.send(role::run_flp(&config, flp, options, &Shutdown::new()));
        };
        let thread = thread::Builder::new().name("flp".to_owned());
        thread.spawn(work).map_err(ReadoutError::Thread)?;
        let sender = senders.recv().ok();
        let mut readout = Self {
            flp,
            is_paced,
            sender,
            ends: Some(ends),
        };
        match readout.sender {
            Some(_) => Ok(readout),
            None => Err(readout.failure()),
        }
    }

    /// Sends the STF of `tf`, whose payload is `parts` one behind the other. Waits while the farm takes nothing, as
    /// `patience` says. Returns whether the FLP has the STF; if not, nothing was taken.
    ///
    /// # Errors
    ///
    /// [`ReadoutError`]; the STF was not taken.
    pub fn send(
        &mut self,
        tf: TfId,
        format: PayloadFormat,
        parts: &[&[u8]],
        patience: Patience<'_>,
    ) -> Result<bool, ReadoutError> {
        // More than there is memory is refused below.
        let bytes = parts.iter().map(|part| part.len());
        let bytes = bytes.fold(0, usize::saturating_add);
        let fill = |place: &mut [u8]| copy_digested(place, parts.iter().copied());
        self.send_digested(tf, format, bytes, fill, patience)
    }

    /// As [`send`](Self::send), with a payload of `bytes` bytes that `fill` writes where it stays.
    ///
    /// # Errors
    ///
    /// [`ReadoutError`]; the STF was not taken.
    pub fn send_with(
        &mut self,
        tf: TfId,
        format: PayloadFormat,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
        patience: Patience<'_>,
    ) -> Result<bool, ReadoutError> {
        let fill = |place: &mut [u8]| {
            fill(place);
            crc32c(place)
        };
        self.send_digested(tf, format, bytes, fill, patience)
    }

    /// Sends an STF of which `fill` returns the CRC-32C.
    fn send_digested(
        &mut self,
        tf: TfId,
        format: PayloadFormat,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> u32,
        patience: Patience<'_>,
    ) -> Result<bool, ReadoutError> {
        let sender = self.sender.as_mut();
        let sender = sender.ok_or(SendError::Over { flp: self.flp })?;
        match sender.send(tf, format, bytes, fill, patience) {
            Err(SendError::Over { .. }) => Err(self.failure()),
            sent => Ok(sent?),
        }
    }

    /// Waits for the next TF that the ICN calls for. Each is returned once.
    ///
    /// # Errors
    ///
    /// [`ReadoutError::NotPaced`] in a farm without heartbeats, or the error with which the FLP has ended.
    pub fn next_heartbeat(&mut self, patience: Patience<'_>) -> Result<Heartbeat, ReadoutError> {
        if !self.is_paced {
            return Err(ReadoutError::NotPaced);
        }
        let Some(sender) = &mut self.sender else {
            return Ok(Heartbeat::Over);
        };
        match sender.next_heartbeat(patience)? {
            Heartbeat::Over => match self.failure() {
                ReadoutError::Send(SendError::Over { .. }) => Ok(Heartbeat::Over),
                failed => Err(failed),
            },
            heartbeat => Ok(heartbeat),
        }
    }

    /// Returns the index of the FLP.
    #[must_use]
    pub fn flp(&self) -> FlpId {
        self.flp
    }

    /// Ends the source, and waits until each of its STFs is decided and the FLP has left the farm. Returns whether that
    /// has come in time; if not, the FLP goes on without this handle.
    ///
    /// # Errors
    ///
    /// [`ReadoutError::Flp`] if the FLP has failed, or the caller did not want to wait any longer.
    pub fn close(mut self, mut patience: Patience<'_>) -> Result<bool, ReadoutError> {
        self.sender = None;
        let Some(ends) = self.ends.take() else {
            return Ok(true);
        };
        loop {
            let Some(slice) = patience.slice() else {
                return Ok(false);
            };
            match ends.recv_timeout(slice) {
                Ok(end) => return Ok(end.map(|()| true)?),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(ReadoutError::Panicked { flp: self.flp });
                }
                Err(RecvTimeoutError::Timeout) => patience.ask()?,
            }
        }
    }

    /// Returns the error with which the FLP has ended, once; later, and if there was none, that the run is over.
    fn failure(&mut self) -> ReadoutError {
        let over = SendError::Over { flp: self.flp }.into();
        self.sender = None;
        // The FLP has closed its queue: it is about to end.
        match self.ends.take().map(|ends| ends.recv()) {
            Some(Ok(Err(error))) => error.into(),
            Some(Ok(Ok(()))) | None => over,
            Some(Err(_)) => ReadoutError::Panicked { flp: self.flp },
        }
    }
}
