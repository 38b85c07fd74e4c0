//! FLP: to which EPN it sends, and what waits there.

use super::{EpnList, Turn};
use std::collections::VecDeque;

/// Way of an FLP round the EPNs: as the ICN says, or by a turn of its own that nothing ties to those of other FLPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    own: Option<Turn>,
}

impl Way {
    /// Returns the way of a new FLP; `is_private` is [`private_iterators`](crate::scenario::Legacy::private_iterators).
    #[must_use]
    pub fn new(is_private: bool) -> Self {
        Self {
            own: is_private.then(Turn::default),
        }
    }

    /// Returns the EPN for a heartbeat that names `named`; `list` is that of the FLP.
    pub fn target(&mut self, named: u16, list: &EpnList) -> u16 {
        let own = self.own.as_mut().and_then(|turn| turn.step(list));
        own.unwrap_or(named)
    }

    /// Begins from the start, as a restarted FLP does.
    pub fn restart(&mut self) {
        *self = Self::new(self.own.is_some());
    }
}

/// Queue of a connection, bounded in messages as FairMQ's are: what comes when it is full is dropped silently.
#[derive(Clone, Debug)]
pub struct Outbox<T> {
    messages: VecDeque<T>,
    messages_max: usize,
}

impl<T> Outbox<T> {
    /// Returns an empty queue for `messages_max` messages.
    #[must_use]
    pub fn new(messages_max: usize) -> Self {
        Self {
            messages: VecDeque::new(),
            messages_max,
        }
    }

    /// Returns whether another message would be taken.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.messages.len() < self.messages_max
    }

    /// Takes `message`, or drops it if there is no room. Returns whether it was taken.
    #[must_use = "a message that was not taken is lost, and counted"]
    pub fn offer(&mut self, message: T) -> bool {
        let has_room = self.has_room();
        if has_room {
            self.messages.push_back(message);
        }
        has_room
    }

    /// Returns the message that is next.
    #[must_use]
    pub fn front(&self) -> Option<&T> {
        self.messages.front()
    }

    /// Removes the message that is next.
    pub fn pop(&mut self) -> Option<T> {
        self.messages.pop_front()
    }

    /// Returns all messages that wait, the next one first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.messages.iter()
    }

    /// Drops all messages.
    pub fn clear(&mut self) {
        self.messages.clear();
    }

    /// Returns the number of messages that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns whether no message waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_what_comes_and_keeps_what_it_has() {
        let mut outbox = Outbox::new(2);
        assert_eq!(
            [1, 2, 3].map(|message| outbox.offer(message)),
            [true, true, false]
        );
        assert_eq!(outbox.pop(), Some(1));
        assert!(outbox.offer(4));
        assert_eq!(outbox.iter().copied().collect::<Vec<_>>(), [2, 4]);
    }

    #[test]
    fn an_flp_obeys_the_icn_or_goes_its_own_way_from_the_first_epn_on() {
        let list = EpnList::all(3);
        let mut obedient = Way::new(false);
        assert_eq!([2, 0].map(|named| obedient.target(named, &list)), [2, 0]);
        let mut private = Way::new(true);
        assert_eq!([2, 2].map(|named| private.target(named, &list)), [0, 1]);
        private.restart();
        assert_eq!(private.target(2, &list), 0);
        assert_eq!(private.target(2, &EpnList::all(0)), 2, "it knows no other");
    }
}
