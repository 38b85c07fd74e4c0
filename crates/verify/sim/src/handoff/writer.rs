//! A writer node: receipts, a queue to its files, and what stays of it when it dies.

use super::net::{Conn, Net, ToEpn, ToWriter};
use crate::dice::Dice;
use sheaf_protocol::control::{StreamFate, WriterPulse, WriterWelcome, WrittenTf};
use sheaf_protocol::{EpnId, Incarnation, Target};
use sheaf_write::{CopyRow, HandoffId, ReceiptAction, Receipts, Received};
use std::collections::{BTreeMap, VecDeque};

/// Period of pulses, in ms.
const PULSE_MS: u64 = 50;
/// Period at which moves that are not settled are repeated, in ms.
const REPEAT_MS: u64 = 1_000;
/// Rows of published TFs that are kept of each EPN.
const PUBLISHED_MAX: usize = 64;
/// Bytes of the window of each EPN.
pub(super) const WINDOW_BYTES: u64 = 1_000;

/// Content of the disks of a writer: how often each stream has a TF, and rows.
#[derive(Debug, Default)]
pub(super) struct OnDisk {
    pub(super) files: BTreeMap<HandoffId, Vec<u32>>,
    pub(super) rows: BTreeMap<HandoffId, CopyRow>,
}

/// A TF on its way to the files.
#[derive(Debug)]
struct Queued {
    id: HandoffId,
    may_be_here: bool,
    /// When it is written, in ms.
    at: u64,
}

/// Life of a writer.
#[derive(Debug)]
struct Life {
    receipts: Receipts<u64>,
    queue: VecDeque<Queued>,
    /// Orders that wait for the catalogue.
    orders: VecDeque<ReceiptAction<u64>>,
    pulsed_at: u64,
    repeated_at: u64,
}

/// A writer.
#[derive(Debug)]
pub(super) struct Writer {
    index: u16,
    streams: u8,
    pub(super) disk: OnDisk,
    life: Option<Life>,
    incarnation: u64,
    /// Until when it is dead, hangs, is full, or cannot write its catalogue, in ms.
    pub(super) dead_until: u64,
    pub(super) hangs_until: u64,
    pub(super) full_until: u64,
    pub(super) fails_until: u64,
    /// Set when it is to die in the middle of the next TF, and for how long it is dead then.
    pub(super) dies_writing: Option<u64>,
    window_tfs: u32,
}

