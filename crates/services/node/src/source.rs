//! Where an FLP gets its STFs: opens files, listens for producers, logs what is wrong with them.
//!
//! Walking, cutting and re-stamping are `stf-builder`'s; this module brings the bytes. A source is either
//! [made](Input::Made): asked for the payload of any TF, when the FLP is ready for it; or
//! [fed](Input::Fed): a producer outside says when there is an STF.

mod deal;
mod feed;
mod files;
mod generator;
mod joined;
mod km3net;
mod origin;
mod program;
mod raw;
pub(crate) mod record;
mod replay;
mod stdin;
mod stf_file;
pub(crate) mod stop;
mod tcp;
mod tf_file;
mod unix;
mod xtc2;
mod zmq;

pub use feed::{Fed, Feed, FeedStats};
pub use km3net::Km3netSource;
pub use program::{Heartbeat, Patience, ProgramEnd, ProgramSource, SendError, StfSender};
pub use raw::FileSource;
pub use record::{RecordError, RecordHeader};
pub use replay::ReplaySource;
pub use stdin::StdinSource;
pub use stf_file::{StfFileSource, StfPayload, StfShare};
pub use tcp::TcpSource;
pub use tf_file::TfFileSource;
pub use unix::UnixSource;
pub use xtc2::Xtc2Source;
pub use zmq::{Framing, FramingError, StfFormat, ZmqFraming, ZmqIntake, ZmqSource};

use crate::check::{Check, ConfigError};
use crate::kinds::{Kind, kinds};
use crate::zmq::ZmqError;
use serde::{Deserialize, Serialize};
use sheaf_formats::stf_file::NotPages;
use sheaf_metrics::Registry;
use sheaf_protocol::{FlpId, NodeId};
use sheaf_stf_builder::{GeneratorConfig, GeneratorError, ReplayError, ShareError, StfSource};
use sheaf_transport::{Arena, ArenaError, ArenaOptions};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;
use tracing::warn;

kinds! {
    /// The `[flp.source]` table: where the STFs of an FLP come from, by its `kind`.
    #[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
    SourceConfig: SourceKind {
        Replay(ReplaySource) = "replay", "recorded pages as an endless stream";
        File(FileSource) = "file", "recorded pages once, cut by orbit";
        Generator(GeneratorConfig) = "generator", "bytes without structure, endless";
        Km3net(Km3netSource) = "km3net", "recorded KM3NeT records or packets once, one time slice of 100 ms a TF";
        Xtc2(Xtc2Source) = "xtc2", "recorded LCLS-II datagrams once, cut by event time";
        StfFile(StfFileSource) = "stf-file", "TF files of DataDistribution once" see "docs/reference/stf-file.md";
        TfFile(TfFileSource) = "tf-file", "TF files of Sheaf once, as the sinks `file` and `streams` write them" see "docs/reference/tf-file.md";
        Stdin(StdinSource) = "stdin", "STFs from the standard input" see "docs/reference/feed.md";
        Unix(UnixSource) = "unix", "STFs from producers that connect to a Unix socket" see "docs/reference/feed.md";
        Tcp(TcpSource) = "tcp", "STFs from producers that connect to a TCP address" see "docs/reference/feed.md";
        Zmq(ZmqSource) = "zmq", "STFs from programs that speak ZeroMQ" see "docs/how-to/zmq.md";
        Program(ProgramSource) = "program", "STFs from the program that the FLP is a part of" see "docs/how-to/python.md";
    }
}

impl Default for SourceConfig {
    fn default() -> Self {
        Self::Replay(ReplaySource::default())
    }
}

impl SourceConfig {
    /// Whether a producer outside says when there is an STF.
    #[must_use]
    pub fn is_fed(&self) -> bool {
        self.table().is_fed()
    }

    /// Returns the files that the source reads, of all FLPs together.
    #[must_use]
    pub fn files(&self) -> Option<&[PathBuf]> {
        self.table().files()
    }

    /// Returns a source of this kind with all defaults; `None` if its table cannot be without some key.
    #[must_use]
    pub fn with_defaults(kind: &Kind) -> Option<Self> {
        let mut table = (kind.defaults)();
        table.insert("kind".to_owned(), kind.name.into());
        table.try_into().ok()
    }
}

