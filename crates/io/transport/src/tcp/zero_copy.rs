//! Sends that the kernel does not copy (`MSG_ZEROCOPY`), for network cards that read memory by themselves.
//!
//! The kernel notifies for every call when it is done with the memory, and whether it had to copy after all, as on
//! loopback and on virtual cards. Then the connection stops asking for it: pinning pages and hearing of them costs
//! more than the copy. Where the kernel does not copy, the first large bodies are a trial: half of them are copied, and
//! the way that took less processor time is kept. Source: Linux, `Documentation/networking/msg_zerocopy.rst`.

#![expect(
    unsafe_code,
    reason = "the error queue of a socket has no safe interface"
)]

use bytes::Bytes;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Constants of the Linux headers on supported processors, which `libc` lacks.
const SO_ZEROCOPY: libc::c_int = 60;
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;

/// Bodies below this are copied: it costs less than telling.
pub(crate) const BYTES_MIN: usize = 64 << 10;

/// Calls that may be under way on one connection. One more is copied.
const CALLS_MAX: usize = 256;

/// Bytes that a trial sends in each of the two ways.
const TRIAL_BYTES: u64 = 16 << 20;

/// Cost of a way of sending, as far as it was tried.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    bytes: u64,
    /// Processor time of this thread in the calls.
    time: Duration,
}

impl Cost {
    /// Whether a byte costs less this way than by `other`.
    fn is_below(self, other: Self) -> bool {
        let scaled = |cost: Self, bytes: u64| cost.time.as_nanos() * u128::from(bytes);
        scaled(self, other.bytes) < scaled(other, self.bytes)
    }
}

/// Trial of both ways of sending: copied, and in place.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    copied: Cost,
    in_place: Cost,
}

/// Memory of a connection that the kernel still reads.
#[derive(Debug)]
pub(crate) struct ZeroCopy {
    /// Whether further calls ask for it.
    pub(crate) is_on: bool,
    /// Costs, until the cheaper way is chosen.
    trial: Option<Trial>,
    /// The number of the next call; the kernel counts along.
    next: u32,
    /// Memory that each unfinished call reads.
    under_way: VecDeque<(u32, Option<Bytes>)>,
}

/// Notifications of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Completions {
    /// Calls that are done.
    pub(crate) done: u64,
    /// Calls for which the kernel copied.
    pub(crate) copied: u64,
}

