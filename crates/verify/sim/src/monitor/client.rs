//! Clients: what they send, and what they say that they sent.

use super::names::{Metric, SeriesName};
use super::options::{ClientOptions, Way};
use crate::dice::Dice;
use sheaf_intake::{Peer, Protocol};
use sheaf_samples::wire::line_protocol::{self, Precision, Value};
use sheaf_samples::wire::{Packer, remote_write};
use sheaf_samples::{Labels, Sample};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

/// Requests that a client keeps for an answer; beyond it the oldest is given up.
const BACKLOG_MAX: usize = 6;
/// A line that is none.
const BAD_LINE: &[u8] = b"gauge,source= value=1\n";

/// One sample as its client knows it, or a line that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Sample {
        series: SeriesName,
        at_ms: i64,
        value: i64,
    },
    Bad,
}

/// Bytes on their way, with what their client knows about them.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    pub(super) client: u16,
    pub(super) peer: Peer,
    pub(super) protocol: Protocol,
    pub(super) bytes: Vec<u8>,
    pub(super) items: Vec<Item>,
}

impl Parcel {
    /// Cuts the last line somewhere in its series, so that it is none any more.
    pub(super) fn cut(&mut self, dice: &mut Dice) {
        let body = &self.bytes[..self.bytes.len() - 1];
        let begin = body
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let line = &body[begin..];
        let series = line.iter().position(|byte| *byte == b' ');
        let length = series.unwrap_or(line.len()) as u64;
        let kept = begin + dice.range(1, length.max(1)) as usize;
        self.bytes.truncate(kept);
        if let Some(last) = self.items.last_mut() {
            *last = Item::Bad;
        }
    }
}

/// Values that a client makes, and their names.
struct Making {
    number: u16,
    items: Vec<Item>,
}

impl Making {
    fn add(&mut self, metric: Metric, number: u32, at_ms: i64, value: i64) {
        let series = SeriesName {
            client: self.number,
            metric,
            number,
        };
        self.items.push(Item::Sample {
            series,
            at_ms,
            value,
        });
    }
}

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) number: u16,
    pub(super) options: ClientOptions,
    /// How far its clock is ahead, in ms.
    pub(super) ahead_ms: i64,
    /// New series with each flush, and flushes that have them.
    pub(super) exploding: (u32, u32),
    pub(super) bad_lines: u32,
    /// Requests without an answer yet, oldest first.
    pub(super) backlog: VecDeque<Parcel>,
    /// Samples of this client on the network so far, repetitions included.
    pub(super) copies: u64,
    port: u64,
    /// Samples given to the transport by this process.
    sent: u64,
    next_burst: u32,
    next_value: i64,
    states: BTreeMap<u32, i64>,
}

impl Client {
    pub(super) fn new(number: u16, options: ClientOptions) -> Self {
        Self {
            number,
            options,
            ahead_ms: 0,
            exploding: (0, 0),
            bad_lines: 0,
            backlog: VecDeque::new(),
            copies: 0,
            port: 1000,
            sent: 0,
            next_burst: 0,
            next_value: 0,
            states: BTreeMap::new(),
        }
    }

    /// Another process in its place: counts begin again, and what it kept is gone.
    pub(super) fn restart(&mut self) {
        self.port += 1;
        self.sent = 0;
        self.backlog.clear();
    }

    pub(super) fn peer(&self) -> Peer {
        let [high, low] = self.number.to_be_bytes();
        Peer {
            address: IpAddr::V4(Ipv4Addr::new(10, 0, high, low)),
            stream: self.port,
        }
    }

    /// Name of the source that the collector gives to samples without one.
    pub(super) fn address(&self) -> String {
        self.peer().address.to_string()
    }

    /// Makes a sample of every series, at `wall_ms` of a right clock, as parcels.
    pub(super) fn flush(&mut self, wall_ms: i64, dice: &mut Dice) -> Vec<Parcel> {
        let items = self.make(wall_ms + self.ahead_ms, dice);
        match self.options.way {
            Way::Datagrams => self.pack(items, wall_ms + self.ahead_ms),
            Way::Lines => {
                let mut bytes = Vec::new();
                items.iter().for_each(|item| write(item, &mut bytes));
                vec![self.parcel(Protocol::Lines(Precision::Ns), bytes, items)]
            }
            Way::RemoteWrite => {
                let bytes = remote(&items);
                vec![self.parcel(Protocol::RemoteWrite, bytes, items)]
            }
        }
    }