/// Kind of source: the `[flp.source]` table with this `kind`, what is checked of it, and the source made of it.
///
/// A kind is its file, with this trait for its table, and its line in the table of [`SourceConfig`].
pub(crate) trait SourceKind {
    /// Whether a producer outside says when there is an STF.
    fn is_fed(&self) -> bool {
        false
    }

    /// Returns the files that the source reads, of all FLPs together.
    fn files(&self) -> Option<&[PathBuf]> {
        None
    }

    /// Whether each FLP needs a file for itself.
    fn is_one_file_a_flp(&self) -> bool {
        false
    }

    /// Reports values that make no sense, whatever the machine.
    fn check(&self, _check: &mut Check) {}

    /// Looks for folders that FLP `node` needs on this machine.
    fn check_files(&self, _node: NodeId) -> Option<ConfigError> {
        None
    }

    /// Returns the network address at which FLP `node` takes STFs in the clear.
    fn address(&self, _node: NodeId) -> Option<String> {
        None
    }

    /// Returns the bytes of a usual STF, where they are known before the source is opened.
    fn stf_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether payloads lie in memory of the source, not in that of the hold.
    fn has_memory(&self) -> bool {
        false
    }

    /// Returns the bytes that the source takes in an FLP beside the memory of the hold.
    fn bytes_beside(&self, _place: &Place) -> u64 {
        0
    }

    /// Opens the source.
    fn open(&self, opening: Opening<'_>) -> Result<Input, SourceError>;
}

/// Place of an FLP in a farm, as far as the memory of its source depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The FLP.
    pub(crate) flp: FlpId,
    /// FLPs of the run.
    pub(crate) flps: u32,
    /// Largest STF that the FLP announces, in bytes.
    pub(crate) stf_bytes_max: u64,
}

/// Surroundings in which the source of an FLP is opened.
pub struct Opening<'a> {
    /// The FLP.
    pub flp: FlpId,
    /// FLPs of the run.
    pub flps: u32,
    /// Largest STF that the FLP announces, in bytes.
    pub stf_bytes_max: u64,
    /// Memory of the node, which payloads are written into.
    pub memory: &'a Arc<Arena>,
    /// Options of memory that the source takes for payloads.
    pub pool: ArenaOptions,
    /// Called for each STF of a [`Feed`].
    pub wake: Wake,
    /// Registry of what the source counts beside STFs.
    pub registry: &'a Arc<Registry>,
    /// Called with memory in which payloads stay for ever.
    pub lend: &'a mut dyn FnMut(&Arc<Arena>),
    /// Where the program that the FLP is a part of awaits its end of the source.
    pub program: Option<ProgramEnd>,
}

/// Called from another thread when there is something new to take.
pub type Wake = Box<dyn Fn() + Send>;

/// An opened source.
pub enum Input {
    /// Makes the payload of any TF when it is asked.
    Made(Box<dyn StfSource>),
    /// Gives STFs when a producer has sent them.
    Fed(Feed),
}

