//! One loop of data: an endpoint in a thread of its own, which carries out orders and tells what happens.

use super::line::Line;
use super::passage::{News, Order, Passage};

use crate::tcp::Tcp;
use crate::transport::{CloseReason, ConnId, Event, Frame, SendError, Transport as _};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// Loop of data.
pub(super) struct Worker {
    tcp: Tcp,
    passage: Arc<Passage>,
    served: FxHashMap<ConnId, Served>,
    /// Connections of which not all bytes have left that were taken.
    owing: Vec<ConnId>,
    news: Vec<News>,
    gone: Vec<ConnId>,
}

/// Connection that the loop serves.
struct Served {
    line: Arc<Line>,
    /// Bytes of all frames that were ordered.
    taken_bytes: u64,
    /// Frames that the queue of the endpoint has no room for: the caller counts without the frames that the transport
    /// itself sends.
    waiting: VecDeque<Frame>,
    /// Whether the connection is to be finished when these are queued.
    finishes: bool,
    is_owing: bool,
}

impl Served {
    fn new(line: Arc<Line>) -> Self {
        Self {
            line,
            taken_bytes: 0,
            waiting: VecDeque::new(),
            finishes: false,
            is_owing: false,
        }
    }

    /// Queues what waits, as far as there is room.
    fn advance(&mut self, conn: ConnId, tcp: &mut Tcp) {
        while let Some(frame) = self.waiting.pop_front() {
            if let Err(SendError::Full(frame)) = tcp.send(conn, frame) {
                self.waiting.push_front(frame);
                return;
            }
        }
        if std::mem::take(&mut self.finishes) {
            tcp.finish(conn);
        }
    }

    /// Returns bytes of ordered frames that have left, or never will.
    fn left_bytes(&self, queued_bytes: u64) -> u64 {
        let waiting: u64 = self.waiting.iter().map(Frame::wire_bytes).sum();
        self.taken_bytes.saturating_sub(waiting + queued_bytes)
    }
}

impl Worker {
    pub(super) fn new(tcp: Tcp, passage: Arc<Passage>) -> Self {
        Self {
            tcp,
            passage,
            served: FxHashMap::default(),
            owing: Vec::new(),
            news: Vec::new(),
            gone: Vec::new(),
        }
    }

    /// Runs until the endpoint ends.
    pub(super) fn run(mut self) {
        let passage = Arc::clone(&self.passage);
        // A loop that panics is an endpoint that fails: connections that say nothing any more would be worse.
        let mut ended = Ended(&passage, true);
        if let Err(error) = self.serve() {
            passage.fail(error);
        }
        ended.1 = false;
    }

    fn serve(&mut self) -> io::Result<()> {
        let (mut events, mut orders) = (Vec::new(), Vec::new());
        while !self.passage.is_over() {
            self.tcp.poll(&mut events, None)?;
            self.passage.take_orders(&mut orders);
            for order in orders.drain(..) {
                self.carry_out(order);
            }
            for event in events.drain(..) {
                self.note(event);
            }
            self.count_left();
            self.part();
            self.passage.set_stats(self.tcp.stats());
            self.passage.tell(&mut self.news);
        }
        Ok(())
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Connect { conn, peer, line } => {
                self.served.insert(conn, Served::new(line));
                if let Err(error) = self.tcp.connect_as(conn, peer, true) {
                    let reason = CloseReason::Io(error.kind());
                    let event = Event::Closed { conn, reason };
                    self.news.push(News::Event { conn, event });
                    self.gone.push(conn);
                }
            }
            Order::Adopt { dealt, line } => {
                self.served.insert(dealt.conn, Served::new(line));
                self.tcp.adopt(dealt);
            }
            Order::Admit {
                conn,
                head_bytes_max,
            } => self.tcp.admit(conn, head_bytes_max),
            Order::Send { conn, frame } => {
                let Some(served) = self.served.get_mut(&conn) else {
                    return;
                };
                served.taken_bytes += frame.wire_bytes();
                if !std::mem::replace(&mut served.is_owing, true) {
                    self.owing.push(conn);
                }
                if !served.waiting.is_empty() {
                    served.waiting.push_back(frame);
                } else if let Err(SendError::Full(frame)) = self.tcp.send(conn, frame) {
                    served.waiting.push_back(frame);
                }
            }
            Order::Finish { conn } => {
                if let Some(served) = self.served.get_mut(&conn) {
                    served.finishes = true;
                    served.advance(conn, &mut self.tcp);
                }
            }
            Order::EndWithPeer { conn } => self.tcp.end_with_peer(conn),
            Order::Close { conn } => self.tcp.close(conn),
            Order::Lend(lendable) => self.tcp.lend_out_of(lendable),
            Order::CloseNotice(close_notice) => self.tcp.set_close_notice(close_notice),
        }
    }

    fn note(&mut self, event: Event) {
        let conn = match &event {
            Event::Woken => return,
            Event::Writable { conn } => {
                if let Some(served) = self.served.get_mut(conn) {
                    served.advance(*conn, &mut self.tcp);
                }
                return;
            }
            Event::Accepted { conn, .. } | Event::Connected { conn } => {
                if let Some(identity) = self.tcp.identity(*conn) {
                    self.news.push(News::Proved {
                        conn: *conn,
                        identity: Box::new(identity.clone()),
                    });
                }
                *conn
            }
            Event::Received { conn, .. } | Event::Closed { conn, .. } => *conn,
        };
        self.news.push(News::Event { conn, event });
    }

    /// Tells the caller how much of its frames has left.
    fn count_left(&mut self) {
        let (tcp, served, news) = (&self.tcp, &mut self.served, &mut self.news);
        self.owing.retain(|conn| {
            let Some(served) = served.get_mut(conn) else {
                return false;
            };
            let left = served.left_bytes(tcp.queued_bytes(*conn));
            if served.line.set_left(left) {
                news.push(News::Left { conn: *conn });
            }
            served.is_owing = left < served.taken_bytes;
            served.is_owing
        });
    }

    /// Forgets connections that have ended, and passes on which peers were turned away.
    fn part(&mut self) {
        let asking = self.tcp.take_asking().into_iter();
        self.news
            .extend(asking.map(|conn| News::PeerEnded { conn }));
        self.tcp.take_gone(&mut self.gone);
        for conn in self.gone.drain(..) {
            self.served.remove(&conn);
            self.news.push(News::Gone { conn });
        }
        let refusals = self.tcp.take_refusals();
        self.news.extend(refusals.into_iter().map(News::Refused));
    }
}

/// End of a loop, told to the caller if it is a panic.
struct Ended<'a>(&'a Passage, bool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if self.1 {
            self.0.fail(io::Error::other("a loop of data has panicked"));
        }
    }
}
