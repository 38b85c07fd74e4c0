//! Layout of a TF in a file: headers that are made, payloads that stay where they are.

use super::equipment::Equipment;
use super::header::DataHeader;
use super::payload::{Entry, TfPayload, front, number_of, widen};
use super::read::FileTf;
use crate::hbf::{Hbf, earliest, hbfs};
use crate::pieces::bytes_of;
use crate::rdh::Rdh;
use sheaf_protocol::{FlpId, PayloadFormat, RunId, TfId};
use std::ops::Range;

/// Description of a TF in a file, beside its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TfName {
    /// The run: 32 bits.
    pub run: u32,
    /// Number of the TF in its run, from 1: 32 bits.
    pub counter: u32,
    /// When the TF is written, in ms since 1970.
    pub write_time_ms: u64,
}

impl TfName {
    /// Returns the name of TF `tf` of `run`: the low halves of both, TF 0 being the first, as there is no room for
    /// more.
    #[must_use]
    pub fn new(run: RunId, tf: TfId, write_time_ms: u64) -> Self {
        let low = |number: u64| (number & u64::from(u32::MAX)) as u32; // what was just cut off
        Self {
            run: low(run.0),
            counter: low(tf.0.wrapping_add(1)),
            write_time_ms,
        }
    }
}

/// A piece of a TF in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of [`TfImage::heads`].
    Head(Range<usize>),
    /// Bytes of the payload of a part.
    Payload {
        /// Place of the part among all.
        part: usize,
        /// Range of its bytes.
        range: Range<usize>,
    },
}

/// A TF as it stands in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TfImage {
    /// All headers and the index, one behind the other.
    pub heads: Vec<u8>,
    /// Pieces in their order.
    pub pieces: Vec<Piece>,
    /// Bytes of all pieces together.
    pub bytes: u64,
}

/// One block: the place of its bytes.
enum Made {
    /// A payload that gets a header of ours.
    Laid {
        part: usize,
        pieces: Vec<Range<usize>>,
    },
    /// Blocks that are copied with the headers that they have.
    Copied {
        part: usize,
        blocks: u32,
        range: Range<usize>,
        /// Rest of the entry of the index.
        padding: [u8; 4],
    },
}

impl Made {
    fn blocks(&self) -> u32 {
        match self {
            Self::Laid { .. } => 1,
            Self::Copied { blocks, .. } => *blocks,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Laid { pieces, .. } => DataHeader::SIZE + bytes_of(pieces),
            Self::Copied { range, .. } => range.len(),
        }
    }

    fn padding(&self) -> [u8; 4] {
        match self {
            Self::Laid { .. } => [0; 4],
            Self::Copied { padding, .. } => *padding,
        }
    }
}

/// A row of blocks of one equipment, and its place in the TF where it is known.
type Placed = (Option<u32>, Equipment, Made);

impl TfImage {
    /// Lays out a TF of `parts`, each with its FLP, its format and its payload.
    ///
    /// O2 blocks are copied with their headers, each at its place if all parts are of O2 blocks; if not, blocks are
    /// ordered by description, origin and subspecification. A payload of RDH pages becomes a block for each heartbeat
    /// frame; one that is not made of whole HBFs, not of pages, or no TF of O2 blocks, one block under a name of ours:
    /// every byte of every part is in the file.
    #[must_use]
    pub fn new(name: TfName, parts: &[(FlpId, PayloadFormat, &[u8])]) -> Self {
        let is_blocks = |format: PayloadFormat| format == PayloadFormat::O2Blocks;
        let read = |(_, format, payload): &(FlpId, PayloadFormat, &[u8])| {
            let is_some = is_blocks(*format) && !payload.is_empty();
            is_some.then(|| TfPayload::read(payload).ok())?
        };
        let carried: Vec<Option<TfPayload>> = parts.iter().map(read).collect();
        let are_all_blocks = !parts.is_empty()
            && parts
                .iter()
                .zip(&carried)
                .all(|((_, format, payload), tf)| {
                    tf.is_some() || (is_blocks(*format) && payload.is_empty())
                });
        if are_all_blocks && let Some(part) = copied_whole(&carried) {
            let range = 0..parts[part].2.len();
            return Self {
                heads: Vec::new(),
                bytes: range.len() as u64,
                pieces: vec![Piece::Payload { part, range }],
            };
        }
        let mut rows: Vec<Placed> = Vec::new();
        let mut orbits = Vec::new();
        for (part, ((flp, format, payload), tf)) in parts.iter().zip(&carried).enumerate() {
            if let Some(tf) = tf {
                rows.extend(tf.rows(payload).into_iter().map(|row| {
                    let blocks = number_of(row.blocks.len());
                    let range = row.bytes();
                    let made = Made::Copied {
                        part,
                        blocks,
                        range,
                        padding: row.padding,
                    };
                    (row.place, row.equipment, made)
                }));
                continue;
            }
            let whole = match format {
                PayloadFormat::RdhPages => whole_hbfs(payload),
                PayloadFormat::O2Blocks if payload.is_empty() => continue,
                _ => None,
            };
            let Some(frames) = whole else {
                let pieces = std::iter::once(0..payload.len()).collect();
                let equipment = Equipment::of_stf(*flp, *format);
                rows.push((None, equipment, Made::Laid { part, pieces }));
                continue;
            };
            for (equipment, orbit, pieces) in frames {
                orbits.push(orbit);
                rows.push((None, equipment, Made::Laid { part, pieces }));
            }
        }
        sort(&mut rows);
        let orbit = earliest(orbits.into_iter()).unwrap_or(0);
        let fronts = parts.iter().zip(&carried);
        let fronts: Vec<_> = fronts
            .filter_map(|((_, _, payload), tf)| Some((*payload, tf.as_ref()?.tf())))
            .collect();
        let time = fronts.iter().map(|(_, tf)| tf.write_time_ms).max();
        let name = TfName {
            write_time_ms: time
                .filter(|_| are_all_blocks)
                .unwrap_or(name.write_time_ms),
            ..name
        };
        Self::of_rows(name, orbit, &fronts, &rows)
    }