impl ZeroCopy {
    /// Asks for it; `None` if this kernel or this kind of socket has nothing of the kind.
    pub(crate) fn begin(socket: impl AsFd) -> Option<Self> {
        let on: libc::c_int = 1;
        // SAFETY: the option takes an int, which lives as long as the call.
        let set = unsafe {
            libc::setsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                SO_ZEROCOPY,
                (&raw const on).cast(),
                libc::socklen_t::try_from(size_of::<libc::c_int>()).ok()?,
            )
        };
        (set == 0).then(Self::new)
    }

    fn new() -> Self {
        Self {
            is_on: true,
            trial: Some(Trial::default()),
            next: 0,
            under_way: VecDeque::new(),
        }
    }

    /// Returns whether the next large body is to be sent in place: in a trial the way that has sent less.
    pub(crate) fn asks(&self) -> bool {
        let trial = self.trial.as_ref();
        self.is_on && trial.is_none_or(|trial| trial.in_place.bytes <= trial.copied.bytes)
    }

    /// Returns the processor time of this thread, for [`count`](Self::count); `None` if there is no trial.
    pub(crate) fn clock(&self) -> Option<Duration> {
        self.trial.is_some().then(thread_time)
    }

    /// Notes what a call took that began at `begun` and sent `bytes` of a large body, in place if `is_asked`.
    pub(crate) fn count(&mut self, is_asked: bool, bytes: usize, begun: Option<Duration>) {
        let took = begun.map(|begun| thread_time().saturating_sub(begun));
        self.note(is_asked, bytes, took.unwrap_or_default());
    }

    fn note(&mut self, is_asked: bool, bytes: usize, took: Duration) {
        let is_reading = self.is_reading();
        let Some(trial) = &mut self.trial else {
            return;
        };
        let cost = match is_asked {
            true => &mut trial.in_place,
            false => &mut trial.copied,
        };
        cost.bytes += bytes as u64;
        cost.time += took;
        let Trial { copied, in_place } = *trial;
        // What the kernel says of the last of them belongs to the cost.
        if copied.bytes.min(in_place.bytes) >= TRIAL_BYTES && !is_reading {
            self.is_on &= in_place.is_below(copied);
            self.trial = None;
        }
    }

    /// Returns whether one more call may ask for it.
    pub(crate) fn has_room(&self) -> bool {
        self.is_on && self.under_way.len() < CALLS_MAX
    }

    /// Returns whether the kernel reads memory of ours.
    pub(crate) fn is_reading(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// A call was taken that reads `body`.
    pub(crate) fn sent(&mut self, body: Bytes) {
        self.under_way.push_back((self.next, Some(body)));
        self.next = self.next.wrapping_add(1);
    }

    /// Takes in what the kernel has said. A call whose memory it did copy is the last that asked.
    pub(crate) fn read_completions(&mut self, socket: impl AsFd) -> io::Result<Completions> {
        let mut completions = Completions::default();
        let begun = self.clock();
        while let Some(range) = next_range(&socket)? {
            self.complete(range, &mut completions);
        }
        self.count(true, 0, begun);
        Ok(completions)
    }

    fn complete(&mut self, range: Range, completions: &mut Completions) {
        for (_, body) in self.under_way.iter_mut().filter(|(id, _)| range.has(*id)) {
            if body.take().is_some() {
                completions.done += 1;
                completions.copied += u64::from(range.is_copied);
            }
        }
        // The kernel may tell of a later call first.
        while let Some((_, None)) = self.under_way.front() {
            self.under_way.pop_front();
        }
        if completions.copied > 0 {
            (self.is_on, self.trial) = (false, None);
        }
    }
}

/// Returns the processor time of this thread.
pub(super) fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.try_into().unwrap_or_default() // it is not negative
}

/// Calls that are done, the last included.
#[derive(Clone, Copy, Debug)]
struct Range {
    first: u32,
    last: u32,
    is_copied: bool,
}

impl Range {
    /// Numbers go round at 2³².
    fn has(self, id: u32) -> bool {
        id.wrapping_sub(self.first) <= self.last.wrapping_sub(self.first)
    }
}

/// Room for one message of the error queue: its head, the error, and the address behind it.
#[repr(C, align(8))]
struct Control([u8; 256]);

/// Returns the next message of the error queue; `None` if it is empty.
fn next_range(socket: &impl AsFd) -> io::Result<Option<Range>> {
    loop {
        let mut control = Control([0; 256]);
        // SAFETY: all zero is a message header without name, data and control.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_control = control.0.as_mut_ptr().cast();
        // A number of another width with musl.
        message.msg_controllen = size_of::<Control>() as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        let socket = socket.as_fd().as_raw_fd();
        // SAFETY: the header names `control`, with its length, and nothing else.
        let received = unsafe { libc::recvmsg(socket, &raw mut message, flags) };
        if received < 0 {
            let error = io::Error::last_os_error();
            return match Errno::from_io_error(&error) {
                Some(Errno::AGAIN) => Ok(None),
                Some(Errno::INTR) => continue,
                _ => Err(error),
            };
        }
        // SAFETY: the kernel has filled the header; what it names is in `control`.
        if let Some(range) = unsafe { range_in(&message) } {
            return Ok(Some(range));
        }
    }
}

