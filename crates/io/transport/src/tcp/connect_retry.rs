//! Repeated attempts of a connection while there is no answer.
//!
//! A first segment that is lost is repeated by the kernel only after a second (RFC 6298, section 2.1), and nothing in
//! a socket makes that shorter. After a link has come back, or when many nodes reconnect at once, a second is longer
//! than a farm waits for a node. So a new socket replaces one without an answer after a while; the user of the
//! connection sees one attempt.

use super::address::Address;
use super::config::TcpConfig;
use std::time::{Duration, Instant};

/// Attempts at even distance, as many as the kernel makes (`tcp_syn_linear_timeouts`); then each takes twice as long
/// as the one before, so that a long way round the world is waited for as well.
const EVEN_ATTEMPTS: u32 = 4;

/// Where a connection goes, and when it was tried last.
#[derive(Clone, Debug)]
pub(crate) struct ConnectRetry {
    pub(crate) peer: Address,
    at: Instant,
    attempts: u32,
}

impl ConnectRetry {
    pub(crate) fn new(peer: Address, now: Instant) -> Self {
        Self {
            peer,
            at: now,
            attempts: 1,
        }
    }

    /// Returns when it is to be tried again; `None`: not any more.
    pub(crate) fn due(&self, config: &TcpConfig) -> Option<Instant> {
        let doublings = self.attempts.saturating_sub(EVEN_ATTEMPTS);
        let pause_ms = config
            .connect_retry_ms
            .saturating_mul(1_u64.checked_shl(doublings).unwrap_or(u64::MAX));
        self.at.checked_add(Duration::from_millis(pause_ms))
    }

    /// Records another attempt at `now`.
    pub(crate) fn again(&mut self, now: Instant) {
        self.at = now;
        self.attempts = self.attempts.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_come_evenly_and_then_twice_as_far_apart() {
        let config = TcpConfig::default();
        let begin = Instant::now();
        let mut connect_retry = ConnectRetry::new(Address::Inet(([127, 0, 0, 1], 1).into()), begin);
        let mut at_ms = Vec::new();
        for _ in 0..7 {
            let due = connect_retry.due(&config).unwrap();
            at_ms.push((due - begin).as_millis() / u128::from(config.connect_retry_ms));
            connect_retry.again(due);
        }
        assert_eq!(at_ms, [1, 2, 3, 4, 6, 10, 18]);
    }
}
