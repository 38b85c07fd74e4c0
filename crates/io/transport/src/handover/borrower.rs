//! The side that looks at the messages.

use super::{BACK, BACK_BYTES, MEMORY_BYTES, OFFERED, RING_BYTES, SLOTS, TAKEN, claim_at, mark};
use crate::fault::ShmFault;
use crate::mapping::{Mapping, unchanging};
use crate::shm::answer::{AnswerError, Answers, are_tags};
use crate::shm::lent::lent;
use crate::shm::meeting;
use crate::shm::message::{self, ControlMessage, Received};
use crate::shm::record::{self, Message, Place};
use crate::shm::ring::{Reader, Writer};
use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Why nothing can be taken.
#[derive(Debug, Error)]
pub enum TakeError {
    /// No lender at the address.
    #[error("cannot take from {}: {source}", path.display())]
    Connect {
        /// Where the lender should be.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The process there does not belong to us.
    #[error("the process at {} runs as another user", path.display())]
    OtherUser {
        /// Where it is.
        path: PathBuf,
    },
    /// No word of the lender in time.
    #[error("the process at {} has sent nothing for {} ms", path.display(), waited.as_millis())]
    Silent {
        /// Where it is.
        path: PathBuf,
        /// Time waited.
        waited: Duration,
    },
    /// Peer with another protocol, or another version.
    #[error("the lender sent {found:02x?}, expected {expected}")]
    Message {
        /// The first bytes of what it said.
        found: Vec<u8>,
        /// Expected value.
        expected: &'static str,
    },
    /// Memory of the lender that cannot be mapped.
    #[error("cannot look at memory of the lender: {0}")]
    Memory(io::Error),
    /// Violation of the rules of shared memory.
    #[error(transparent)]
    Shm(#[from] ShmFault),
    /// The wait failed.
    #[error("cannot wait for the lender: {0}")]
    Wait(io::Error),
}

/// Result of a wait for the next message.
#[derive(Debug)]
pub enum Next {
    /// A message.
    Message(Taken),
    /// No message in time.
    Nothing,
    /// The lender is gone, and all that it had offered is taken.
    End,
}

/// A message. Its bodies lie where their owner has them, and go back to it when all of them are dropped, and the reply.
#[derive(Debug)]
pub struct Taken {
    /// Copied.
    pub head: Vec<u8>,
    /// Not copied. Who wants to keep them for long copies them: the lender waits for its memory.
    pub bodies: Vec<Bytes>,
    /// Way to answer.
    pub reply: Reply,
}

/// Way to answer one message. Dropped without an answer, the message goes back without one.
pub struct Reply(Arc<Loan>);

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

impl Reply {
    /// Answers with `tags`, which have a comma between two, and a product made of the message. The answer goes with the
    /// bodies, when the last of them is dropped. Waits while the lender has products to read.
    ///
    /// # Errors
    ///
    /// [`AnswerError`]; the message goes back without an answer.
    pub fn answer(self, tags: &str, product: Option<&[u8]>) -> Result<(), AnswerError> {
        let Loan {
            returns, answer, ..
        } = &*self.0;
        let answers = returns.answers.ok_or(AnswerError::NotTaken)?;
        if !are_tags(tags) {
            let found = tags.to_owned();
            return Err(AnswerError::Tags { found });
        }
        let number = match product {
            None => 0,
            Some(product) => returns.send_product(answers, product)?,
        };
        // A reply is there once, so nothing is set yet.
        let _ = answer.set((number, tags.to_owned()));
        Ok(())
    }
}

/// Expectations of a borrower: of the first message, and of later ones.
const HELLO: &str = "the hello of a lender of version 2";
const MESSAGE: &str = "a message of a lender of version 2";

fn unexpected(found: Vec<u8>, expected: &'static str) -> TakeError {
    TakeError::Message { found, expected }
}

/// Takes messages from one lender.
pub struct Borrower {
    ring: Reader,
    pub(super) memory: Arc<Mapping>,
    pub(super) returns: Arc<Returns>,
    regions: HashMap<u32, Arc<Region>>,
    record: Vec<u8>,
    is_alone: bool,
}

/// Where bodies go back. The socket closes when the last of them is gone, and the borrower.
pub(super) struct Returns {
    pub(super) back: Mutex<Writer>,
    socket: OwnedFd,
    answers: Option<Answers>,
    /// Number of the last product.
    products: AtomicU32,
}

impl Returns {
    /// Passes a product on, and returns its number, which is not 0.
    fn send_product(&self, answers: Answers, product: &[u8]) -> Result<u32, AnswerError> {
        let (found, most) = (product.len() as u64, answers.product_bytes_max);
        if found == 0 || found > most {
            return Err(AnswerError::Product { found, most });
        }
        let file = unchanging(product)?;
        // Numbers of products that are under way differ, however often they go round.
        let number = match self
            .products
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1)
        {
            0 => self
                .products
                .fetch_add(1, Ordering::Relaxed)
                .wrapping_add(1),
            number => number,
        };
        let product = ControlMessage::Product {
            number,
            bytes: found,
        };
        while !message::send(self.socket.as_fd(), product, &[file.as_fd()])? {
            let mut fds = [PollFd::from_borrowed_fd(
                self.socket.as_fd(),
                PollFlags::OUT,
            )];
            match rustix::event::poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
        Ok(number)
    }
}

struct Region {
    memory: Mapping,
    /// Sockets that keep the owners of the memory from reusing it, even if the lender dies.
    _keeper: Option<OwnedFd>,
}

/// A message that was taken, until its last body is dropped.
struct Loan {
    slot: u32,
    returns: Arc<Returns>,
    /// Product and tags.
    answer: OnceLock<(u32, String)>,
}

impl Drop for Loan {
    fn drop(&mut self) {
        let returns = &self.returns;
        let mut back = returns.back.lock().unwrap_or_else(PoisonError::into_inner);
        let (product, tags) = self.answer.take().unwrap_or_default();
        let fixed = record::back(self.slot, product);
        let record = [&fixed[..], tags.as_bytes()];
        // A lender that has broken the ring gets nothing back: it is its own memory.
        if matches!(back.push(&record), Ok(true)) && back.publish() {
            message::wake(returns.socket.as_fd());
        }
    }
}

/// Memory and message that one body keeps.
struct Held {
    region: Arc<Region>,
    _loan: Arc<Loan>,
}

impl AsRef<Mapping> for Held {
    fn as_ref(&self) -> &Mapping {
        &self.region.memory
    }
}

impl Borrower {
    /// Takes from who listens at `path`, once it has said its hello, within `timeout`.
    ///
    /// # Errors
    ///
    /// [`TakeError`] if there is no lender, or another program.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, TakeError> {
        let failed = |source: io::Error| TakeError::Connect {
            path: path.to_owned(),
            source,
        };
        let socket = meeting::socket().map_err(|errno| failed(errno.into()))?;
        let address = SocketAddrUnix::new(path).map_err(|errno| failed(errno.into()))?;
        rustix::net::connect(&socket, &address).map_err(|errno| failed(errno.into()))?;
        if !meeting::is_ours(socket.as_fd()) {
            let path = path.to_owned();
            return Err(TakeError::OtherUser { path });
        }
        if !wait(socket.as_fd(), Some(timeout)).map_err(TakeError::Wait)? {
            return Err(TakeError::Silent {
                path: path.to_owned(),
                waited: timeout,
            });
        }
        match message::receive(socket.as_fd()) {
            Received::Message(message @ ControlMessage::Hello { bytes, answers }, files) => {
                if bytes != MEMORY_BYTES as u64 {
                    let expected = "rings of the size of this version";
                    let found = message.into();
                    return Err(TakeError::Message { found, expected });
                }
                Self::begin(socket, files, answers)
            }
            Received::Message(message, _) => Err(unexpected(message.into(), HELLO)),
            Received::Other(found) => Err(unexpected(found, HELLO)),
            Received::Gone | Received::Nothing => {
                Err(failed(io::ErrorKind::ConnectionReset.into()))
            }
        }
    }

    pub(crate) fn begin(
        socket: OwnedFd,
        files: Vec<OwnedFd>,
        answers: Option<Answers>,
    ) -> Result<Self, TakeError> {
        let file = files.into_iter().next().ok_or_else(|| TakeError::Message {
            found: Vec::new(),
            expected: "rings with the hello",
        })?;
        let memory = Mapping::of_peer(file, MEMORY_BYTES, true).map_err(TakeError::Memory)?;
        let memory = Arc::new(memory);
        Ok(Self {
            ring: Reader::new(Arc::clone(&memory), 0, RING_BYTES),
            returns: Arc::new(Returns {
                back: Mutex::new(Writer::new(Arc::clone(&memory), BACK, BACK_BYTES)),
                socket,
                answers,
                products: AtomicU32::new(0),
            }),
            memory,
            regions: HashMap::new(),
            record: Vec::new(),
            is_alone: false,
        })
    }

    /// Becomes readable when there is something to take after [`next`](Self::next) gave [`Next::Nothing`].
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.returns.socket.as_fd()
    }

