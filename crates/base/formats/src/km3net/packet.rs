//! Raw UDP packets of the front-end boards, as a recorder stores them: each with its length in front.

use crate::fault::{FaultKind, Findings, NoteKind};
use crate::fields::{array, u32_be, u32_le};
use crate::view::View;
use std::collections::BTreeMap;

/// Content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PacketKind {
    /// `TTDC`: hits of the light sensors.
    Optical,
    /// `TAES`: samples of the hydrophone.
    Acoustic,
    /// `TMCH`: monitoring.
    Monitoring,
}

impl PacketKind {
    /// Returns the four letters in the packet.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Optical => "TTDC",
            Self::Acoustic => "TAES",
            Self::Monitoring => "TMCH",
        }
    }

    fn from_bytes(bytes: [u8; 4]) -> Option<Self> {
        let all = [Self::Optical, Self::Acoustic, Self::Monitoring];
        all.into_iter().find(|kind| kind.name().as_bytes() == bytes)
    }
}

/// One UDP packet, borrowed from the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Byte of the input where the packet begins, with its length field.
    pub offset: usize,
    /// The whole packet, with its length field of 4 bytes.
    pub bytes: &'a [u8],
    /// Content of the packet.
    pub kind: PacketKind,
    /// The run.
    pub run: u32,
    /// Number of the packet within its module and time stamp, from 0.
    pub sequence: u32,
    /// Start of its time slice: seconds of UTC, or since the board started.
    pub utc_s: u32,
    /// Ticks of 16 ns within that second.
    pub ticks: u32,
    /// The module that sent the packet.
    pub module: u32,
}

const PREFIX: usize = 4;
const HEADER: usize = 40;
const TICKS_PER_S: u64 = 62_500_000;
const TICKS_PER_SLICE: u64 = TICKS_PER_S / 10;

/// Fields of the header of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketHead {
    pub(crate) offset: usize,
    /// Bytes of the packet, its length field included.
    pub(crate) bytes: usize,
    pub(crate) kind: PacketKind,
    pub(crate) run: u32,
    pub(crate) sequence: u32,
    pub(crate) utc_s: u32,
    pub(crate) ticks: u32,
    pub(crate) module: u32,
}

impl PacketHead {
    fn decode(offset: usize, bytes: usize, head: &[u8]) -> Option<Self> {
        let udp = head.get(PREFIX..)?;
        Some(Self {
            offset,
            bytes,
            kind: PacketKind::from_bytes(array(udp, 0)?)?,
            run: u32_be(udp, 4)?,
            sequence: u32_be(udp, 8)?,
            utc_s: u32_be(udp, 12)?,
            ticks: u32_be(udp, 16)?,
            module: u32_be(udp, 20)?,
        })
    }

    /// Returns the bytes of the packet as it came over the network.
    pub(crate) fn udp_bytes(&self) -> usize {
        self.bytes.saturating_sub(PREFIX)
    }
}

impl<'a> Packet<'a> {
    /// Returns the packet as it came over the network, without the length in front.
    #[must_use]
    pub fn udp(&self) -> &'a [u8] {
        &self.bytes[PREFIX..]
    }

    /// Returns the time slice of 100 ms that the packet belongs to, counted from the origin of its clock.
    #[must_use]
    pub fn slice(&self) -> u64 {
        (u64::from(self.utc_s) * TICKS_PER_S + u64::from(self.ticks)) / TICKS_PER_SLICE
    }
}

/// Packets of an input; gaps in their sequences are noted.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    bytes: &'a [u8],
    walk: PacketWalk,
}

/// Place of a walk over packets, and what came last.
#[derive(Clone, Debug, Default)]
pub(crate) struct PacketWalk {
    at: usize,
    /// Time and sequence number of the last packet of each module and kind.
    last: BTreeMap<(u32, PacketKind), (u32, u32, u32)>,
}

impl<'a> Packets<'a> {
    /// Returns the packets in `bytes`, which begins with the length of one.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            walk: PacketWalk::default(),
        }
    }

    /// Returns whether `bytes` begin with a packet.
    #[must_use]
    pub fn are_at_start_of(bytes: &[u8]) -> bool {
        array(bytes, PREFIX)
            .and_then(PacketKind::from_bytes)
            .is_some()
    }

    /// Returns the next packet that can be read. One of an unknown type is reported and passed over, if a packet or the
    /// end of the input follows it; other damage ends the walk.
    pub fn next_good(&mut self, findings: &mut Findings) -> Option<Packet<'a>> {
        let mut view = self.bytes;
        let head = self.walk.next_good(&mut view, findings)?;
        Some(Packet {
            offset: head.offset,
            bytes: self.bytes.get(head.offset..head.offset + head.bytes)?,
            kind: head.kind,
            run: head.run,
            sequence: head.sequence,
            utc_s: head.utc_s,
            ticks: head.ticks,
            module: head.module,
        })
    }
}