/// Why the source of an FLP cannot be opened.
#[derive(Debug, Error)]
pub enum SourceError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The memory of a generator's pool or of recorded files cannot be had.
    #[error("no memory for the payloads of the source: {0}")]
    Pool(#[from] ArenaError),
    /// The farm file has no place for this FLP.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// There are more FLPs than files, of a kind that cannot be shared.
    #[error("{flps} FLPs cannot share {files} files of {kind}, expected at least one file an FLP")]
    Files {
        /// The kind of the source.
        kind: &'static str,
        /// Files given.
        files: usize,
        /// FLPs of the run.
        flps: u32,
    },
    /// Nothing in the files is data of this FLP.
    #[error("{flp} gets no data from {files}: {reason}")]
    NoData {
        /// The FLP.
        flp: FlpId,
        /// Files.
        files: String,
        /// The first fault with its offset, or that there is none.
        reason: String,
    },
    /// A TF file has more than the pages that are to be taken from it.
    #[error(
        "{flp} cannot take payload = \"pages\" from {files}: {source}, or payload = \"blocks\""
    )]
    NotPages {
        /// The FLP.
        flp: FlpId,
        /// Files.
        files: String,
        /// The first block without pages.
        source: NotPages,
    },
    /// The recorded data cannot be replayed.
    #[error("cannot replay {files}: {source}")]
    Replay {
        /// The files.
        files: String,
        /// Why.
        source: ReplayError,
    },
    /// The generator cannot be made.
    #[error("cannot make a generator: {0}")]
    Generator(#[from] GeneratorError),
    /// The address cannot be listened at.
    #[error("cannot listen for STFs at {place}: {source}")]
    Listen {
        /// The address or path.
        place: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The FLP is to be part of a program, and is a process of its own.
    #[error(
        "flp.source.kind = \"program\": {flp} runs inside the program that makes its STFs; start that program in place \
         of `sheaf run flp`, or give another kind of source"
    )]
    NoProgram {
        /// The FLP.
        flp: FlpId,
    },
    /// There is no socket for its producers.
    #[error("cannot take STFs by ZeroMQ: {0}")]
    Zmq(#[from] ZmqError),
}

impl SourceError {
    fn listen(place: impl std::fmt::Display, source: io::Error) -> Self {
        Self::Listen {
            place: place.to_string(),
            source,
        }
    }
}

