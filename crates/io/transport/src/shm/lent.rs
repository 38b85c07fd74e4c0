//! Bodies of a peer, read where they lie.

#![expect(unsafe_code, reason = "memory of another process is read in place")]

use crate::mapping::Mapping;
use bytes::Bytes;

/// Body that a peer has lent. It goes back when `L` is dropped.
struct Lent<L> {
    loan: L,
    offset: u64,
    bytes: u64,
}

/// Returns the body of `bytes` bytes at `offset` of the memory of `loan`, which goes back when its last [`Bytes`] is
/// dropped; `None` if it does not lie there: then it goes back at once. The record of a peer must have named the
/// place, and `loan` must be what that record lends: it always refers to the same mapping.
pub(crate) fn lent<L>(loan: L, offset: u64, bytes: u64) -> Option<Bytes>
where
    L: AsRef<Mapping> + Send + Sync + 'static,
{
    let has = loan.as_ref().has(offset, bytes);
    has.then(|| {
        Bytes::from_owner(Lent {
            loan,
            offset,
            bytes,
        })
    })
}

impl<L: AsRef<Mapping>> AsRef<[u8]> for Lent<L> {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the peer has named these bytes in a record, and by the protocol it does not write to them until they
        // come back, which is when `loan` is dropped, after the last use of the result. The kernel refuses all other
        // writers of memory that is lent. A peer that breaks the protocol is a process of our own user, as the socket
        // has shown: such a one can write to all memory of this process, with or without a lane (`/proc/PID/mem`).
        let body = unsafe { self.loan.as_ref().lent_at(self.offset, self.bytes) };
        body.unwrap_or_default() // it lies in the mapping: that was looked at before
    }
}