    fn of_rows(name: TfName, orbit: u32, fronts: &[(&[u8], &FileTf)], rows: &[Placed]) -> Self {
        let mut entries = Vec::new();
        for (_, equipment, made) in rows {
            let entry = Entry {
                equipment: *equipment,
                blocks: made.blocks(),
                bytes: made.bytes() as u64,
                padding: made.padding(),
            };
            widen(&mut entries, entry);
        }
        let has_index = fronts.is_empty();
        let fronts = fronts.iter().copied();
        let mut heads = front(fronts, name.write_time_ms, &entries, has_index);
        let data: u64 = entries.iter().map(|entry| entry.bytes).sum();
        let bytes = heads.len() as u64 + data;
        let mut pieces = Vec::with_capacity(1 + 2 * rows.len());
        let mut head_from = 0;
        for group in rows.chunk_by(|(_, a, _), (_, b, _)| a == b) {
            let split_parts = group.iter().map(|(_, _, made)| made.blocks());
            let split_parts = split_parts.fold(0, u32::saturating_add);
            let mut split_index: u32 = 0;
            for (_, equipment, made) in group {
                if let Made::Laid { pieces, .. } = made {
                    let header = DataHeader {
                        split_parts,
                        split_index,
                        first_orbit: orbit,
                        tf_counter: name.counter,
                        run: name.run,
                        ..DataHeader::new(*equipment, bytes_of(pieces) as u64)
                    };
                    heads.extend_from_slice(&header.encode());
                }
                split_index = split_index.saturating_add(made.blocks());
                if head_from < heads.len() {
                    pieces.push(Piece::Head(head_from..heads.len()));
                    head_from = heads.len();
                }
                match made {
                    Made::Laid {
                        part,
                        pieces: ranges,
                    } => pieces.extend(ranges.iter().map(|range| Piece::Payload {
                        part: *part,
                        range: range.clone(),
                    })),
                    Made::Copied { part, range, .. } => pieces.push(Piece::Payload {
                        part: *part,
                        range: range.clone(),
                    }),
                }
            }
        }
        if head_from < heads.len() {
            pieces.push(Piece::Head(head_from..heads.len()));
        }
        Self {
            heads,
            pieces,
            bytes,
        }
    }

    /// Returns the bytes of the file, piece by piece; `payloads` are those of the parts that it was made of.
    pub fn slices<'a>(&'a self, payloads: &'a [&'a [u8]]) -> impl Iterator<Item = &'a [u8]> {
        self.pieces.iter().map(move |piece| match piece {
            Piece::Head(range) => &self.heads[range.clone()],
            Piece::Payload { part, range } => &payloads[*part][range.clone()],
        })
    }
}

/// Equipment, orbit and place of an HBF.
type WholeHbf = (Equipment, u32, Vec<Range<usize>>);

/// Returns equipment, orbit and place of all HBFs of `payload`, if it is made of nothing else.
fn whole_hbfs(payload: &[u8]) -> Option<Vec<WholeHbf>> {
    let (frames, _) = hbfs(payload);
    let whole: usize = frames.iter().map(Hbf::bytes).sum();
    if whole != payload.len() || payload.is_empty() {
        return None;
    }
    let named = frames.into_iter().map(|hbf| {
        let first = hbf.pieces.first()?.start;
        let rdh = Rdh::decode(payload.get(first..)?).ok()?;
        Some((Equipment::of_page(&rdh), hbf.orbit, hbf.pieces))
    });
    named.collect()
}

/// Returns the part that is the whole TF byte for byte: the only one with blocks, or any if none has.
fn copied_whole(parts: &[Option<TfPayload>]) -> Option<usize> {
    let all = || parts.iter().enumerate();
    let all = || all().filter_map(|(part, tf)| Some((part, tf.as_ref()?)));
    let mut with_blocks = all().filter(|(_, tf)| !tf.blocks().is_empty());
    let found = match (with_blocks.next(), with_blocks.next()) {
        (None, _) => all().find(|(_, tf)| tf.is_whole()),
        (Some(one), None) => Some(one).filter(|(_, tf)| tf.is_whole()),
        (Some(_), Some(_)) => None,
    };
    found.map(|(part, _)| part)
}

/// Orders rows by their places if all have one of their own, by equipment if not.
fn sort(rows: &mut [Placed]) {
    let mut places: Vec<Option<u32>> = rows.iter().map(|(place, ..)| *place).collect();
    places.sort_unstable();
    let are_placed =
        places.iter().all(Option::is_some) && places.array_windows().all(|[one, next]| one != next);
    if are_placed {
        rows.sort_by_key(|(place, ..)| *place);
    } else {
        rows.sort_by_key(|(_, equipment, _)| *equipment);
    }
}