    /// Returns the next message, waited for for at most `timeout`; `None`: for ever.
    ///
    /// # Errors
    ///
    /// [`TakeError`] if the lender breaks the rules.
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Next, TakeError> {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let was_alone = self.is_alone;
            self.listen()?;
            if let Some(message) = self.take()? {
                return Ok(Next::Message(message));
            }
            if was_alone {
                return Ok(Next::End);
            }
            if self.is_alone || !self.ring.sleep() {
                continue; // there is something now, or it is the last look
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if !wait(self.returns.socket.as_fd(), left).map_err(TakeError::Wait)? {
                return Ok(Next::Nothing);
            }
        }
    }

    /// Takes what is there, if something is that was not called back.
    fn take(&mut self) -> Result<Option<Taken>, TakeError> {
        let mut record = std::mem::take(&mut self.record);
        let mut taken = None;
        while taken.is_none() && self.ring.pop(&mut record)? {
            taken = self.claim(&record)?;
            if self.ring.free() {
                message::wake(self.returns.socket.as_fd());
            }
        }
        self.record = record;
        Ok(taken)
    }

    /// Returns the message of a record; `None` if it was called back.
    fn claim(&mut self, record: &[u8]) -> Result<Option<Taken>, TakeError> {
        let message = Message::read(record, RING_BYTES)?;
        let (number, slot) = (message.number, message.slot);
        if slot >= SLOTS {
            return Err(ShmFault::Slot { slot }.into());
        }
        let claim = self.memory.word(claim_at(slot));
        let (from, to) = (mark(number, OFFERED), mark(number, TAKEN));
        if claim
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            return Ok(None);
        }
        let loan = Arc::new(Loan {
            slot,
            returns: Arc::clone(&self.returns),
            answer: OnceLock::new(),
        });
        let mut bodies = Vec::with_capacity(message.places().len());
        for place in message.places() {
            bodies.push(self.body(place, &loan)?);
        }
        Ok(Some(Taken {
            head: message.head.to_vec(),
            bodies,
            reply: Reply(loan),
        }))
    }

    fn body(&mut self, place: Place, loan: &Arc<Loan>) -> Result<Bytes, TakeError> {
        if place.bytes == 0 {
            return Ok(Bytes::new());
        }
        if !self.regions.contains_key(&place.region) {
            self.listen()?; // It was announced before the record could be seen.
        }
        let region = self.regions.get(&place.region);
        let body = region.and_then(|region| {
            let held = Held {
                region: Arc::clone(region),
                _loan: Arc::clone(loan),
            };
            lent(held, place.offset, place.bytes)
        });
        Ok(body.ok_or_else(|| place.fault())?)
    }

    /// Takes in what the lender has said.
    fn listen(&mut self) -> Result<(), TakeError> {
        loop {
            match message::receive(self.returns.socket.as_fd()) {
                Received::Nothing => return Ok(()),
                Received::Gone => {
                    self.is_alone = true;
                    return Ok(());
                }
                Received::Message(ControlMessage::Wake, _) => {}
                Received::Message(message @ ControlMessage::Region { number, bytes }, files) => {
                    let mut files = files.into_iter();
                    let (Some(file), Ok(bytes)) = (files.next(), usize::try_from(bytes)) else {
                        let expected = "memory with its descriptor";
                        return Err(unexpected(message.into(), expected));
                    };
                    let memory = Mapping::of_peer(file, bytes, false).map_err(TakeError::Memory)?;
                    let region = Region {
                        memory,
                        _keeper: files.next(),
                    };
                    self.regions.insert(number, Arc::new(region));
                }
                Received::Message(ControlMessage::Forget { number }, _) => {
                    self.regions.remove(&number);
                }
                Received::Message(message, _) => return Err(unexpected(message.into(), MESSAGE)),
                Received::Other(found) => return Err(unexpected(found, MESSAGE)),
            }
        }
    }
}

impl Drop for Borrower {
    fn drop(&mut self) {
        // Bodies that are still out keep the socket open. If this is not heard, what is offered is called back in time.
        let _ = message::send(self.returns.socket.as_fd(), ControlMessage::Leave, &[]);
    }
}

impl std::fmt::Debug for Borrower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Borrower")
            .field("regions", &self.regions.len())
            .finish_non_exhaustive()
    }
}

/// Waits until `socket` can be read from, for at most `timeout`. Tells whether it can.
fn wait(socket: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<bool> {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    match rustix::event::poll(&mut fds, timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        // A signal: the caller may want to handle it.
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
