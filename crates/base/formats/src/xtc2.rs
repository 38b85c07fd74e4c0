//! LCLS-II, the third detector: XTC2 datagrams, one file for each DAQ segment.
//!
//! Layout: `docs/reference/formats.md`, section "XTC2", after slac-lcls/lcls2 `xtcdata`.

use crate::fault::{FaultKind, Findings, NoteKind};
use crate::fields::{array, u32_le};
use crate::view::View;

/// Purpose of a datagram. The codes are those of `xtcdata/xtc/TransitionId.hh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(
    missing_docs,
    reason = "the names are LCLS-II's own and say all that is to be said here"
)]
pub enum Service {
    ClearReadout,
    Reset,
    Configure,
    Unconfigure,
    BeginRun,
    EndRun,
    BeginStep,
    EndStep,
    Enable,
    Disable,
    SlowUpdate,
    /// An event: a measurement of the detector.
    L1Accept,
}

impl Service {
    fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::ClearReadout,
            1 => Self::Reset,
            2 => Self::Configure,
            3 => Self::Unconfigure,
            4 => Self::BeginRun,
            5 => Self::EndRun,
            6 => Self::BeginStep,
            7 => Self::EndStep,
            8 => Self::Enable,
            9 => Self::Disable,
            10 => Self::SlowUpdate,
            12 => Self::L1Accept,
            _ => return None,
        })
    }

    /// Returns the name in text and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ClearReadout => "ClearReadout",
            Self::Reset => "Reset",
            Self::Configure => "Configure",
            Self::Unconfigure => "Unconfigure",
            Self::BeginRun => "BeginRun",
            Self::EndRun => "EndRun",
            Self::BeginStep => "BeginStep",
            Self::EndStep => "EndStep",
            Self::Enable => "Enable",
            Self::Disable => "Disable",
            Self::SlowUpdate => "SlowUpdate",
            Self::L1Accept => "L1Accept",
        }
    }
}

/// Trigger time of a datagram. Its clock has no fixed origin: some files count from 1970, others from 1990.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventTime {
    /// Seconds.
    pub s: u32,
    /// Nanoseconds within that second.
    pub ns: u32,
}

impl EventTime {
    /// Returns the nanoseconds since the origin of its clock.
    #[must_use]
    pub fn as_ns(self) -> u64 {
        u64::from(self.s) * 1_000_000_000 + u64::from(self.ns)
    }
}

impl std::fmt::Display for EventTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:09}", self.s, self.ns)
    }
}

/// One datagram, borrowed from the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Byte of the input where the datagram begins.
    pub offset: usize,
    /// The whole datagram.
    pub bytes: &'a [u8],
    /// Trigger time of the datagram.
    pub time: EventTime,
    /// Purpose of the datagram.
    pub service: Service,
    /// Damage bits of its root container: 0 if all parts were there.
    pub damage: u16,
    /// Bytes of its root container.
    pub extent: u32,
}

/// Bytes in front of the root container, and of the container's own header.
const HEADER: usize = 12;
const CONTAINER: usize = 12;

/// Datagrams of an input; steps back in time are noted.
#[derive(Clone, Debug)]
pub struct Datagrams<'a> {
    bytes: &'a [u8],
    walk: DatagramWalk,
}

/// Place of a walk over datagrams, and the time of the last one.
#[derive(Clone, Debug, Default)]
pub(crate) struct DatagramWalk {
    at: usize,
    last: Option<EventTime>,
}

/// Fields of the headers of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatagramHead {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) time: EventTime,
    pub(crate) service: Service,
    pub(crate) damage: u16,
    pub(crate) extent: u32,
}

impl<'a> Datagrams<'a> {
    /// Returns the datagrams in `bytes`, which begins with one.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            walk: DatagramWalk::default(),
        }
    }

    /// Returns whether `bytes` begin like a file of a segment: with a `Configure`.
    #[must_use]
    pub fn are_at_start_of(bytes: &[u8]) -> bool {
        let extent = u32_le(bytes, 20).and_then(|extent| usize::try_from(extent).ok());
        service(bytes) == Some(Service::Configure)
            && extent.is_some_and(|extent| extent >= CONTAINER)
    }

    /// Returns the next datagram that can be read. One of an unknown service is reported and passed over; other damage
    /// ends the walk.
    pub fn next_good(&mut self, findings: &mut Findings) -> Option<Datagram<'a>> {
        let mut view = self.bytes;
        let head = self.walk.next_good(&mut view, findings)?;
        Some(Datagram {
            offset: head.offset,
            bytes: self.bytes.get(head.offset..head.offset + head.bytes)?,
            time: head.time,
            service: head.service,
            damage: head.damage,
            extent: head.extent,
        })
    }
}

