//! STFs from the program that the FLP is a part of.
//!
//! The program has the [`StfSender`], the FLP in its own thread the feed. A payload is copied once, into memory of the
//! FLP, where it stays until its TF is decided; when there is none, or the FLP takes nothing, the sender waits or says
//! so.

use super::feed::{Calls, Fed, Feed, Hands, Payloads};
use super::stop::Waited;
use super::{Input, Opening, SourceError, SourceKind};
use rustix::event::PollFlags;
use serde::{Deserialize, Serialize};
use sheaf_protocol::{FlpId, PayloadFormat, RunId, Stf, TfId};
use sheaf_transport::Block;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Longest wait between two questions whether the caller still wants to wait.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The `[flp.source]` table with `kind = "program"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProgramSource {}

impl SourceKind for ProgramSource {
    fn is_fed(&self) -> bool {
        true
    }

    fn open(&self, opening: Opening<'_>) -> Result<Input, SourceError> {
        let flp = opening.flp;
        let program = opening.program.ok_or(SourceError::NoProgram { flp })?;
        let failed = |source| SourceError::listen("the program", source);
        let (mut feed, hands) = Feed::with_hands(opening.wake).map_err(failed)?;
        let calls = Arc::new(Calls::default());
        feed.set_calls(calls.clone());
        hands.counts.producers.store(1, Ordering::Relaxed);
        let sender = StfSender {
            payloads: Payloads::ringing(opening.memory.clone(), hands.room.clone()),
            hands,
            calls,
            seen: (None, TfId(0)),
            last: None,
            flp,
            stf_bytes_max: opening.stf_bytes_max,
        };
        // A program that waits no longer has no sender, and the feed ends.
        let _ = program.send(sender);
        Ok(Input::Fed(feed))
    }
}

/// Way by which a program gets the sender of its FLP.
pub type ProgramEnd = SyncSender<StfSender>;

/// Why an STF cannot be sent, or a heartbeat awaited.
#[derive(Debug, Error)]
pub enum SendError {
    /// The FLP has left the farm: the run is over, or the FLP failed.
    #[error("the run is over for {flp}")]
    Over {
        /// The FLP.
        flp: FlpId,
    },
    /// An STF that no TF has room for.
    #[error(
        "the STF of TF {} has {bytes} bytes, expected at most {most} (flp.stf_bytes_max)",
        tf.0
    )]
    TooLarge {
        /// TF of the STF.
        tf: TfId,
        /// Bytes of the STF.
        bytes: u64,
        /// Bytes that the farm file allows.
        most: u64,
    },
    /// A TF that is not behind the last one.
    #[error("TF {} comes after TF {}, expected ids that go up", tf.0, last.0)]
    Order {
        /// The TF.
        tf: TfId,
        /// The last one that was sent.
        last: TfId,
    },
    /// The caller did not want to wait any longer.
    #[error("interrupted")]
    Interrupted,
    /// The wait failed.
    #[error("cannot wait for the FLP: {0}")]
    Wait(#[from] io::Error),
}

/// Limits of a wait.
pub struct Patience<'a> {
    until: Option<Instant>,
    goes_on: &'a mut dyn FnMut() -> bool,
}

impl<'a> Patience<'a> {
    /// Waits for at most `timeout`, for ever without one, and as long as `goes_on` is true, which is asked every 50 ms.
    #[must_use]
    pub fn new(timeout: Option<Duration>, goes_on: &'a mut dyn FnMut() -> bool) -> Self {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Self { until, goes_on }
    }

    /// Returns how long to wait before the next question; `None` if the time is over.
    pub(crate) fn slice(&self) -> Option<Duration> {
        let Some(until) = self.until else {
            return Some(ASK_EVERY);
        };
        let left = until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| left.min(ASK_EVERY))
    }

    pub(crate) fn ask(&mut self) -> Result<(), SendError> {
        match (self.goes_on)() {
            true => Ok(()),
            false => Err(SendError::Interrupted),
        }
    }
}

/// Result of a wait for a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heartbeat {
    /// The ICN calls for the STF of this TF.
    Tf(TfId),
    /// None in time.
    Nothing,
    /// The run is over.
    Over,
}

/// The program's end of a source of kind `program`. When it is dropped the source has ended, and the FLP leaves the
/// farm once each of its STFs is decided.
pub struct StfSender {
    hands: Hands,
    payloads: Payloads,
    calls: Arc<Calls>,
    /// The run of the last heartbeat and the TF behind it.
    seen: (Option<RunId>, TfId),
    /// The last TF that was sent.
    last: Option<TfId>,
    flp: FlpId,
    stf_bytes_max: u64,
}

impl std::fmt::Debug for StfSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StfSender")
            .field("flp", &self.flp)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

impl StfSender {
    /// Sends the STF of `tf`, whose payload of `bytes` bytes `fill` writes; it returns their CRC-32C. Waits while the
    /// FLP has no room for it, as `patience` says. Returns whether the FLP has the STF; if not, nothing was taken.
    ///
    /// # Errors
    ///
    /// [`SendError`]; the STF was not taken.
    pub fn send(
        &mut self,
        tf: TfId,
        format: PayloadFormat,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> u32,
        mut patience: Patience<'_>,
    ) -> Result<bool, SendError> {
        if let Some(last) = self.last.filter(|last| tf <= *last) {
            return Err(SendError::Order { tf, last });
        }
        if bytes as u64 > self.stf_bytes_max {
            return Err(SendError::TooLarge {
                tf,
                bytes: bytes as u64,
                most: self.stf_bytes_max,
            });
        }
        let Some(mut block) = self.reserve(bytes, &mut patience)? else {
            return Ok(false);
        };
        let digest = fill(block.as_mut());
        let stf = Stf {
            tf,
            format,
            digest,
            payload: block.freeze(),
        };
        let is_taken = self.push(stf, &mut patience)?;
        if is_taken {
            self.last = Some(tf);
        }
        Ok(is_taken)
    }

    /// Waits for the next TF that the ICN calls for, in a farm with `icn.scheduler.mode = "paced"`. Each is returned
    /// once.
    ///
    /// # Errors
    ///
    /// [`SendError::Interrupted`].
    pub fn next_heartbeat(&mut self, mut patience: Patience<'_>) -> Result<Heartbeat, SendError> {
        let mut called = self.calls.lock();
        if !std::mem::replace(&mut called.is_awaited, true) {
            (self.hands.wake)();
        }
        loop {
            if called.is_over {
                return Ok(Heartbeat::Over);
            }
            let first = called.tfs.start;
            let next = match self.seen {
                (run, next) if run == called.run => next.max(first),
                _ => first,
            };
            if called.run.is_some() && next < called.tfs.end {
                self.seen = (called.run, next.next());
                return Ok(Heartbeat::Tf(next));
            }
            let Some(slice) = patience.slice() else {
                return Ok(Heartbeat::Nothing);
            };
            let waited = self.calls.changed.wait_timeout(called, slice);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            patience.ask()?;
            called = self.calls.lock();
        }
    }

    /// Returns the largest payload of an STF, in bytes.
    #[must_use]
    pub fn stf_bytes_max(&self) -> u64 {
        self.stf_bytes_max
    }

    /// Returns memory for a payload; `None` if there is none in time.
    fn reserve(
        &mut self,
        bytes: usize,
        patience: &mut Patience<'_>,
    ) -> Result<Option<Block>, SendError> {
        loop {
            if let Some(block) = self.payloads.try_take(bytes) {
                return Ok(Some(block));
            }
            self.payloads.want();
            // A block may have come back just before.
            if let Some(block) = self.payloads.try_take(bytes) {
                self.hands.room.clear();
                return Ok(Some(block));
            }
            if !self.wait(patience)? {
                return Ok(None);
            }
        }
    }

    /// Puts `stf` into the queue; `false` if it has no room in time.
    fn push(&mut self, stf: Stf, patience: &mut Patience<'_>) -> Result<bool, SendError> {
        let mut fed = Fed::Stf(stf);
        let mut is_awaited = false;
        loop {
            fed = match self.hands.stfs.try_send(fed) {
                Ok(()) => {
                    self.hands.counts.stfs.fetch_add(1, Ordering::Relaxed);
                    (self.hands.wake)();
                    return Ok(true);
                }
                Err(TrySendError::Disconnected(_)) => {
                    return Err(SendError::Over { flp: self.flp });
                }
                Err(TrySendError::Full(fed)) => fed,
            };
            if !is_awaited {
                // The FLP may have taken one just now: that is looked at once more, after it is asked to ring.
                self.hands.room.wait_for();
                is_awaited = true;
                continue;
            }
            if !self.wait(patience)? {
                return Ok(false);
            }
            is_awaited = false;
        }
    }

    /// Waits until the FLP rings, or for one slice; `false` if the time is over.
    fn wait(&mut self, patience: &mut Patience<'_>) -> Result<bool, SendError> {
        let slice = patience.slice();
        let wait = slice.unwrap_or_default();
        let room = self.hands.room.as_fd();
        let waited = self.hands.stop.wait(room, PollFlags::IN, Some(wait))?;
        self.hands.room.clear();
        match waited {
            Waited::Stopped => Err(SendError::Over { flp: self.flp }),
            Waited::TimedOut if slice.is_none() => Ok(false),
            Waited::TimedOut => patience.ask().map(|()| true),
            Waited::Ready | Waited::Second => Ok(true),
        }
    }
}

impl Drop for StfSender {
    fn drop(&mut self) {
        // First the end, then the wake: the woken FLP has to find it.
        let (closed, _) = std::sync::mpsc::sync_channel(1);
        self.hands.stfs = closed;
        (self.hands.wake)();
    }
}

#[cfg(test)]
mod tests {
    use super::super::feed::tests::{arena, wakes};
    use super::*;
    use sheaf_protocol::crc32c;
    use std::sync::mpsc::sync_channel;

    const NONE: Option<Duration> = Some(Duration::ZERO);

    fn open(bytes: usize) -> (Feed, StfSender) {
        let (program, senders) = sync_channel(1);
        let opening = Opening {
            flp: FlpId(3),
            flps: 4,
            stf_bytes_max: 2 << 20,
            memory: &arena(bytes),
            pool: sheaf_transport::ArenaOptions::default(),
            wake: wakes().0,
            registry: &Arc::default(),
            lend: &mut |_| {},
            program: Some(program),
        };
        match (ProgramSource {}).open(opening) {
            Ok(Input::Fed(feed)) => (feed, senders.try_recv().expect("the sender")),
            _ => panic!("a program is a producer outside"),
        }
    }

    fn send(sender: &mut StfSender, tf: u64, parts: &[&[u8]]) -> Result<bool, SendError> {
        send_patiently(sender, tf, parts, Patience::new(NONE, &mut || true))
    }

    fn send_patiently(
        sender: &mut StfSender,
        tf: u64,
        parts: &[&[u8]],
        patience: Patience<'_>,
    ) -> Result<bool, SendError> {
        let payload = parts.concat();
        let fill = |place: &mut [u8]| {
            place.copy_from_slice(&payload);
            crc32c(place)
        };
        sender.send(
            TfId(tf),
            PayloadFormat::Opaque,
            payload.len(),
            fill,
            patience,
        )
    }

    #[test]
    fn parts_become_one_payload_and_the_end_comes_last() {
        let (mut feed, mut sender) = open(8 << 20);
        assert!(send(&mut sender, 7, &[b"ab", b"", b"cde"]).unwrap());
        assert!(send(&mut sender, 9, &[]).unwrap());
        drop(sender);
        let stf = |tf, payload: &'static [u8]| {
            Fed::Stf(Stf::new(TfId(tf), PayloadFormat::Opaque, payload.into()))
        };
        assert_eq!(feed.try_next(), stf(7, b"abcde"));
        assert_eq!(feed.try_next(), stf(9, b""));
        assert_eq!(feed.try_next(), Fed::Ended);
        assert_eq!(feed.stats().stfs, 2);
    }

    #[test]
    fn a_full_queue_and_full_memory_say_no_and_take_nothing() {
        let (mut feed, mut sender) = open(8 << 20);
        let small = (0..).take_while(|tf| send(&mut sender, *tf, &[b"x"]).unwrap());
        assert_eq!(small.count(), 8);
        assert_eq!(
            feed.try_next(),
            Fed::Stf(Stf::new(TfId(0), PayloadFormat::Opaque, "x".into()))
        );
        assert!(send(&mut sender, 8, &[b"x"]).unwrap());
        drop((feed, sender));

        let (mut feed, mut sender) = open(4 << 20);
        let large = vec![1; 2 << 20];
        let taken = (0..).take_while(|tf| send(&mut sender, *tf, &[&large]).unwrap());
        let taken = taken.count() as u64;
        assert!((1..=2).contains(&taken), "{taken}");
        drop(feed.try_next());
        assert!(send(&mut sender, taken, &[&large]).unwrap());
    }

    #[test]
    fn what_cannot_be_sent_says_why() {
        let (feed, mut sender) = open(8 << 20);
        let large = vec![1; (2 << 20) + 1];
        let found = send(&mut sender, 1, &[&large]).unwrap_err().to_string();
        let expected =
            "the STF of TF 1 has 2097153 bytes, expected at most 2097152 (flp.stf_bytes_max)";
        assert_eq!(found, expected);
        assert!(send(&mut sender, 5, &[]).unwrap());
        let found = send(&mut sender, 5, &[]).unwrap_err().to_string();
        assert_eq!(found, "TF 5 comes after TF 5, expected ids that go up");
        let taken = (6..).take_while(|tf| send(&mut sender, *tf, &[]).unwrap());
        let tf = TfId(6 + taken.count() as u64);
        let parts: &[&[u8]] = &[b"x"];
        let stopped = send_patiently(&mut sender, tf.0, parts, Patience::new(None, &mut || false));
        assert_eq!(stopped.unwrap_err().to_string(), "interrupted");
        drop(feed);
        let found = send(&mut sender, tf.0, parts).unwrap_err().to_string();
        assert_eq!(found, "the run is over for flp:3");
    }

    #[test]
    fn each_heartbeat_comes_once_and_those_of_another_run_from_its_begin() {
        let (feed, mut sender) = open(8 << 20);
        let mut next = || {
            sender
                .next_heartbeat(Patience::new(NONE, &mut || true))
                .unwrap()
        };
        assert_eq!(next(), Heartbeat::Nothing);
        feed.note_called(RunId(1), TfId(5)..TfId(7));
        assert_eq!(
            [next(), next(), next()],
            [
                Heartbeat::Tf(TfId(5)),
                Heartbeat::Tf(TfId(6)),
                Heartbeat::Nothing
            ]
        );
        feed.note_called(RunId(1), TfId(6)..TfId(8));
        assert_eq!(
            [next(), next()],
            [Heartbeat::Tf(TfId(7)), Heartbeat::Nothing]
        );
        feed.note_called(RunId(2), TfId(0)..TfId(1));
        assert_eq!(
            [next(), next()],
            [Heartbeat::Tf(TfId(0)), Heartbeat::Nothing]
        );
        drop(feed);
        assert_eq!(next(), Heartbeat::Over);
    }
}
