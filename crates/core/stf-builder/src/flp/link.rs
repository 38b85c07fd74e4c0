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
    /// Since when the stream is not open; `None` while it is.
    broken_since: Option<Timestamp>,
    /// When the ICN was last notified.
    told_at: Option<Timestamp>,
}

/// All data streams, by EPN and its incarnation.
#[derive(Debug)]
pub(super) struct Links {
    links: BTreeMap<Target, Link>,
    seed: u64,
    pause_first: Duration,
    unreachable_after: Duration,
}

impl Links {
    pub(super) fn new(config: &FlpConfig, source: Source) -> Self {
        Self {
            links: BTreeMap::new(),
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
        digest_of_targets(self.links.keys().copied())
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
        gone
    }

    /// Adds a stream to every EPN of `epns` that has none; returns them.
    pub(super) fn add_new(&mut self, epns: &[EpnAddress]) -> Vec<(Target, String)> {
        let mut new = Vec::new();
        for epn in epns {
            self.links.entry(epn.target).or_insert_with(|| {
                new.push((epn.target, epn.address.clone()));
                Link {
                    address: epn.address.clone(),
                    state: State::Connecting,
                    pause: Backoff::new(
                        self.pause_first,
                        PAUSE_MAX,
                        self.seed ^ (u64::from(epn.target.epn.0) << 48),
                    ),
                    broken_since: None,
                    told_at: None,
                }
            });
        }
        new
    }

    /// Marks a stream as open; returns whether it is one of ours.
    pub(super) fn opened(&mut self, target: Target) -> bool {
        let Some(link) = self.links.get_mut(&target) else {
            return false;
        };
        link.state = State::Open;
        link.pause.reset();
        link.broken_since = None;
        link.told_at = None;
        true
    }

    pub(super) fn closed(&mut self, now: Timestamp, target: Target) {
        if let Some(link) = self.links.get_mut(&target) {
            link.state = State::Broken {
                retry_at: now + link.pause.pause(),
            };
            link.broken_since.get_or_insert(now);
        }
    }

    /// Returns streams whose pause is over; they count as connecting from now on.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<(Target, String)> {
        let mut due = Vec::new();
        for (target, link) in &mut self.links {
            if matches!(link.state, State::Broken { retry_at } if retry_at <= now) {
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
        for (target, link) in &mut self.links {
            let is_broken = link
                .broken_since
                .is_some_and(|since| now.since(since) >= after);
            if is_broken && link.told_at.is_none_or(|told| now.since(told) >= after) {
                link.told_at = Some(now);
                unreachable.push(*target);
            }
        }
        unreachable
    }
}
