//! The part of a session whose records the kernel protects.

use super::{End, Kernel, Session};
use crate::tcp::kernel_tls::{self, Way};
use crate::tcp::outbox::SLICES_MAX;
use crate::tcp::records::{self, Step};
use crate::transport::TlsFailure;
use rustls::ContentType;
use std::io;
use std::os::fd::AsFd;

impl Session {
    /// Returns whether the kernel protects the records of a direction.
    pub(in crate::tcp) fn is_in_kernel(&self, way: Way) -> bool {
        matches!(&self.end, End::Open(records) if records.is_in_kernel(way))
    }

    /// Gives the keys of a direction to the kernel, if that is wanted and no part of a record is between us and the
    /// socket. Returns whether the kernel protects the records of both directions since then.
    pub(in crate::tcp) fn give(&mut self, way: Way, socket: impl AsFd) -> bool {
        let is_between = match way {
            Way::Send => !self.outgoing.is_empty(),
            Way::Receive => !self.incoming.is_empty(),
        };
        let End::Open(records) = &mut self.end else {
            return false;
        };
        let is_due = self.kernel != Kernel::Apart && !self.is_broken && !is_between;
        if !is_due || !records.may_give(way) {
            return false;
        }
        if way == Way::Send && !kernel_tls::is_large_enough(&socket) {
            return false;
        }
        if self.kernel == Kernel::Wanted {
            self.kernel = match kernel_tls::prepare(&socket) {
                Ok(()) => Kernel::Ready,
                // Of the other family, or the peer has ended. The session goes on as it is.
                Err(_) => Kernel::Apart,
            };
        }
        if self.kernel != Kernel::Ready {
            return false;
        }
        if records.give(way, socket).is_err() {
            self.kernel = Kernel::Apart;
            return false;
        }
        records.is_in_kernel(Way::Send) && records.is_in_kernel(Way::Receive)
    }

    /// Returns how many bytes are missing of the record that has come in part, as far as they are known; `None` if its
    /// end is not waited for.
    pub(in crate::tcp) fn missing_of_record(&self) -> Option<usize> {
        let may_give = matches!(&self.end, End::Open(records) if records.may_give(Way::Receive));
        (may_give && self.kernel != Kernel::Apart)
            .then(|| records::missing(&self.incoming))
            .flatten()
    }

    /// Notes that the kernel took `bytes` of frames.
    pub(in crate::tcp) fn sent_by_kernel(&mut self, bytes: usize) {
        if let End::Open(records) = &mut self.end {
            records.sent_by_kernel(bytes, SLICES_MAX);
        }
    }

    /// Returns whether the kernel has to send something that is not data before any more of that.
    pub(in crate::tcp) fn has_said(&self) -> bool {
        matches!(&self.end, End::Open(records) if records.has_said())
    }

    /// Sends what is not data through the kernel. Nothing is left of it after an error, unless the socket is full.
    pub(in crate::tcp) fn send_said(&mut self, socket: impl AsFd) -> io::Result<()> {
        match &mut self.end {
            End::Open(records) => records.send_said(socket),
            _ => Ok(()),
        }
    }

    /// Takes a record that is not data and that the kernel has opened.
    pub(in crate::tcp) fn take_opened(
        &mut self,
        kind: ContentType,
        content: &[u8],
        socket: impl AsFd,
    ) -> Result<Step, TlsFailure> {
        match &mut self.end {
            End::Open(records) if !self.is_broken => {
                let step = records.take_opened(kind, content, socket, &mut self.outgoing);
                self.is_broken |= step.is_err();
                step
            }
            _ => Err(super::is_over()),
        }
    }
}
