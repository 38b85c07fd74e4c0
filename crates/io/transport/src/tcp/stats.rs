//! Counts of an endpoint.

use crate::transport::{CloseReason, TlsFailure};
use sheaf_protocol::PrefixError;

/// Totals since the endpoint was made. The driver turns them into metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Whole frames received.
    pub frames_in: u64,
    /// Bytes received, prefixes and cut frames included.
    pub bytes_in: u64,
    /// Frames that the kernel took whole.
    pub frames_out: u64,
    /// Bytes that the kernel took.
    pub bytes_out: u64,
    /// System calls that read.
    pub reads: u64,
    /// Reads that brought less than there was room for: the socket was drained.
    pub short_reads: u64,
    /// System calls that wrote.
    pub writes: u64,
    /// Writes that the kernel took only in part: the socket was full.
    pub short_writes: u64,
    /// System calls that waited for events.
    pub polls: u64,
    /// Connections that peers made.
    pub accepted: u64,
    /// Connections that we made.
    pub connected: u64,
    /// Connection attempts repeated without an answer.
    pub connect_retries: u64,
    /// Connections that ended, for any reason, also those that never stood.
    pub closed: u64,
    /// Connections that we could not make.
    pub unreachable: u64,
    /// Connections that were reset or failed.
    pub failed: u64,
    /// Attempts to accept that failed, for instance because no file descriptor was left.
    pub accept_errors: u64,
    /// Frames that a full queue dropped.
    pub frames_dropped: u64,
    /// Bytes of those, prefixes included.
    pub bytes_dropped: u64,
    /// Frames returned because the queue was full.
    pub frames_held_back: u64,
    /// Bodies that were put on the heap because the arena was full.
    pub heap_fallbacks: u64,
    /// Reads deferred because there was no room for a body.
    pub waits_for_space: u64,
    /// TLS handshakes that came to their end, on either side.
    pub handshakes: u64,
    /// Handshakes that resumed an earlier session, which spares both sides the certificates.
    pub handshakes_resumed: u64,
    /// Sessions whose records the kernel protects, in both directions.
    pub kernel_sessions: u64,
    /// Sends that the kernel was asked not to copy, and is done with.
    pub zero_copy_sends: u64,
    /// Zero-copy writes that the kernel copied after all.
    pub zero_copy_copied: u64,
    /// Streams that got a lane of shared memory beside them, on either side.
    pub lanes: u64,
    /// Lanes that were offered or begun and did not come to stand: the stream carries all.
    pub lanes_failed: u64,
    /// Frames that went over lanes.
    pub lent_frames_out: u64,
    /// Bytes of these frames. None of them is in `bytes_out`.
    pub lent_bytes_out: u64,
    /// Frames that came over lanes.
    pub lent_frames_in: u64,
    /// Bytes of these frames. None of them is in `bytes_in`.
    pub lent_bytes_in: u64,
    /// Connections of peers that we ended, by reason.
    pub refused: Refused,
}

/// Connections that were ended because of what the peer did, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Another protocol, or a stream out of step.
    pub magic: u64,
    /// Another wire version.
    pub version: u64,
    /// An unknown kind of frame.
    pub kind: u64,
    /// A head beyond the limit.
    pub head_too_large: u64,
    /// A body beyond the limit.
    pub body_too_large: u64,
    /// A body, a head above that of a hello, or a frame about a lane, before the hello was accepted.
    pub early: u64,
    /// A head that does not have the digest that it should.
    pub digest: u64,
    /// A stream that ended inside a frame.
    pub cut: u64,
    /// Shared memory that cannot be as it is.
    pub shm: u64,
    /// First frame, or hello that is accepted, that did not come in time.
    pub silent: u64,
    /// Nothing moved inside a frame.
    pub stalled: u64,
    /// More connections than allowed.
    pub too_many: u64,
    /// Peer without TLS where TLS is required.
    pub tls_plain: u64,
    /// Peer without a certificate.
    pub tls_no_certificate: u64,
    /// A certificate that is not one of this farm, or does not hold now.
    pub tls_certificate: u64,
    /// The peer refused us.
    pub tls_alert: u64,
    /// Another version, a damaged record, a stream cut off in the handshake.
    pub tls_protocol: u64,
    /// Handshake that did not end in time.
    pub tls_slow: u64,
    /// A handshake that was given up for a newer one, because too many were under way.
    pub tls_crowded: u64,
}

/// Adds the fields of one to those of another, and does not compile without one of them.
macro_rules! add {
    ($type:ident, $to:expr, $from:expr, $($field:ident)+; $($rest:ident)?) => {
        let $type { $($field,)+ $($rest)? } = $from;
        $($to.$field += $field;)+
        $($to.$rest.add($rest);)?
    };
}

impl Stats {
    /// Adds what another endpoint has counted.
    pub(crate) fn add(&mut self, other: Self) {
        add!(Self, self, other,
            frames_in bytes_in frames_out bytes_out reads short_reads writes short_writes polls accepted connected
            connect_retries closed unreachable failed accept_errors frames_dropped bytes_dropped frames_held_back
            heap_fallbacks waits_for_space handshakes handshakes_resumed kernel_sessions zero_copy_sends
            zero_copy_copied lanes lanes_failed lent_frames_out lent_bytes_out lent_frames_in lent_bytes_in; refused);
    }

    /// Counts the end of a connection.
    pub(crate) fn count_close(&mut self, reason: &CloseReason) {
        self.closed += 1;
        match reason {
            CloseReason::ByPeer | CloseReason::ByUs => {}
            CloseReason::Reset | CloseReason::Io(_) => self.failed += 1,
            CloseReason::Unreachable(_) => self.unreachable += 1,
            CloseReason::Tls(failure) => self.refused.count_tls(failure),
            CloseReason::Early(_) => self.refused.early += 1,
            CloseReason::Cut { .. } => self.refused.cut += 1,
            CloseReason::Shm(_) => self.refused.shm += 1,
            CloseReason::Silent { .. } => self.refused.silent += 1,
            CloseReason::Stalled { .. } => self.refused.stalled += 1,
            CloseReason::Crowded => self.refused.too_many += 1,
            CloseReason::Refused(PrefixError::Magic { .. }) => self.refused.magic += 1,
            CloseReason::Refused(PrefixError::Version { .. }) => self.refused.version += 1,
            CloseReason::Refused(PrefixError::Kind { .. }) => self.refused.kind += 1,
            CloseReason::Refused(PrefixError::HeadTooLarge { .. }) => {
                self.refused.head_too_large += 1;
            }
            CloseReason::Refused(PrefixError::BodyTooLarge { .. }) => {
                self.refused.body_too_large += 1;
            }
            CloseReason::Refused(PrefixError::Digest { .. }) => self.refused.digest += 1,
        }
    }
}

impl Refused {
    fn add(&mut self, other: Self) {
        add!(Self, self, other,
            magic version kind head_too_large body_too_large early digest cut shm silent stalled too_many tls_plain
            tls_no_certificate tls_certificate tls_alert tls_protocol tls_slow tls_crowded;);
    }

    fn count_tls(&mut self, failure: &TlsFailure) {
        match failure {
            TlsFailure::Plain => self.tls_plain += 1,
            TlsFailure::NoCertificate => self.tls_no_certificate += 1,
            TlsFailure::Certificate(_) => self.tls_certificate += 1,
            TlsFailure::Alert(_) => self.tls_alert += 1,
            TlsFailure::Protocol(_) => self.tls_protocol += 1,
            TlsFailure::Slow { .. } => self.tls_slow += 1,
        }
    }
}
