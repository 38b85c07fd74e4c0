//! Subscriptions of one peer.

use crate::error::PeerError;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Topics of one peer at most.
const TOPICS_MAX: usize = 1024;
/// Bytes of all topics of one peer at most.
const BYTES_MAX: usize = 64 << 10;

/// Topics, each as often as it was subscribed to: it is cancelled as often.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    topics: BTreeMap<Bytes, u32>,
    bytes: usize,
}

impl Subscriptions {
    /// One more subscription to what begins with `topic`.
    pub(crate) fn add(&mut self, topic: &[u8]) -> Result<(), PeerError> {
        if let Some(times) = self.topics.get_mut(topic) {
            *times = times.saturating_add(1);
            return Ok(());
        }
        if self.topics.len() >= TOPICS_MAX || self.bytes + topic.len() > BYTES_MAX {
            return Err(PeerError::Subscriptions {
                topics: TOPICS_MAX,
                bytes: BYTES_MAX,
            });
        }
        self.bytes += topic.len();
        self.topics.insert(Bytes::copy_from_slice(topic), 1);
        Ok(())
    }

    /// One less. What was never subscribed to is passed over, as libzmq does.
    pub(crate) fn cancel(&mut self, topic: &[u8]) {
        let Some(times) = self.topics.get_mut(topic) else {
            return;
        };
        *times -= 1;
        if *times == 0 {
            self.topics.remove(topic);
            self.bytes -= topic.len();
        }
    }

    /// Returns whether a message whose first part is `part` is wanted.
    pub(crate) fn want(&self, part: &[u8]) -> bool {
        self.topics.keys().any(|topic| part.starts_with(topic))
    }

    /// Returns whether anything is wanted.
    pub(crate) fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// Returns the topics, once each.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &Bytes> {
        self.topics.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_a_prefix_and_counts() {
        let mut wants = Subscriptions::default();
        assert!(!wants.want(b"a"));
        wants.add(b"ab").unwrap();
        wants.add(b"ab").unwrap();
        assert!(wants.want(b"abc") && !wants.want(b"a") && !wants.want(b""));
        wants.cancel(b"ab");
        wants.cancel(b"x");
        assert!(wants.want(b"ab"));
        wants.cancel(b"ab");
        assert!(wants.is_empty() && !wants.want(b"ab"));
        wants.add(b"").unwrap();
        assert!(wants.want(b""));
    }

    #[test]
    fn topics_are_bounded() {
        let mut wants = Subscriptions::default();
        for topic in 0..TOPICS_MAX {
            wants.add(&topic.to_le_bytes()).unwrap();
        }
        assert!(wants.add(b"one more").is_err());
        let mut wants = Subscriptions::default();
        wants.add(&vec![0; BYTES_MAX]).unwrap();
        assert!(wants.add(b"x").is_err());
    }
}