    /// Keeps a request until it is answered.
    pub(super) fn keep(&mut self, request: Parcel) {
        if self.backlog.len() == BACKLOG_MAX {
            self.backlog.pop_front();
        }
        self.backlog.push_back(request);
    }

    fn make(&mut self, at_ms: i64, dice: &mut Dice) -> Vec<Item> {
        let mut making = Making {
            number: self.number,
            items: Vec::new(),
        };
        for number in 0..self.options.series {
            self.next_value += 1;
            let value = self.next_value;
            let state = self.states.entry(number).or_insert(0);
            if dice.chance(25) {
                *state += 1;
            }
            let state = *state;
            making.add(Metric::Gauge, number, at_ms, value);
            making.add(Metric::State, number, at_ms, state);
            making.add(Metric::Work, number, at_ms, value % 17);
            if number == 0 {
                making.add(Metric::Noise, number, at_ms, value);
                making.add(Metric::Old, number, at_ms, value);
            }
            // A sample of a little before, behind its successor.
            if dice.chance(10) {
                let before_ms = at_ms - i64::try_from(dice.range(1, 3000)).expect("small");
                making.add(Metric::Gauge, number, before_ms, value + 500_000);
            }
        }
        let (series, flushes) = &mut self.exploding;
        if *flushes > 0 {
            *flushes -= 1;
            for _ in 0..*series {
                self.next_burst += 1;
                making.add(Metric::Burst, self.next_burst, at_ms, 1);
            }
        }
        if self.options.way != Way::RemoteWrite {
            for _ in 0..std::mem::take(&mut self.bad_lines) {
                let at = dice.range(0, making.items.len() as u64) as usize;
                making.items.insert(at, Item::Bad);
            }
        }
        making.items
    }

    /// Packs lines into datagrams; the last one has the count of all samples, its own included.
    fn pack(&mut self, mut items: Vec<Item>, at_ms: i64) -> Vec<Parcel> {
        let count = self.sent + items.len() as u64 + 1;
        self.sent = count;
        items.push(Item::Sample {
            series: SeriesName {
                client: self.number,
                metric: Metric::Sent,
                number: 0,
            },
            at_ms,
            value: i64::try_from(count).expect("a count of a short life"),
        });
        let mut packer = Packer::new(self.options.datagram_bytes);
        let mut packed: Vec<(Vec<u8>, usize)> = Vec::new();
        let mut line = Vec::new();
        for item in &items {
            line.clear();
            write(item, &mut line);
            let fits = packer.push(&line, |bytes, lines| packed.push((bytes.to_vec(), lines)));
            assert!(fits, "a line of {} bytes is too long", line.len());
        }
        packer.flush(|bytes, lines| packed.push((bytes.to_vec(), lines)));
        let mut rest = items.into_iter();
        let protocol = Protocol::Lines(Precision::Ns);
        packed
            .into_iter()
            .map(|(bytes, lines)| {
                let items = rest.by_ref().take(lines).collect();
                self.parcel(protocol, bytes, items)
            })
            .collect()
    }

    fn parcel(&self, protocol: Protocol, bytes: Vec<u8>, items: Vec<Item>) -> Parcel {
        Parcel {
            client: self.number,
            peer: self.peer(),
            protocol,
            bytes,
            items,
        }
    }
}

fn write(item: &Item, out: &mut Vec<u8>) {
    let Item::Sample {
        series,
        at_ms,
        value,
    } = item
    else {
        return out.extend_from_slice(BAD_LINE);
    };
    let tags = series.tags();
    let tags = tags.iter().map(|(name, value)| (*name, value.as_str()));
    let field = [("value", Value::Int(*value))];
    let at = Some((*at_ms, Precision::Ns));
    line_protocol::write(out, series.metric.name(), tags, field, at)
        .expect("names without special characters");
}

fn remote(items: &[Item]) -> Vec<u8> {
    let series: Vec<(Labels, [Sample; 1])> = items
        .iter()
        .filter_map(|item| {
            let Item::Sample {
                series,
                at_ms,
                value,
            } = *item
            else {
                return None;
            };
            let sample = Sample {
                at_ms,
                value: value as f64,
            };
            Some((super::names::OutName::Same(series).labels(), [sample]))
        })
        .collect();
    remote_write::encode(
        series
            .iter()
            .map(|(labels, samples)| (labels, &samples[..])),
        &[],
    )
}