/// Returns the range in a message of the error queue, if it is of this kind.
///
/// # Safety
///
/// `message` is as `recvmsg` left it, and its control buffer is still there.
unsafe fn range_in(message: &libc::msghdr) -> Option<Range> {
    // SAFETY: as the caller promises.
    let head = unsafe { libc::CMSG_FIRSTHDR(message) };
    if head.is_null() {
        return None;
    }
    // SAFETY: it lies in the control buffer, aligned, and the kernel has filled it.
    let (level, kind, len) = unsafe { ((*head).cmsg_level, (*head).cmsg_type, (*head).cmsg_len) };
    let is_error = (level, kind) == (libc::SOL_IP, libc::IP_RECVERR)
        || (level, kind) == (libc::SOL_IPV6, libc::IPV6_RECVERR);
    let len_min = size_of::<libc::cmsghdr>() + size_of::<libc::sock_extended_err>();
    if !is_error || len < len_min as _ {
        return None;
    }
    // SAFETY: the message is long enough to hold one.
    let error: libc::sock_extended_err = unsafe {
        libc::CMSG_DATA(head)
            .cast::<libc::sock_extended_err>()
            .read_unaligned()
    };
    let is_ours = error.ee_errno == 0 && error.ee_origin == SO_EE_ORIGIN_ZEROCOPY;
    is_ours.then_some(Range {
        first: error.ee_info,
        last: error.ee_data,
        is_copied: error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends 1 MiB after the other until the trial is over; a byte in place costs `in_place` of one that is copied.
    /// Returns what was sent in each way meanwhile.
    fn tried(in_place: f64) -> (ZeroCopy, u64, u64) {
        let mut zero_copy = ZeroCopy::new();
        let (mut asked, mut copied) = (0, 0);
        let time = Duration::from_micros(100);
        while zero_copy.clock().is_some() {
            if zero_copy.asks() {
                let call = zero_copy.next;
                zero_copy.sent(Bytes::from_static(b"body"));
                zero_copy.note(true, 1 << 20, time.mul_f64(in_place / 2.0));
                asked += 1;
                let range = Range {
                    first: call,
                    last: call,
                    is_copied: false,
                };
                zero_copy.complete(range, &mut Completions::default());
                zero_copy.note(true, 0, time.mul_f64(in_place / 2.0));
            } else {
                zero_copy.note(false, 1 << 20, time);
                copied += 1;
            }
        }
        (zero_copy, asked, copied)
    }

    #[test]
    fn a_trial_keeps_the_way_that_costs_less() {
        for (in_place, is_kept) in [(0.5, true), (0.99, true), (1.0, false), (2.0, false)] {
            let (zero_copy, asked, copied) = tried(in_place);
            assert_eq!((asked, copied), (16, 16));
            assert_eq!(zero_copy.is_on, is_kept, "{in_place}");
            assert_eq!(zero_copy.asks(), is_kept);
        }
    }

    #[test]
    fn a_trial_waits_for_the_last_word_of_the_kernel() {
        let mut zero_copy = ZeroCopy::new();
        zero_copy.sent(Bytes::from_static(b"body"));
        zero_copy.note(true, 64 << 20, Duration::from_micros(1));
        zero_copy.note(false, 64 << 20, Duration::from_micros(10));
        assert!(zero_copy.clock().is_some(), "it still reads");
        let mut completions = Completions::default();
        let range = Range {
            first: 0,
            last: 0,
            is_copied: false,
        };
        zero_copy.complete(range, &mut completions);
        zero_copy.note(true, 0, Duration::from_micros(20));
        assert!(
            zero_copy.clock().is_none() && !zero_copy.is_on,
            "that was dear"
        );
    }

    #[test]
    fn a_kernel_that_copies_ends_the_trial() {
        let mut zero_copy = ZeroCopy::new();
        zero_copy.sent(Bytes::from_static(b"body"));
        let range = Range {
            first: 0,
            last: 0,
            is_copied: true,
        };
        zero_copy.complete(range, &mut Completions::default());
        assert!(!zero_copy.is_on && !zero_copy.asks() && zero_copy.clock().is_none());
    }

    #[test]
    fn a_range_goes_round() {
        let range = |first, last| Range {
            first,
            last,
            is_copied: false,
        };
        assert!(range(3, 5).has(3) && range(3, 5).has(5));
        assert!(!range(3, 5).has(2) && !range(3, 5).has(6));
        let round = range(u32::MAX, 1);
        assert!(round.has(u32::MAX) && round.has(0) && round.has(1) && !round.has(2));
    }
}