/// Opens the source that `config` describes.
///
/// What is wrong with files is logged with offset and kind; the good part of them is used.
///
/// # Errors
///
/// [`SourceError`] if there is nothing to make STFs of.
pub fn open(config: &SourceConfig, opening: Opening<'_>) -> Result<Input, SourceError> {
    let stf_bytes_max = opening.stf_bytes_max;
    let input = config.table().open(opening)?;
    if let Input::Made(source) = &input
        && source.bytes_max() > stf_bytes_max
    {
        warn!(
            bytes_max = source.bytes_max(),
            stf_bytes_max, "The source has STFs that are too large: they are skipped as oversize"
        );
    }
    Ok(input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FarmConfig;
    use sheaf_formats::check_stf;
    use sheaf_protocol::TfId;
    use sheaf_stf_builder::{HeapSlots, Made};
    use std::path::Path;

    fn data(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../testdata")
            .join(name)
    }

    fn config(flps: u32, source: SourceConfig) -> FarmConfig {
        let mut config = FarmConfig::default();
        config.run.flps = flps;
        config.flp.source = source;
        config
    }

    fn made(config: &FarmConfig, flp: u16) -> Result<Box<dyn StfSource>, SourceError> {
        let opening = Opening {
            flp: FlpId(flp),
            flps: config.run.flps,
            stf_bytes_max: config.flp.stf_bytes_max,
            memory: &feed::tests::arena(1),
            pool: config.transport.lent_arena(),
            wake: Box::new(|| {}),
            registry: &Arc::default(),
            lend: &mut |_| {},
            program: None,
        };
        match open(&config.flp.source, opening)? {
            Input::Made(source) => Ok(source),
            Input::Fed(_) => panic!("a source that is read from files is made"),
        }
    }

    /// Payload bytes by TF, then by FLP, until all FLPs are at their end or `tfs_max` is reached.
    fn sizes(config: &FarmConfig, tfs_max: usize) -> Vec<Vec<usize>> {
        let flps = u16::try_from(config.run.flps).unwrap();
        let mut sources: Vec<_> = (0..flps).map(|flp| made(config, flp).unwrap()).collect();
        let mut sizes = Vec::new();
        while sizes.len() < tfs_max {
            let tf = TfId(sizes.len() as u64);
            let made: Vec<Made> = sources
                .iter_mut()
                .map(|s| s.make(tf, &mut HeapSlots))
                .collect();
            if made.iter().all(|made| *made == Made::End) {
                break;
            }
            let bytes = made.iter().zip(&sources).map(|(made, source)| match made {
                Made::Payload(payload) => {
                    check_stf(source.format(), payload).unwrap();
                    payload.len()
                }
                _ => 0,
            });
            sizes.push(bytes.collect());
        }
        sizes
    }

    fn files(names: &[&str], first_orbit: Option<u32>) -> SourceConfig {
        SourceConfig::File(FileSource {
            files: names.iter().map(|name| data(name)).collect(),
            first_orbit,
            ..FileSource::default()
        })
    }

    const LINKS: &str = "alice-its-rdh7/12_links_2hbf.raw";
    const LINKS_BYTES: usize = 208_160;

    #[test]
    fn one_file_is_shared_by_its_links() {
        let sizes = sizes(&config(3, files(&[LINKS], None)), 10);
        assert_eq!(sizes.len(), 1);
        assert!(sizes[0].iter().all(|bytes| *bytes > 0));
        assert_eq!(sizes[0].iter().sum::<usize>(), LINKS_BYTES);
    }

    /// Every payload lies in memory that the source lends or that it was given, and takes what it says.
    #[test]
    fn payloads_of_recorded_files_can_be_lent() {
        let several = [LINKS, "alice-its-rdh7/rawtf_epn180_l6_1.raw"];
        for source in [files(&[LINKS], None), files(&several, None)] {
            let (own, lent) = (
                feed::tests::arena(8 << 20),
                std::cell::RefCell::new(Vec::new()),
            );
            let opening = Opening {
                flp: FlpId(0),
                flps: 1,
                stf_bytes_max: 64 << 20,
                memory: &own,
                pool: sheaf_transport::ArenaOptions::default(),
                wake: Box::new(|| {}),
                registry: &Arc::default(),
                lend: &mut |arena| lent.borrow_mut().push(arena.clone()),
                program: None,
            };
            let Input::Made(mut made) = open(&source, opening).unwrap() else {
                panic!("files are made");
            };
            let mut slots = crate::slots::ArenaSlots(own.clone());
            let lent: Vec<Arc<Arena>> = lent.into_inner();
            let used: u64 = lent.iter().map(|arena| arena.used_bytes()).sum();
            let place = Place {
                flp: FlpId(0),
                flps: 1,
                stf_bytes_max: 0,
            };
            let stated = source.table().bytes_beside(&place);
            assert!(
                (LINKS_BYTES as u64..=stated).contains(&used),
                "{used} of {stated}"
            );
            let mut tf = 0;
            while let Made::Payload(payload) = made.make(TfId(tf), &mut slots) {
                let is_held = |arena: &Arc<Arena>| arena.holds(&payload);
                assert!(
                    payload.is_empty() || lent.iter().chain([&own]).any(is_held),
                    "TF {tf} of {source:?}"
                );
                tf += 1;
            }
            assert!(tf > 0);
        }
    }

    #[test]
    fn files_are_dealt_out_and_share_the_earliest_orbit() {
        let parts = [
            "alice-its-rdh7/tdh_no_data_ihw.raw",
            "alice-its-rdh7/rawtf_epn180_l6_1.raw",
        ];
        let [first, second] = [27_200, 5_712];
        // Both begin with orbit 202070528.
        assert_eq!(
            sizes(&config(2, files(&parts, None)), 10),
            [[first, second]]
        );
        assert_eq!(
            sizes(&config(1, files(&parts, None)), 10),
            [[first + second]]
        );
        let late = Some(202_070_528 - 32);
        assert_eq!(
            sizes(&config(2, files(&parts, late)), 10),
            [[0, 0], [first, second]]
        );
    }

    #[test]
    fn a_replay_deals_links_and_has_no_end() {
        let mut source = ReplaySource {
            files: vec![data(LINKS)],
            ..ReplaySource::default()
        };
        source.orbits_per_tf = std::num::NonZeroU32::new(2).unwrap();
        let sizes = sizes(&config(5, SourceConfig::Replay(source)), 4);
        assert_eq!(sizes.len(), 4);
        assert!(
            sizes
                .iter()
                .all(|tf| tf.iter().sum::<usize>() == LINKS_BYTES)
        );
    }

    #[test]
    fn segments_of_different_rates_are_joined_by_time() {
        // The events of this run are 1 ns apart, and its segments begin at different ones.
        let source = SourceConfig::Xtc2(Xtc2Source {
            files: ["s000", "s001", "s002"]
                .map(|name| {
                    data(&format!(
                        "lcls-xtc2/intg_det/xpptut15-r0014-{name}-c000.xtc2"
                    ))
                })
                .into(),
            window_ns: 1.try_into().unwrap(),
            first_ns: None,
        });
        let apart = sizes(&config(3, source.clone()), usize::MAX);
        let with_data = |flp: usize| apart.iter().filter(|tf| tf[flp] > 0).count();
        assert_eq!([0, 1, 2].map(with_data), [17, 5, 2]);
        assert_eq!(
            apart
                .iter()
                .filter(|tf| tf.iter().all(|bytes| *bytes > 0))
                .count(),
            1
        );
        let together = sizes(&config(1, source), usize::MAX);
        let sums: Vec<usize> = apart.iter().map(|tf| tf.iter().sum()).collect();
        assert_eq!(together.concat(), sums);
    }

    #[test]
    fn time_slices_come_by_frame_index() {
        let source = SourceConfig::Km3net(Km3netSource {
            files: vec![
                data("km3net-daq/IO_TSL1_1003.dat"),
                data("km3net-daq/IO_TSSN.dat"),
            ],
            first_slice: Some(13_535),
        });
        let error = made(&config(2, source), 1).err().unwrap().to_string();
        assert!(error.starts_with("flp:1 gets no data from "), "{error}");
        let source = SourceConfig::Km3net(Km3netSource {
            files: vec![data("km3net-daq/IO_TSL1_1003.dat")],
            first_slice: None,
        });
        let sizes = sizes(&config(1, source), usize::MAX);
        assert_eq!(sizes.concat().iter().sum::<usize>(), 116_740);
        assert_eq!(sizes.len(), 13_625 - 13_535 + 1);
    }

    #[test]
    fn what_cannot_be_opened_says_why() {
        let check = |config: &FarmConfig, flp, expected: &str| {
            let error = made(config, flp)
                .err()
                .expect("nothing to make STFs of")
                .to_string();
            let root = data("");
            assert_eq!(error.replace(root.to_str().unwrap(), "DATA/"), expected);
        };
        check(
            &config(3, files(&["none.raw"], None)),
            0,
            "cannot read DATA/none.raw: No such file or directory (os error 2)",
        );
        check(
            &config(3, files(&[LINKS], None)),
            3,
            "FLP 3 of 3 does not exist, expected an index below the number of FLPs",
        );
        check(
            &config(1, files(&["README.md"], None)),
            0,
            "flp:0 gets no data from DATA/README.md: byte 0: bad-version: RDH has version 35, expected 6 or 7; \
             the walk stops here",
        );
        check(
            &config(2, files(&["alice-its-rdh7/10_rdh.raw"], None)),
            1,
            "flp:1 gets no data from DATA/alice-its-rdh7/10_rdh.raw: nothing in them is its share",
        );
        let source = SourceConfig::Xtc2(Xtc2Source {
            files: vec![data("lcls-xtc2/test_hsd.xtc2")],
            ..Xtc2Source::default()
        });
        check(
            &config(2, source),
            0,
            "2 FLPs cannot share 1 files of xtc2, expected at least one file an FLP",
        );
        let source = ReplaySource {
            files: vec![data("README.md")],
            ..ReplaySource::default()
        };
        check(
            &config(1, SourceConfig::Replay(source)),
            0,
            "cannot replay DATA/README.md: no whole HBF in the recorded data, expected at least one",
        );
    }

    #[test]
    fn a_damaged_file_gives_its_good_part() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cut.raw");
        let whole = std::fs::read(data(LINKS)).unwrap();
        std::fs::write(&file, &whole[..whole.len() - 100]).unwrap();
        let source = FileSource {
            files: vec![file],
            ..FileSource::default()
        };
        let sizes = sizes(&config(1, SourceConfig::File(source)), 10);
        assert!(sizes[0][0] > LINKS_BYTES / 2 && sizes[0][0] < LINKS_BYTES);
    }
}
