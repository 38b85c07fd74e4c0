//! Raw UDP packets of the front-end boards, as a recorder stores them: each with its length in front.

use crate::fault::{FaultKind, Findings, NoteKind};
use crate::fields::{array, u32_be, u32_le};
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

impl<'a> Packet<'a> {
    fn decode(offset: usize, bytes: &'a [u8]) -> Option<Self> {
        let udp = bytes.get(PREFIX..)?;
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
            at: 0,
            last: BTreeMap::new(),
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
        while self.at < self.bytes.len() {
            let offset = self.at;
            let rest = &self.bytes[offset..];
            let bytes = match stated(rest) {
                Ok(bytes) => bytes,
                Err((kind, detail)) => {
                    self.at = self.bytes.len();
                    findings.fault(offset, kind, || detail);
                    return None;
                }
            };
            self.at = offset + bytes.len();
            if let Some(packet) = Packet::decode(offset, bytes) {
                self.note_gap(&packet, findings);
                return Some(packet);
            }
            let follows = &self.bytes[self.at..];
            if !follows.is_empty() && !Self::are_at_start_of(follows) {
                self.at = self.bytes.len();
            }
            findings.fault(offset, FaultKind::BadVersion, || {
                let letters = array::<4>(bytes, PREFIX).unwrap_or_default();
                format!(
                    "packet has type \"{}\", expected TTDC, TAES or TMCH",
                    letters.escape_ascii()
                )
            });
        }
        None
    }

    fn note_gap(&mut self, packet: &Packet<'_>, findings: &mut Findings) {
        let Packet {
            module,
            kind,
            utc_s,
            ticks,
            sequence,
            ..
        } = *packet;
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

/// Returns the bytes of the packet at the start of `rest`, by its length field, which is included.
fn stated(rest: &[u8]) -> Result<&[u8], (FaultKind, String)> {
    let cut = |bytes: usize| {
        (
            FaultKind::Truncated,
            format!("packet is cut: {} of {bytes} bytes", rest.len()),
        )
    };
    let stated = u32_le(rest, 0).ok_or_else(|| cut(PREFIX + HEADER))?;
    let bytes = usize::try_from(stated)
        .unwrap_or(usize::MAX)
        .saturating_add(PREFIX);
    if bytes < PREFIX + HEADER {
        return Err((
            FaultKind::BadOffset,
            format!("packet states a length of {stated} bytes, expected at least {HEADER}"),
        ));
    }
    rest.get(..bytes).ok_or_else(|| cut(bytes))
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
