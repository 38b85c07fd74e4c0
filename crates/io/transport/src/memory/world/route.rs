//! The way from one end of a connection to the other, and what can happen on it.

use super::{At, Death, Parcel, What, World};
use crate::memory::Faults;
use crate::transport::{CloseReason, Event, Frame};
use sheaf_protocol::Timestamp;
use std::io::ErrorKind;
use std::time::Duration;

impl World {
    /// Breaks all connections between two endpoints.
    pub(crate) fn reset(&mut self, a: &str, b: &str) {
        let (Some(a), Some(b)) = (self.find(a), self.find(b)) else {
            return;
        };
        for link in 0..self.links.len() {
            let ends = [0, 1].map(|side| self.links[link][side].endpoint);
            if ends != [a, b] && ends != [b, a] {
                continue;
            }
            for side in [0, 1] {
                let at = At { link, side };
                let end = self.end(at);
                if let Some(conn) = end.conn.filter(|_| end.open) {
                    let endpoint = end.endpoint;
                    self.totals.resets += 1;
                    let closed = self.closed(at, conn, CloseReason::Reset);
                    self.add_event(endpoint, closed);
                }
            }
        }
    }

    /// Moves what is due to where it is going.
    pub(crate) fn deliver(&mut self) {
        while let Some(entry) = self.under_way.first_entry()
            && entry.key().0 <= self.now
        {
            let parcel = entry.remove();
            let to = self.end(parcel.to).endpoint;
            if !matches!(parcel.what, What::TimedOut) && self.is_cut(parcel.to) {
                self.vanish(&parcel);
            } else if let Some(death) = self.endpoints[to].death {
                self.answer_for_the_dead(&parcel, death);
                self.vanish(&parcel);
            } else {
                self.endpoints[to].arrived.push_back(parcel);
                self.notify(to);
            }
        }
    }

    /// A machine whose process died answers with a reset; one that is gone answers nothing, until it is back.
    pub(super) fn answer_for_the_dead(&mut self, parcel: &Parcel, death: Death) {
        let here = self.end(parcel.to).endpoint;
        // A machine that is up again answers, whatever has become of the process that was started on it.
        let latest = self.names.get(&self.endpoints[here].name).copied();
        let back = latest.is_some_and(|latest| {
            latest != here && self.endpoints[latest].death != Some(Death::Silent)
        });
        if death == Death::Silent && !back {
            return;
        }
        match parcel.what {
            What::Open(_) => {
                let reason = CloseReason::Unreachable(ErrorKind::ConnectionRefused);
                self.transmit(parcel.to.other(), What::Gone(reason));
            }
            What::Frame(..) | What::Damaged | What::End => {
                self.transmit(parcel.to.other(), What::Gone(CloseReason::Reset));
            }
            What::Stands | What::Gone(_) | What::TimedOut => {}
        }
    }

    /// Sends a frame to `to`, or does to it what the dice say.
    pub(super) fn transmit_frame(&mut self, to: At, frame: Frame, queued_bytes: u64) {
        let Faults {
            loss,
            duplicate,
            reorder,
            reset,
            late_max,
            corrupt,
            ..
        } = self.faults;
        // A network without this fault draws the same numbers as before there was such a fault.
        if corrupt > 0.0 && self.dice.happens(corrupt) {
            return self.transmit_damaged(to, frame, queued_bytes);
        }
        let what = What::Frame(frame, queued_bytes);
        if self.dice.happens(reset) {
            self.totals.resets += 1;
            self.release(&Parcel { to, what });
            self.transmit(to, What::Gone(CloseReason::Reset));
            self.transmit(to.other(), What::Gone(CloseReason::Reset));
            return;
        }
        if self.dice.happens(loss) {
            self.vanish(&Parcel { to, what });
            return;
        }
        if self.dice.happens(duplicate)
            && let What::Frame(frame, _) = &what
        {
            self.totals.duplicated += 1;
            let second = What::Frame(frame.clone(), 0);
            let due = self.now + self.delay() + self.dice.between(Duration::ZERO, late_max);
            self.schedule(due, Parcel { to, what: second });
        }
        if self.dice.happens(reorder) {
            self.totals.reordered += 1;
            let due = self.now + self.delay() + self.dice.between(Duration::ZERO, late_max);
            self.schedule(due, Parcel { to, what });
            return;
        }
        self.transmit(to, what);
    }

    /// Flips a bit: in the body if there is one, else in the head.
    fn transmit_damaged(&mut self, to: At, mut frame: Frame, queued_bytes: u64) {
        self.totals.corrupted += 1;
        if frame.body.is_empty() {
            let what = What::Frame(frame, queued_bytes);
            self.release(&Parcel { to, what });
            self.transmit(to, What::Damaged);
            return;
        }
        let at = self.dice.next() as usize % (frame.body.len() * 8);
        let mut body = frame.body.to_vec();
        body[at / 8] ^= 1 << (at % 8);
        frame.body = body.into();
        self.corrupted.push(frame.head.clone());
        self.transmit(to, What::Frame(frame, queued_bytes));
    }

    /// Sends to `to`, behind all that was sent there in order.
    pub(super) fn transmit(&mut self, to: At, what: What) {
        let due = self.now + self.delay();
        let from = self.end_mut(to.other());
        from.last_due = from.last_due.max(due);
        let due = from.last_due;
        let parcel = Parcel { to, what };
        if self.is_cut(to) {
            self.vanish(&parcel);
        } else {
            self.schedule(due, parcel);
        }
    }

    pub(super) fn schedule(&mut self, due: Timestamp, parcel: Parcel) {
        self.sent += 1;
        self.under_way.insert((due, self.sent), parcel);
    }

    fn delay(&mut self) -> Duration {
        self.dice
            .between(self.faults.delay_min, self.faults.delay_max)
    }

    pub(super) fn vanish(&mut self, parcel: &Parcel) {
        self.totals.vanished += u64::from(matches!(parcel.what, What::Frame(..)));
        self.release(parcel);
    }

    /// A frame is no longer on its way: its sender has room again.
    pub(super) fn release(&mut self, parcel: &Parcel) {
        let What::Frame(_, queued_bytes) = parcel.what else {
            return;
        };
        let from = parcel.to.other();
        self.end_mut(from).queued_bytes -= queued_bytes;
        let end = self.end(from);
        let (endpoint, open) = (end.endpoint, end.open && !end.finishing);
        if let (Some(bytes), Some(conn)) = (end.refused, end.conn)
            && open
            && self.has_room(from, bytes)
        {
            self.end_mut(from).refused = None;
            self.add_event(endpoint, Event::Writable { conn });
        }
    }

    fn is_cut(&self, to: At) -> bool {
        if self.cuts.is_empty() {
            return false;
        }
        let name = |at: At| self.endpoints[self.end(at).endpoint].name_id;
        self.cuts.contains(&(name(to.other()), name(to)))
    }
}