impl DatagramWalk {
    /// Returns the next datagram of `view` that can be read.
    pub(crate) fn next_good(
        &mut self,
        view: &mut impl View,
        findings: &mut Findings,
    ) -> Option<DatagramHead> {
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
            let head = view.at(offset, HEADER + CONTAINER);
            if let Some(datagram) = decode(offset, bytes, head) {
                self.note_time(&datagram, findings);
                return Some(datagram);
            }
            findings.fault(offset, FaultKind::BadVersion, || {
                let code = head.get(11).map_or(0, |byte| byte & 0xf);
                format!("datagram has service {code}, expected 0 to 10 or 12")
            });
        }
        None
    }

    fn note_time(&mut self, datagram: &DatagramHead, findings: &mut Findings) {
        let time = datagram.time;
        if let Some(last) = self.last.replace(time)
            && time < last
        {
            findings.note(datagram.offset, NoteKind::Backwards, || {
                format!(
                    "{} at {time} follows a datagram at {last}",
                    datagram.service.name()
                )
            });
        }
    }
}

/// Returns the service, from bits 24 to 27 of the environment word.
fn service(bytes: &[u8]) -> Option<Service> {
    Service::from_code(bytes.get(11)? & 0xf)
}

fn decode(offset: usize, bytes: usize, head: &[u8]) -> Option<DatagramHead> {
    Some(DatagramHead {
        offset,
        bytes,
        time: EventTime {
            s: u32_le(head, 4)?,
            ns: u32_le(head, 0)?,
        },
        service: service(head)?,
        damage: u16::from_le_bytes(array(head, 16)?),
        extent: u32_le(head, 20)?,
    })
}

/// Returns the bytes of the datagram at byte `offset`, by the extent of its root container.
fn stated(view: &mut impl View, offset: usize) -> Result<usize, (FaultKind, String)> {
    let left = view.end() - offset;
    let cut = |bytes: usize| {
        (
            FaultKind::Truncated,
            format!("datagram is cut: {left} of {bytes} bytes"),
        )
    };
    let head = view.at(offset, HEADER + CONTAINER);
    let stated = u32_le(head, 20).ok_or_else(|| cut(HEADER + CONTAINER))?;
    let extent = usize::try_from(stated).unwrap_or(usize::MAX);
    if extent < CONTAINER {
        return Err((
            FaultKind::BadOffset,
            format!("datagram has an extent of {stated} bytes, expected at least {CONTAINER}"),
        ));
    }
    let bytes = extent.saturating_add(HEADER);
    if bytes > left {
        Err(cut(bytes))
    } else {
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(ns: u64, service: u8, extent: u32) -> Vec<u8> {
        let mut bytes = ns.to_le_bytes().to_vec();
        bytes.extend([0, 0, 0, service]);
        bytes.extend([0; 8]);
        bytes.extend(extent.to_le_bytes());
        bytes.resize(bytes.len() + extent.saturating_sub(12) as usize, 7);
        bytes
    }

    fn check(input: &[u8], datagrams: usize, expected: &[&str]) {
        let (mut walk, mut findings) = (Datagrams::new(input), Findings::default());
        assert_eq!(
            std::iter::from_fn(|| walk.next_good(&mut findings)).count(),
            datagrams
        );
        let faults = findings.faults.iter().map(ToString::to_string);
        let notes = findings.notes.iter().map(|note| note.detail.clone());
        assert_eq!(faults.chain(notes).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn damage_is_named_and_the_good_part_kept() {
        let good = datagram(1, 12, 20);
        check(&[datagram(0, 2, 12), good.clone()].concat(), 2, &[]);
        check(
            &[&good[..], &good[..31]].concat(),
            1,
            &["byte 32: truncated: datagram is cut: 31 of 32 bytes"],
        );
        check(
            &[&good[..], &good[..5]].concat(),
            1,
            &["byte 32: truncated: datagram is cut: 5 of 24 bytes"],
        );
        check(
            &[good.clone(), datagram(2, 12, 11)].concat(),
            1,
            &["byte 32: bad-offset: datagram has an extent of 11 bytes, expected at least 12"],
        );
        check(
            &[good.clone(), datagram(2, 13, 12), datagram(0, 12, 12)].concat(),
            2,
            &[
                "byte 32: bad-version: datagram has service 13, expected 0 to 10 or 12",
                "L1Accept at 0.000000000 follows a datagram at 0.000000001",
            ],
        );
    }
}
