//! Streams between EPNs and writers: messages in their order, each with a delay; what is on its way is lost at the end.

use sheaf_protocol::control::{
    HeldTf, Move, Record, TfCopy, WriterPulse, WriterWelcome, WrittenTf,
};
use std::collections::{BTreeMap, VecDeque};

/// Message to a writer.
#[derive(Clone, Debug)]
pub(super) enum ToWriter {
    Hello,
    Record(Record),
    Void(Vec<TfCopy>),
    Settled(Vec<Move>),
    Publish(TfCopy),
}

/// Message to an EPN.
#[derive(Clone, Debug)]
pub(super) enum ToEpn {
    Welcome(WriterWelcome),
    Pulse(WriterPulse),
    Written(WrittenTf),
    Voided(TfCopy),
    Moves(Vec<Move>),
    Published(TfCopy),
    /// Whether these are all.
    Held(Vec<HeldTf>, bool),
}

/// Stream of an EPN to a writer.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) epn: u16,
    pub(super) writer: u16,
    /// Life of the EPN.
    pub(super) life: u64,
    /// Messages with the ms at which they arrive.
    pub(super) to_writer: VecDeque<(u64, ToWriter)>,
    pub(super) to_epn: VecDeque<(u64, ToEpn)>,
}

/// All streams.
#[derive(Debug, Default)]
pub(super) struct Net {
    pub(super) conns: BTreeMap<u64, Conn>,
    next: u64,
}

impl Net {
    pub(super) fn open(&mut self, epn: u16, life: u64, writer: u16) -> u64 {
        let conn = self.next;
        self.next += 1;
        let both = Conn {
            epn,
            writer,
            life,
            to_writer: VecDeque::new(),
            to_epn: VecDeque::new(),
        };
        self.conns.insert(conn, both);
        conn
    }

    /// Sends a message that arrives at `at` ms, or behind the one before.
    pub(super) fn carry_to_writer(&mut self, conn: u64, at: u64, message: ToWriter) {
        if let Some(conn) = self.conns.get_mut(&conn) {
            let at = conn.to_writer.back().map_or(at, |(last, _)| at.max(*last));
            conn.to_writer.push_back((at, message));
        }
    }

    /// As [`to_writer`](Self::to_writer), to the EPN.
    pub(super) fn carry_to_epn(&mut self, conn: u64, at: u64, message: ToEpn) {
        if let Some(conn) = self.conns.get_mut(&conn) {
            let at = conn.to_epn.back().map_or(at, |(last, _)| at.max(*last));
            conn.to_epn.push_back((at, message));
        }
    }

    /// Takes the messages to a writer that have arrived by `now`.
    pub(super) fn arrived(&mut self, conn: u64, now: u64) -> Vec<ToWriter> {
        let Some(conn) = self.conns.get_mut(&conn) else {
            return Vec::new();
        };
        take_until(&mut conn.to_writer, now)
    }

    /// Takes the messages to an EPN that have arrived by `now`.
    pub(super) fn answers(&mut self, conn: u64, now: u64) -> Vec<ToEpn> {
        let Some(conn) = self.conns.get_mut(&conn) else {
            return Vec::new();
        };
        take_until(&mut conn.to_epn, now)
    }

    /// Closes the streams for which `is_over` holds, and returns them.
    pub(super) fn close(&mut self, is_over: impl Fn(&Conn) -> bool) -> Vec<(u64, Conn)> {
        let over = self.conns.iter().filter(|(_, conn)| is_over(conn));
        let over: Vec<u64> = over.map(|(conn, _)| *conn).collect();
        let over = over.into_iter();
        over.filter_map(|conn| Some((conn, self.conns.remove(&conn)?)))
            .collect()
    }
}

fn take_until<M>(queue: &mut VecDeque<(u64, M)>, now: u64) -> Vec<M> {
    let mut taken = Vec::new();
    while queue.front().is_some_and(|(at, _)| *at <= now) {
        taken.extend(queue.pop_front().map(|(_, message)| message));
    }
    taken
}
