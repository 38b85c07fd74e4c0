//! The data streams of an FLP: one to each EPN, opened again when they break.

use super::config::FlpConfig;
use crate::backoff::Backoff;
use sheaf_protocol::control::{EpnAddress, digest_of_targets};
use sheaf_protocol::{Source, Target, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Longest pause between two attempts to open a stream.
const PAUSE_MAX: Duration = Duration::from_millis(250);

#[derive(Debug)]
enum State {
    Connecting,
    Open,
    Broken { retry_at: Timestamp },
}

#[derive(Debug)]
struct Link {
    address: String,
    state: State,
    pause: Backoff,
    /// Pauses while the EPN refuses the stream.
    refused_pause: Backoff,
    /// Whether it has refused the present one.
    is_refused: bool,
}

/// Time for which a stream that was open, or was tried, is not.
#[derive(Debug)]
struct Outage {
    since: Timestamp,
    /// When the ICN was last notified.
    told_at: Option<Timestamp>,
}

/// All data streams, by EPN and its incarnation.
#[derive(Debug)]
pub(super) struct Links {
    links: BTreeMap<Target, Link>,
    /// Streams that are broken, or are being opened again: few of the thousands that a farm may have, and the only ones
    /// that the passing of time concerns.
    outages: BTreeMap<Target, Outage>,
    /// Digest of the known EPNs.
    digest: u32,
    seed: u64,
    pause_first: Duration,
    unreachable_after: Duration,
}

impl Links {
    pub(super) fn new(config: &FlpConfig, source: Source) -> Self {
        Self {
            links: BTreeMap::new(),
            outages: BTreeMap::new(),
            digest: digest_of_targets([]),
            seed: source.incarnation.0 ^ (u64::from(source.flp.0) << 32),
            pause_first: Duration::from_millis(config.reconnect_ms),
            unreachable_after: Duration::from_millis(config.unreachable_ms),
        }
    }

    pub(super) fn is_open(&self, target: Target) -> bool {
        self.links
            .get(&target)
            .is_some_and(|link| matches!(link.state, State::Open))
    }

    /// Returns a digest of the known EPNs.
    pub(super) fn digest(&self) -> u32 {
        self.digest
    }

    /// Removes every stream to an EPN that is not in `epns`; returns them.
    pub(super) fn keep_only(&mut self, epns: &[EpnAddress]) -> Vec<Target> {
        let listed: BTreeSet<Target> = epns.iter().map(|epn| epn.target).collect();
        let is_listed = |target: &Target| listed.contains(target);
        let gone: Vec<Target> = self
            .links
            .keys()
            .copied()
            .filter(|t| !is_listed(t))
            .collect();
        self.links.retain(|target, _| is_listed(target));
        self.outages.retain(|target, _| is_listed(target));
        self.digest = digest_of_targets(self.links.keys().copied());
        gone
    }

    /// Adds a stream to every EPN of `epns` that has none; returns them.
    pub(super) fn add_new(&mut self, epns: &[EpnAddress]) -> Vec<(Target, String)> {
        let mut new = Vec::new();
        for epn in epns {
            self.links.entry(epn.target).or_insert_with(|| {
                new.push((epn.target, epn.address.clone()));
                let seed = self.seed ^ (u64::from(epn.target.epn.0) << 48);
                Link {
                    address: epn.address.clone(),
                    state: State::Connecting,
                    pause: Backoff::new(self.pause_first, PAUSE_MAX, seed),
                    refused_pause: Backoff::after_refusals(seed),
                    is_refused: false,
                }
            });
        }
        self.digest = digest_of_targets(self.links.keys().copied());
        new
    }

    /// Marks a stream as open; returns whether it is one of ours.
    pub(super) fn opened(&mut self, target: Target) -> bool {
        let Some(link) = self.links.get_mut(&target) else {
            return false;
        };
        link.state = State::Open;
        link.pause.reset();
        self.outages.remove(&target);
        true
    }

    /// Notes that the EPN refuses the stream, which closes next.
    pub(super) fn refused(&mut self, target: Target) {
        if let Some(link) = self.links.get_mut(&target) {
            link.is_refused = true;
        }
    }

    pub(super) fn closed(&mut self, now: Timestamp, target: Target) {
        if let Some(link) = self.links.get_mut(&target) {
            // The EPN refuses a stream after it was open, so that opening one says nothing.
            let pause = if std::mem::take(&mut link.is_refused) {
                link.refused_pause.pause()
            } else {
                link.refused_pause.reset();
                link.pause.pause()
            };
            link.state = State::Broken {
                retry_at: now + pause,
            };
            self.outages.entry(target).or_insert(Outage {
                since: now,
                told_at: None,
            });
        }
    }

    /// Returns streams whose pause is over; they count as connecting from now on.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<(Target, String)> {
        let mut due = Vec::new();
        for target in self.outages.keys() {
            if let Some(link) = self.links.get_mut(target)
                && matches!(link.state, State::Broken { retry_at } if retry_at <= now)
            {
                link.state = State::Connecting;
                due.push((*target, link.address.clone()));
            }
        }
        due
    }

    /// Returns EPNs to be reported to the ICN: broken for long, and not reported lately.
    pub(super) fn unreachable(&mut self, now: Timestamp) -> Vec<Target> {
        let after = self.unreachable_after;
        let mut unreachable = Vec::new();
        for (target, outage) in &mut self.outages {
            let is_long = now.since(outage.since) >= after;
            if is_long && outage.told_at.is_none_or(|told| now.since(told) >= after) {
                outage.told_at = Some(now);
                unreachable.push(*target);
            }
        }
        unreachable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::{EpnId, FlpId, Incarnation};

    /// Streams that are begun in a minute of virtual time, when each is refused, or broken, right after it was opened.
    fn tries(is_refused: bool) -> u32 {
        let incarnation = Incarnation(1);
        let flp = FlpId(0);
        let mut links = Links::new(&FlpConfig::default(), Source { flp, incarnation });
        let epn = EpnId(0);
        let target = Target { epn, incarnation };
        let address = "epn:1".to_owned();
        assert_eq!(links.add_new(&[EpnAddress { target, address }]).len(), 1);
        let mut tries = 0;
        for ms in 0..60_000 {
            let now = Timestamp(ms * 1_000_000);
            if ms > 0 && links.due(now).is_empty() {
                continue;
            }
            tries += 1;
            assert!(links.opened(target));
            if is_refused {
                links.refused(target);
            }
            links.closed(now, target);
        }
        tries
    }

    #[test]
    fn an_outage_is_reported_until_the_stream_opens_or_its_epn_is_gone() {
        let incarnation = Incarnation(1);
        let source = Source {
            flp: FlpId(0),
            incarnation,
        };
        let config = FlpConfig {
            unreachable_ms: 100,
            ..FlpConfig::default()
        };
        let mut links = Links::new(&config, source);
        let epns = [0, 1].map(|epn| EpnAddress {
            target: Target {
                epn: EpnId(epn),
                incarnation,
            },
            address: format!("epn:{epn}"),
        });
        let [first, second] = [epns[0].target, epns[1].target];
        assert_eq!(links.add_new(&epns).len(), 2);
        let at = |ms: u64| Timestamp(ms * 1_000_000);
        for target in [first, second] {
            assert!(links.opened(target));
            links.closed(at(0), target);
        }
        assert_eq!(links.unreachable(at(99)), []);
        assert_eq!(links.unreachable(at(100)), [first, second]);
        assert_eq!(links.unreachable(at(199)), []);
        assert!(links.opened(first));
        assert_eq!(links.unreachable(at(200)), [second]);
        assert_eq!(links.due(at(1_000)).len(), 1);
        assert_eq!(links.keep_only(&epns[..1]), [second]);
        assert_eq!(links.unreachable(at(2_000)), []);
        assert_eq!(links.due(at(2_000)), []);
    }

    #[test]
    fn an_epn_that_refuses_is_tried_less_and_less_often() {
        assert!(tries(true) < 40, "{} tries", tries(true));
        assert!(tries(false) > 400, "{} tries", tries(false));
    }
}
