//! Where an FLP gets its STFs: opens files, listens for producers, logs what is wrong with them.
//!
//! Walking, cutting and re-stamping are `acquire`'s; this module brings the bytes. A source is either
//! [made](Input::Made): asked for the payload of any TF, when the FLP is ready for it; or
//! [fed](Input::Fed): a producer outside says when there is an STF.

mod deal;
mod feed;
mod framing;
mod joined;
mod origin;
pub(crate) mod record;
pub(crate) mod stop;
mod zmq;

pub(crate) use feed::QUEUE_STFS;
pub use feed::{Fed, Feed, FeedStats};
pub use framing::{Framing, FramingError};
pub use record::{RecordError, RecordHeader};

use crate::config::{
    FarmConfig, FileSource, Km3netSource, ReplaySource, SourceConfig, StfFileSource, StfShare,
    Xtc2Source, for_index,
};
use crate::slots::ArenaSlots;
use crate::zmq::ZmqError;
use bytes::Bytes;
use deal::Dealt;
use joined::Joined;
use sheaf_formats::{Fault, Findings};
use sheaf_metrics::Registry;
use sheaf_protocol::FlpId;
use sheaf_stf_builder::km3net::{Km3netConfig, Km3netFile};
use sheaf_stf_builder::stf_file::{Equipments, StfFile};
use sheaf_stf_builder::xtc2::{Xtc2Config, Xtc2File};
use sheaf_stf_builder::{
    CutConfig, Generator, GeneratorConfig, GeneratorError, RawFile, Replay, ReplayConfig,
    ReplayError, Share, ShareError, StfSource, Template,
};
use sheaf_transport::{Arena, ArenaError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use tracing::{info, warn};

/// Faults of one file that are logged one by one.
const FAULTS_LOGGED_MAX: usize = 10;

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
        /// What the operating system says.
        source: io::Error,
    },
    /// The memory of a generator's pool cannot be had.
    #[error("no memory for the pool of the generator: {0}")]
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
        /// Its files.
        files: String,
        /// The first fault with its offset, or that there is none.
        reason: String,
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
    /// Nobody can listen there.
    #[error("cannot listen for STFs at {place}: {source}")]
    Listen {
        /// The address or path.
        place: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// There is no socket for its producers.
    #[error("cannot take STFs by ZeroMQ: {0}")]
    Zmq(#[from] ZmqError),
}

/// The pool lies on pages like those of the holds, since the kernel copies out of it as out of them.
fn open_generator(
    config: &FarmConfig,
    generator: &GeneratorConfig,
    flp: FlpId,
    lend: &mut dyn FnMut(&Arc<Arena>),
) -> Result<Generator, SourceError> {
    let pool_bytes = usize::try_from(generator.pool_bytes).unwrap_or(usize::MAX);
    let arena = Arena::new(pool_bytes, config.transport.lent_arena())?;
    lend(&arena);
    Ok(Generator::new_in(
        generator.clone(),
        flp,
        &mut ArenaSlots(arena),
    )?)
}

/// Opens the source of `flp` as `config` says. `wake` is called for each STF of a [`Feed`]; what it counts beside STFs
/// goes to `registry`; `lend` is told of memory that payloads lie in for ever.
///
/// What is wrong with files is logged with offset and kind; the good part of them is used.
///
/// # Errors
///
/// [`SourceError`] if there is nothing to make STFs of.
pub fn open(
    config: &FarmConfig,
    flp: FlpId,
    wake: Wake,
    registry: &Arc<Registry>,
    lend: &mut dyn FnMut(&Arc<Arena>),
) -> Result<Input, SourceError> {
    let flps = config.run.flps;
    let stf_bytes_max = config.flp.stf_bytes_max;
    let source: Box<dyn StfSource> = match &config.flp.source {
        SourceConfig::Replay(source) => Box::new(open_replay(source, flp, flps)?),
        SourceConfig::File(source) => Box::new(open_files(source, flp, flps)?),
        SourceConfig::Generator(generator) => {
            Box::new(open_generator(config, generator, flp, lend)?)
        }
        SourceConfig::Km3net(source) => Box::new(open_km3net(source, flp, flps)?),
        SourceConfig::Xtc2(source) => Box::new(open_xtc2(source, flp, flps)?),
        SourceConfig::StfFile(source) => Box::new(open_stf_files(source, flp, flps)?),
        SourceConfig::Stdin(_) => {
            return Feed::stdin(stf_bytes_max, wake)
                .map(Input::Fed)
                .map_err(|source| listen_error("the standard input", source));
        }
        SourceConfig::Unix(source) => {
            let path = crate::config::path_for(&source.path, flp.into());
            return Feed::unix(&path, stf_bytes_max, wake)
                .map(Input::Fed)
                .map_err(|source| listen_error(path.display(), source));
        }
        SourceConfig::Tcp(source) => {
            let address = for_index(&source.listen, flp.into());
            return Feed::tcp(&address, stf_bytes_max, wake)
                .map(Input::Fed)
                .map_err(|source| listen_error(address, source));
        }
        SourceConfig::Zmq(source) => {
            let endpoint = for_index(&source.endpoint, flp.into());
            let feed = Feed::zmq(source, &endpoint, stf_bytes_max, wake, registry)?;
            return Ok(Input::Fed(feed));
        }
    };
    let bytes_max = source.bytes_max();
    if bytes_max > stf_bytes_max {
        warn!(
            bytes_max,
            stf_bytes_max, "The source has STFs that are too large: they are skipped as oversize"
        );
    }
    Ok(Input::Made(source))
}

fn listen_error(place: impl std::fmt::Display, source: io::Error) -> SourceError {
    SourceError::Listen {
        place: place.to_string(),
        source,
    }
}

fn open_replay(source: &ReplaySource, flp: FlpId, flps: u32) -> Result<Replay, SourceError> {
    let share = share(flp, flps)?;
    let inputs = source
        .files
        .iter()
        .map(|file| read(file))
        .collect::<Result<Vec<_>, _>>()?;
    let error = |source_error| SourceError::Replay {
        files: names(&source.files),
        source: source_error,
    };
    let slices: Vec<&[u8]> = inputs.iter().map(AsRef::as_ref).collect();
    let (template, findings) = Template::from_pages(&slices).map_err(error)?;
    for (file, findings) in source.files.iter().zip(&findings) {
        log_findings(file, findings);
    }
    let config = ReplayConfig {
        orbits_per_tf: source.orbits_per_tf,
        first_orbit: source.first_orbit,
    };
    Replay::new(&template, config, share).map_err(error)
}

fn open_files(source: &FileSource, flp: FlpId, flps: u32) -> Result<Joined, SourceError> {
    let dealt = Dealt::new(source.files.len(), flp, flps)?;
    let first_orbit = match source.first_orbit {
        None if source.files.len() > 1 => origin::first_orbit(&source.files)?,
        given => given,
    };
    let config = CutConfig {
        orbits_per_tf: source.orbits_per_tf,
        first_orbit,
    };
    open_each(&source.files, &dealt, flp, |input| {
        let (file, findings) = RawFile::new(input, &config, dealt.share);
        if file.hbfs_before_first() > 0 {
            info!(
                hbfs = file.hbfs_before_first(),
                "HBFs before the first orbit are left out"
            );
        }
        (
            (file.tfs() > 0).then(|| Box::new(file) as Box<dyn StfSource>),
            findings,
        )
    })
}

fn open_km3net(source: &Km3netSource, flp: FlpId, flps: u32) -> Result<Joined, SourceError> {
    let dealt = Dealt::one_file_a_flp("km3net", source.files.len(), flp, flps)?;
    let first_slice = match source.first_slice {
        None if source.files.len() > 1 => origin::first_slice(&source.files)?,
        given => given,
    };
    let config = Km3netConfig { first_slice };
    open_each(&source.files, &dealt, flp, |input| {
        let (file, findings) = Km3netFile::new(input, &config);
        (
            (file.tfs_with_data() > 0).then(|| Box::new(file) as Box<dyn StfSource>),
            findings,
        )
    })
}

fn open_xtc2(source: &Xtc2Source, flp: FlpId, flps: u32) -> Result<Joined, SourceError> {
    let dealt = Dealt::one_file_a_flp("xtc2", source.files.len(), flp, flps)?;
    let first_ns = match source.first_ns {
        None if source.files.len() > 1 => origin::first_ns(&source.files)?,
        given => given,
    };
    let config = Xtc2Config {
        window_ns: source.window_ns,
        first_ns,
    };
    open_each(&source.files, &dealt, flp, |input| {
        let (file, findings) = Xtc2File::new(input, &config);
        (
            (file.tfs_with_data() > 0).then(|| Box::new(file) as Box<dyn StfSource>),
            findings,
        )
    })
}

fn open_stf_files(source: &StfFileSource, flp: FlpId, flps: u32) -> Result<StfFile, SourceError> {
    let (mine, equipments): (Vec<&PathBuf>, _) = match source.share {
        StfShare::Equipment => {
            let equipments = Equipments::Dealt(share(flp, flps)?);
            (source.files.iter().collect(), equipments)
        }
        StfShare::Files => {
            let dealt = Dealt::one_file_a_flp("stf-file", source.files.len(), flp, flps)?;
            let first_counter = match source.first_counter {
                None => origin::first_counter(&source.files)?.unwrap_or(1),
                Some(given) => given,
            };
            let mine = dealt.files.iter().map(|index| &source.files[*index]);
            (mine.collect(), Equipments::All { first_counter })
        }
    };
    let inputs = mine.iter().map(|file| read(file));
    let (stfs, findings) = StfFile::new(inputs.collect::<Result<_, _>>()?, equipments);
    for (file, findings) in mine.iter().zip(&findings) {
        log_findings(file, findings);
    }
    if stfs.tfs_repeated() > 0 {
        let tfs = stfs.tfs_repeated();
        warn!(tfs, "TFs that stand a second time in a file are left out");
    }
    if stfs.tfs_with_data() == 0 {
        let faults = findings.into_iter().flat_map(|findings| findings.faults);
        return Err(no_data(flp, &mine, faults.into_iter().next()));
    }
    Ok(stfs)
}

/// Opens the files that were dealt to `flp`, and joins those that have data.
fn open_each(
    files: &[PathBuf],
    dealt: &Dealt,
    flp: FlpId,
    mut open: impl FnMut(Bytes) -> (Option<Box<dyn StfSource>>, Findings),
) -> Result<Joined, SourceError> {
    let mut sources = Vec::new();
    let mut first_fault: Option<Fault> = None;
    let mine: Vec<&PathBuf> = dealt.files.iter().map(|index| &files[*index]).collect();
    for file in &mine {
        let (source, findings) = open(read(file)?);
        log_findings(file, &findings);
        first_fault = first_fault.or_else(|| findings.faults.into_iter().next());
        match source {
            Some(source) => sources.push(source),
            None => warn!(file = %file.display(), %flp, "A file has no data of this FLP"),
        }
    }
    if sources.is_empty() {
        return Err(no_data(flp, &mine, first_fault));
    }
    Ok(Joined::new(sources))
}

fn no_data(flp: FlpId, files: &[&PathBuf], first_fault: Option<Fault>) -> SourceError {
    let reason = first_fault.map_or_else(
        || "nothing in them is its share".to_owned(),
        |fault| fault.to_string(),
    );
    SourceError::NoData {
        flp,
        files: names(files),
        reason,
    }
}

fn share(flp: FlpId, flps: u32) -> Result<Share, ShareError> {
    Share::new(flp.0, u16::try_from(flps).unwrap_or(u16::MAX))
}

fn read(file: &Path) -> Result<Bytes, SourceError> {
    match std::fs::read(file) {
        Ok(bytes) => Ok(bytes.into()),
        Err(source) => Err(SourceError::Read {
            file: file.to_owned(),
            source,
        }),
    }
}

fn names(files: &[impl AsRef<Path>]) -> String {
    let names: Vec<String> = files
        .iter()
        .map(|file| file.as_ref().display().to_string())
        .collect();
    names.join(", ")
}

fn log_findings(file: &Path, findings: &Findings) {
    let file = file.display();
    for fault in findings.faults.iter().take(FAULTS_LOGGED_MAX) {
        let (kind, detail) = (fault.kind.name(), &fault.detail);
        warn!(%file, offset = fault.offset, kind, detail, "Fault in the data; the good part is kept");
    }
    let more =
        (findings.faults.len() as u64 + findings.left_out).saturating_sub(FAULTS_LOGGED_MAX as u64);
    if more > 0 {
        warn!(%file, more, "More faults in the data");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_formats::check_stf;
    use sheaf_protocol::TfId;
    use sheaf_stf_builder::{HeapSlots, Made};

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
        match open(
            config,
            FlpId(flp),
            Box::new(|| {}),
            &Arc::default(),
            &mut |_| {},
        )? {
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