/// Modules whose packets are counted: what has more is no detector.
const MODULES_MAX: usize = 1 << 20;

impl PacketWalk {
    /// Returns the next packet of `view` that can be read.
    pub(crate) fn next_good(
        &mut self,
        view: &mut impl View,
        findings: &mut Findings,
    ) -> Option<PacketHead> {
        while self.at < view.end() {
            let offset = self.at;
            let bytes = match stated(view, offset) {
                Ok(bytes) => bytes,
                Err((kind, detail)) => {
                    self.at = view.end();
                    findings.fault(offset, kind, || detail);
                    return None;
                }
            };
            self.at = offset + bytes;
            let head = view.at(offset, PREFIX + HEADER);
            if let Some(packet) = PacketHead::decode(offset, bytes, head) {
                self.note_gap(&packet, findings);
                return Some(packet);
            }
            let letters = array::<4>(head, PREFIX).unwrap_or_default();
            let follows = view.at(self.at, PREFIX + 4);
            if !follows.is_empty() && !Packets::are_at_start_of(follows) {
                self.at = view.end();
            }
            findings.fault(offset, FaultKind::BadVersion, || {
                format!(
                    "packet has type \"{}\", expected TTDC, TAES or TMCH",
                    letters.escape_ascii()
                )
            });
        }
        None
    }

    fn note_gap(&mut self, packet: &PacketHead, findings: &mut Findings) {
        let PacketHead {
            module,
            kind,
            utc_s,
            ticks,
            sequence,
            ..
        } = *packet;
        if self.last.len() >= MODULES_MAX && !self.last.contains_key(&(module, kind)) {
            return;
        }
        let before = self.last.insert((module, kind), (utc_s, ticks, sequence));
        let expected = match before {
            Some((s, t, last)) if (s, t) == (utc_s, ticks) => last.wrapping_add(1),
            _ => 0,
        };
        if sequence != expected {
            findings.note(packet.offset, NoteKind::Gap, || {
                format!(
                    "{} packet {sequence} of module {module} at {utc_s} s, tick {ticks}, expected packet \
                     {expected}",
                    kind.name()
                )
            });
        }
    }
}

/// Returns the bytes of the packet at byte `offset`, by its length field, which is included.
fn stated(view: &mut impl View, offset: usize) -> Result<usize, (FaultKind, String)> {
    let left = view.end() - offset;
    let cut = |bytes: usize| {
        (
            FaultKind::Truncated,
            format!("packet is cut: {left} of {bytes} bytes"),
        )
    };
    let stated = u32_le(view.at(offset, 4), 0).ok_or_else(|| cut(PREFIX + HEADER))?;
    let bytes = usize::try_from(stated)
        .unwrap_or(usize::MAX)
        .saturating_add(PREFIX);
    if bytes < PREFIX + HEADER {
        return Err((
            FaultKind::BadOffset,
            format!("packet states a length of {stated} bytes, expected at least {HEADER}"),
        ));
    }
    if bytes > left {
        Err(cut(bytes))
    } else {
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(letters: &[u8; 4], ticks: u32, sequence: u32) -> Vec<u8> {
        let fields = [86, sequence, 541, ticks, 7, 0, 0, 0, 0];
        let fields = fields.iter().flat_map(|field: &u32| field.to_be_bytes());
        [40, 0, 0, 0]
            .into_iter()
            .chain(*letters)
            .chain(fields)
            .collect()
    }

    fn check(input: &[u8], packets: usize, expected: &[&str]) {
        let (mut walk, mut findings) = (Packets::new(input), Findings::default());
        assert_eq!(
            std::iter::from_fn(|| walk.next_good(&mut findings)).count(),
            packets
        );
        let faults = findings.faults.iter().map(ToString::to_string);
        let notes = findings.notes.iter().map(|note| note.detail.clone());
        assert_eq!(faults.chain(notes).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn damage_is_named_and_gaps_are_noted() {
        let good = packet(b"TTDC", 1, 0);
        check(
            &[good.clone(), packet(b"TTDC", 1, 1), packet(b"TTDC", 2, 0)].concat(),
            3,
            &[],
        );
        check(
            &[good.clone(), packet(b"TTDC", 1, 2)].concat(),
            2,
            &["TTDC packet 2 of module 7 at 541 s, tick 1, expected packet 1"],
        );
        check(
            &[good.clone(), packet(b"HTTP", 1, 1), packet(b"TAES", 1, 0)].concat(),
            2,
            &["byte 44: bad-version: packet has type \"HTTP\", expected TTDC, TAES or TMCH"],
        );
        check(
            &[&good[..], &good[..20]].concat(),
            1,
            &["byte 44: truncated: packet is cut: 20 of 44 bytes"],
        );
        check(
            &[&good[..], &[3, 0, 0, 0]].concat(),
            1,
            &["byte 44: bad-offset: packet states a length of 3 bytes, expected at least 40"],
        );
    }
}