impl Writer {
    pub(super) fn new(index: u16, streams: u8, window_tfs: u32) -> Self {
        Self {
            index,
            streams,
            disk: OnDisk::default(),
            life: None,
            incarnation: 0,
            dead_until: 0,
            hangs_until: 0,
            full_until: 0,
            fails_until: 0,
            dies_writing: None,
            window_tfs,
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.life.is_some()
    }

    /// Loses everything but its disks; alive again at `until` ms.
    pub(super) fn die(&mut self, until: u64) {
        self.life = None;
        self.dead_until = until;
        self.hangs_until = 0;
        self.dies_writing = None;
    }

    /// Whether its memory and its disks have nothing left to do, and no move is left to be settled.
    pub(super) fn is_idle(&self) -> bool {
        self.life.as_ref().is_some_and(|life| {
            let receipts = &life.receipts;
            life.queue.is_empty()
                && life.orders.is_empty()
                && receipts.writing() == 0
                && receipts.moves().is_empty()
        })
    }

    /// Does what is due at `now` ms. Returns for how long it dies, if it dies now.
    pub(super) fn turn(
        &mut self,
        now: u64,
        net: &mut Net,
        dice: &mut Dice,
        (delay, write): (u64, u64),
    ) -> Option<u64> {
        if now < self.dead_until || now < self.hangs_until {
            return None;
        }
        if self.life.is_none() {
            self.incarnation += 1;
            let rows = self.disk.rows.clone();
            self.life = Some(Life {
                receipts: Receipts::new(rows, PUBLISHED_MAX),
                queue: VecDeque::new(),
                orders: VecDeque::new(),
                pulsed_at: 0,
                repeated_at: 0,
            });
        }
        let conns = net
            .conns
            .iter()
            .filter(|(_, conn)| conn.writer == self.index);
        let conns: Vec<(u64, Target)> = conns.map(|(id, conn)| (*id, target_of(conn))).collect();
        for (conn, epn) in &conns {
            for message in net.arrived(*conn, now) {
                self.handle(now, *conn, *epn, message, net, dice, (delay, write));
            }
        }
        let died = self.write(now);
        if died.is_some() {
            return died;
        }
        self.act(now, net, dice, delay);
        self.pulse(now, &conns, net, dice, delay);
        None
    }

    #[expect(clippy::too_many_arguments, reason = "the world of a writer")]
    fn handle(
        &mut self,
        now: u64,
        conn: u64,
        epn: Target,
        message: ToWriter,
        net: &mut Net,
        dice: &mut Dice,
        (delay, write): (u64, u64),
    ) {
        let Some(life) = &mut self.life else {
            return;
        };
        let at = |dice: &mut Dice| now + dice.range(0, delay);
        match message {
            ToWriter::Hello => {
                let welcome = WriterWelcome {
                    incarnation: Incarnation(self.incarnation),
                    window_bytes: WINDOW_BYTES,
                    window_tfs: self.window_tfs,
                    pulse_ns: PULSE_MS * 1_000_000,
                };
                net.carry_to_epn(conn, at(dice), ToEpn::Welcome(welcome));
                net.carry_to_epn(conn, at(dice), ToEpn::Moves(life.receipts.moves()));
                let held = life.receipts.held_before(epn);
                net.carry_to_epn(conn, at(dice), ToEpn::Held(held, true));
            }
            ToWriter::Record(record) => {
                let may_be_here = match life.receipts.handle_record(conn, epn, &record, Vec::new) {
                    Received::Write => false,
                    Received::WriteMissing => true,
                    Received::Known | Received::Stale => return,
                };
                life.queue.push_back(Queued {
                    id: HandoffId::of(&record.copy),
                    may_be_here,
                    at: now + dice.range(0, write),
                });
            }
            ToWriter::Void(copies) => {
                for copy in &copies {
                    life.receipts.handle_void(conn, copy);
                }
            }
            ToWriter::Settled(moves) => life.receipts.handle_settled(&moves),
            ToWriter::Publish(copy) => life.receipts.handle_publish(conn, &copy),
        }
    }

    /// Writes TFs that are due, in their order, unless the disks are full or rows wait. Returns for how long the writer
    /// dies, if it does so in the middle of one.
    fn write(&mut self, now: u64) -> Option<u64> {
        let life = self.life.as_mut()?;
        let is_row = |order: &ReceiptAction<u64>| matches!(order, ReceiptAction::Keep { .. });
        let streams = usize::from(self.streams);
        loop {
            // Rows of what was taken come first.
            while let Some(order) = life.receipts.poll() {
                life.orders.push_back(order);
            }
            let is_blocked =
                now < self.full_until || now < self.fails_until && life.orders.iter().any(is_row);
            let is_due = life.queue.front().is_some_and(|queued| queued.at <= now);
            if is_blocked || !is_due {
                return None;
            }
            for order in &life.orders {
                if let ReceiptAction::Keep { id, row } = order {
                    keep(&mut self.disk, *id, row.as_ref());
                }
            }
            let queued = life.queue.pop_front()?;
            let written = self
                .disk
                .files
                .entry(queued.id)
                .or_insert_with(|| vec![0; streams]);
            let dies_behind = self.dies_writing.map(|_| streams / 2);
            for (at, count) in written.iter_mut().enumerate() {
                if dies_behind == Some(at) {
                    break;
                }
                if !queued.may_be_here || *count == 0 {
                    *count += 1;
                }
            }
            if let Some(ms) = self.dies_writing.take() {
                return Some(ms);
            }
            let fate = |at: usize| StreamFate {
                stream: at.to_string(),
                ..StreamFate::default()
            };
            let fates = (0..streams).map(fate).collect();
            life.receipts.handle_written(queued.id, fates);
        }
    }

    /// Carries out orders in their sequence, as far as the catalogue can be written.
    fn act(&mut self, now: u64, net: &mut Net, dice: &mut Dice, delay: u64) {
        let Some(life) = &mut self.life else {
            return;
        };
        loop {
            while let Some(order) = life.receipts.poll() {
                life.orders.push_back(order);
            }
            let at = now + dice.range(0, delay);
            match life.orders.front() {
                None => return,
                Some(ReceiptAction::Keep { .. }) if now < self.fails_until => return,
                Some(_) => {}
            }
            match life.orders.pop_front() {
                Some(ReceiptAction::Keep { id, row }) => keep(&mut self.disk, id, row.as_ref()),
                Some(ReceiptAction::Written { to, tf }) => {
                    let next = net.conns.iter().find_map(|(conn, it)| {
                        let is_mine = it.writer == self.index && *conn != to;
                        let id = HandoffId::of(&tf.copy);
                        let held = life.receipts.one_held_before(id, target_of(it));
                        Some((*conn, held.filter(|_| is_mine)?))
                    });
                    if let Some((conn, held)) = next {
                        net.carry_to_epn(conn, at, ToEpn::Held(vec![held], false));
                    }
                    net.carry_to_epn(to, at, ToEpn::Written(WrittenTf { ..tf }));
                }
                Some(ReceiptAction::Voided { to, copy }) => {
                    net.carry_to_epn(to, at, ToEpn::Voided(copy));
                }
                Some(ReceiptAction::Published { to, copy }) => {
                    net.carry_to_epn(to, at, ToEpn::Published(copy));
                }
                Some(ReceiptAction::Recall { id }) => {
                    let place = life.queue.iter().position(|queued| queued.id == id);
                    if let Some(place) = place {
                        life.queue.remove(place);
                        life.receipts.handle_returned(id);
                    }
                }
                None => {}
            }
        }
    }

    fn pulse(
        &mut self,
        now: u64,
        conns: &[(u64, Target)],
        net: &mut Net,
        dice: &mut Dice,
        delay: u64,
    ) {
        let Some(life) = &mut self.life else {
            return;
        };
        if now < life.pulsed_at + PULSE_MS {
            return;
        }
        life.pulsed_at = now;
        let pulse = WriterPulse {
            queued_tfs: life.queue.len() as u64,
            queued_bytes: 10 * life.queue.len() as u64,
            capacity_bytes: 2 * WINDOW_BYTES,
            is_full: now < self.full_until || now < self.fails_until,
            is_leaving: false,
            run_delay_ns: 0,
        };
        for (conn, _) in conns {
            net.carry_to_epn(*conn, now + dice.range(0, delay), ToEpn::Pulse(pulse));
        }
        let moves = life.receipts.moves();
        if now >= life.repeated_at + REPEAT_MS && !moves.is_empty() {
            life.repeated_at = now;
            for (conn, _) in conns {
                let at = now + dice.range(0, delay);
                net.carry_to_epn(*conn, at, ToEpn::Moves(moves.clone()));
            }
        }
    }
}

fn target_of(conn: &Conn) -> Target {
    Target {
        epn: EpnId(conn.epn),
        incarnation: Incarnation(conn.life),
    }
}

fn keep(disk: &mut OnDisk, id: HandoffId, row: Option<&CopyRow>) {
    match row {
        Some(row) => disk.rows.insert(id, row.clone()),
        None => disk.rows.remove(&id),
    };
}
