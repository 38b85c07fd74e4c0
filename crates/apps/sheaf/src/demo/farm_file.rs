//! The farm file of a demo, made from its command line.

use super::args::{Args, Rate, Sink};
use anyhow::{Context as _, bail};
use sheaf_auth::{Authority, CertFiles, Validity};
use sheaf_farm::RunDir;
use sheaf_formats::inspect::{FileFormat, UnknownFormat};
use sheaf_node::config::{
    Ack, FarmConfig, Km3netSource, ReplaySource, ShmSink, SinkConfig, SourceConfig, StfFileSource,
    TfFileSource, UnixSink, WritersSink, Xtc2Source,
};
use sheaf_node::role::Backend;
use sheaf_protocol::{NodeId, Role};
use sheaf_scheduler::{Delivery, Mode};
use sheaf_stf_builder::{GeneratorConfig, SizeModel};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The recorded run that the demo replays, so that it works wherever it is started.
const RECORDED: &[u8] = include_bytes!("../../../../../testdata/alice-its-rdh7/12_links_2hbf.raw");
const RECORDED_NAME: &str = "12_links_2hbf.raw";

/// Links of that run, and payload bytes of one orbit of it, all links together, rounded up.
const RECORDED_LINKS: u64 = 12;
const RECORDED_ORBIT_BYTES: u64 = 110_000;

/// How long the certificates of a demo hold: longer than any demo.
const CERTIFICATE_DAYS: u32 = 90;

/// Smallest and largest memory for payloads of one node.
const NODE_BYTES: (u64, u64) = (64 << 20, 256 << 20);

/// The farm file for `args`. Writes the recorded data into `dir`, if they are wanted.
///
/// # Errors
///
/// What is wrong with the arguments.
pub(crate) fn farm_config(args: &Args, dir: &RunDir) -> anyhow::Result<FarmConfig> {
    check_fault_nodes(args)?;
    check_sockets(args)?;
    let mut config = FarmConfig::default();
    config.run.flps = args.flps.into();
    config.run.epns = args.epns.into();
    config.run.timeframes = args.timeframes.unwrap_or(0);
    config.run.duration_s = args.duration.map_or(0.0, |duration| duration.as_secs_f64());
    config.icn.metrics.clone_from(&args.metrics);
    config.metrics.backends = args.metrics_to.iter().map(Backend::uri).collect();
    super::icns::add(args, dir, &mut config)?;
    let scheduler = &mut config.icn.scheduler;
    scheduler.policy.clone_from(&args.policy);
    scheduler.seed = args.seed;
    scheduler.reaction = args.reaction;
    scheduler.incomplete = args.incomplete;
    match (args.rate, args.paced) {
        (Rate::Hz(hz), true) => (scheduler.mode, scheduler.paced_rate_hz) = (Mode::Paced, hz),
        (Rate::Hz(hz), false) => config.flp.rate_hz = hz,
        (Rate::Max, true) => bail!("--paced needs a --rate: a number or lhc, not max"),
        (Rate::Max, false) => config.flp.rate_hz = 0.0,
    }
    config.flp.push = args.push;
    let (source, sizes) = source(args, dir)?;
    config.flp.source = source;
    config.flp.stf_bytes_max = sizes.stf_bytes_max;
    config.icn.scheduler.stf_bytes_max = sizes.stf_bytes_max;
    config.icn.scheduler.tf_bytes_max = sizes.tf_bytes_max;
    let node_bytes = node_bytes(args);
    config.flp.hold_bytes = node_bytes.max(4 * sizes.stf_bytes_max);
    config.epn.build.capacity_bytes = node_bytes.max(4 * sizes.tf_bytes_max);
    check_memory(args, &config, sheaf_farm::proc::memory_available_bytes())?;
    config.epn.sink = args.sink.clone();
    add_writers(args, dir, &mut config)?;
    config.epn.ack = args.ack;
    config.node.threads = args.threads;
    let stores = args.writers > 0 || matches!(args.sink, Sink::File(_));
    if args.ack == Ack::Stored && !stores {
        bail!("--ack stored needs --sink file:DIR, or --writers: nothing else stores");
    }
    if args.ack == Ack::Processed {
        if !matches!(args.sink, Sink::Shm(_)) {
            bail!(
                "--ack processed needs --sink shm:PATH, which knows when a consumer has finished; found --sink {}",
                args.sink.kind()
            );
        }
        config.icn.delivery = Delivery::AtLeastOnce;
    }
    if let Some(bulk) = args.tls {
        config.security.directory = Some(certificates(&config, dir)?);
        config.security.bulk = bulk;
    }
    Ok(config)
}

/// Writes the farm file.
///
/// # Errors
///
/// The reason why it cannot be written.
pub(crate) fn write(config: &FarmConfig, file: &Path) -> anyhow::Result<()> {
    let text = config
        .to_toml()
        .context("cannot write these values as a farm file")?;
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Puts writer nodes between the EPNs and the files of the sink.
fn add_writers(args: &Args, dir: &RunDir, config: &mut FarmConfig) -> anyhow::Result<()> {
    if args.writers == 0 {
        return Ok(());
    }
    let Sink::Streams(files) = &args.sink else {
        bail!(
            "--writers needs --sink streams:DIR, where they write; found --sink {}",
            args.sink.kind()
        );
    };
    let address = |index| {
        let path = dir.file(&format!("writer-{index}.sock"));
        format!("unix:{}", path.display())
    };
    config.writer.addresses = (0..args.writers).map(address).collect();
    config.writer.files = Some(files.clone());
    // A TF of each EPN has room with each writer.
    let tf_bytes = config.icn.scheduler.tf_bytes_max.max(1);
    let least = tf_bytes.saturating_mul(2 * u64::from(args.epns));
    config.writer.capacity_bytes = node_bytes(args).max(least);
    config.epn.sink = SinkConfig::Writers(WritersSink::default());
    Ok(())
}

/// Makes a CA and a certificate for every node of the demo. Gives their directory.
fn certificates(config: &FarmConfig, dir: &RunDir) -> anyhow::Result<PathBuf> {
    let directory = dir.file("certs");
    let validity = Validity::of_days(CERTIFICATE_DAYS);
    let authority = Authority::new("demo", validity)?;
    authority.save(&directory, false)?;
    let icns = u32::try_from(config.icn.all_addresses().len())?;
    let counts = [
        (Role::Icn, icns),
        (Role::Flp, config.run.flps),
        (Role::Epn, config.run.epns),
        (Role::Writer, u32::try_from(config.writer.addresses.len())?),
        // Who orders the run to stop, if there are several ICNs.
        (Role::Operator, 1),
    ];
    for (role, count) in counts {
        for index in 0..u16::try_from(count)? {
            let node = NodeId { role, index };
            let files = CertFiles::in_directory(&directory, node);
            authority.issue(node, validity)?.save(&files, false)?;
        }
    }
    Ok(directory)
}

fn check_fault_nodes(args: &Args) -> anyhow::Result<()> {
    for node in args.fault_nodes() {
        let (count, flag) = match node.role {
            Role::Flp => (args.flps, "--flps"),
            Role::Epn => (args.epns, "--epns"),
            Role::Writer => (args.writers, "--writers"),
            Role::Icn | Role::Operator => (args.icns(), "--icns"),
        };
        if count == 0 {
            bail!("there is no {node}: the farm has none ({flag})");
        }
        if node.index >= count {
            bail!(
                "there is no {node}: the farm has {}:0 to {}:{} ({flag})",
                node.role,
                node.role,
                count - 1
            );
        }
    }
    Ok(())
}

/// A Unix socket has one listener.
fn check_sockets(args: &Args) -> anyhow::Result<()> {
    match &args.sink {
        Sink::Unix(UnixSink { path }) | Sink::Shm(ShmSink { path, .. })
            if args.epns > 1 && !path.to_string_lossy().contains("{epn}") =>
        {
            let kind = args.sink.kind();
            bail!(
                "--sink {kind}:{}: {} EPNs would share it, expected {{epn}} in the path",
                path.display(),
                args.epns
            )
        }
        _ => Ok(()),
    }
}

/// The largest that may come from a source.
struct Sizes {
    stf_bytes_max: u64,
    tf_bytes_max: u64,
}

fn source(args: &Args, dir: &RunDir) -> anyhow::Result<(SourceConfig, Sizes)> {
    let orbits_per_tf = args.orbits_per_tf;
    let replay = |files| {
        SourceConfig::Replay(ReplaySource {
            files,
            orbits_per_tf,
            ..ReplaySource::default()
        })
    };
    match args.source.as_slice() {
        [only] if only.as_os_str() == "replay" => {
            let path = dir.file(RECORDED_NAME);
            std::fs::write(&path, RECORDED)
                .with_context(|| format!("cannot write {}", path.display()))?;
            Ok((replay(vec![path]), recorded_sizes(args)))
        }
        [only] if only.as_os_str() == "generator" => Ok(generator(args)),
        files => {
            let files = files
                .iter()
                .map(|path| absolute(path))
                .collect::<anyhow::Result<_>>()?;
            let default = FarmConfig::default().icn.scheduler;
            let (stf_bytes_max, tf_bytes_max) = (default.stf_bytes_max, default.tf_bytes_max);
            Ok((
                of_files(args, files, replay)?,
                Sizes {
                    stf_bytes_max,
                    tf_bytes_max,
                },
            ))
        }
    }
}

/// Links are dealt out over the FLPs, and repeated when there are more FLPs than links. One link may have up to
/// four times the bytes of another.
fn recorded_sizes(args: &Args) -> Sizes {
    let (flps, orbits) = (u64::from(args.flps), u64::from(args.orbits_per_tf.get()));
    let tf_bytes = RECORDED_ORBIT_BYTES * orbits * flps.div_ceil(RECORDED_LINKS);
    let links = RECORDED_LINKS.div_ceil(flps);
    let stf_bytes = RECORDED_ORBIT_BYTES * orbits * 4 * links / RECORDED_LINKS;
    Sizes {
        stf_bytes_max: stf_bytes.min(tf_bytes),
        tf_bytes_max: tf_bytes,
    }
}

fn generator(args: &Args) -> (SourceConfig, Sizes) {
    let mean = args.stf_bytes;
    let largest = match args.size_model {
        SizeModel::Equal | SizeModel::Trace => mean,
        SizeModel::Random | SizeModel::Sine => mean.saturating_mul(3).div_ceil(2),
        SizeModel::Lognormal => mean.saturating_mul(16),
    };
    let default = GeneratorConfig::default();
    let config = GeneratorConfig {
        sizes: args.size_model,
        bytes_mean: mean,
        seed: args.seed,
        pool_bytes: default.pool_bytes.max(2 * largest),
        ..default
    };
    let tf_bytes_max = largest.saturating_mul(args.flps.into());
    (
        SourceConfig::Generator(config),
        Sizes {
            stf_bytes_max: largest,
            tf_bytes_max,
        },
    )
}

/// Recorded pages are repeated for ever; the formats that cannot be re-stamped come once.
fn of_files(
    args: &Args,
    files: Vec<PathBuf>,
    replay: impl Fn(Vec<PathBuf>) -> SourceConfig,
) -> anyhow::Result<SourceConfig> {
    let mut formats = files
        .iter()
        .map(|path| format_of(path))
        .collect::<anyhow::Result<Vec<_>>>()?;
    formats.dedup();
    // Links of pages, equipment and parts of TFs are dealt out over the FLPs; of others an FLP takes whole files.
    let is_dealt = matches!(
        formats.as_slice(),
        [FileFormat::Rdh | FileFormat::StfFile | FileFormat::TfFile]
    );
    if !is_dealt && files.len() < usize::from(args.flps) {
        bail!(
            "--source has {}, expected at least one for each of {} FLPs (--flps)",
            super::counted(files.len(), "file"),
            args.flps
        );
    }
    match formats.as_slice() {
        [FileFormat::Rdh] => Ok(replay(files)),
        [FileFormat::Km3net] => Ok(SourceConfig::Km3net(Km3netSource {
            files,
            ..Km3netSource::default()
        })),
        [FileFormat::Xtc2] => Ok(SourceConfig::Xtc2(Xtc2Source {
            files,
            window_ns: args.window_ns,
            ..Xtc2Source::default()
        })),
        [FileFormat::StfFile] => Ok(SourceConfig::StfFile(StfFileSource {
            files,
            ..StfFileSource::default()
        })),
        [FileFormat::TfFile] => Ok(SourceConfig::TfFile(TfFileSource { files })),
        several => {
            let names: Vec<&str> = several.iter().map(|format| format.name()).collect();
            bail!(
                "--source has files of several formats ({}), expected one",
                names.join(", ")
            )
        }
    }
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    path.canonicalize()
        .with_context(|| format!("cannot read --source {}", path.display()))
}

fn format_of(path: &Path) -> anyhow::Result<FileFormat> {
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(1 << 20).read_to_end(&mut start))
        .with_context(|| format!("cannot read --source {}", path.display()))?;
    if start.is_empty() {
        bail!("--source {} is empty", path.display());
    }
    FileFormat::detect(&start)
        .ok_or_else(|| UnknownFormat::of(&start))
        .with_context(|| format!("--source {}", path.display()))
}

/// Refuses a farm that would not leave the machine any memory: every node allocates its own at the start.
fn check_memory(args: &Args, config: &FarmConfig, available: Option<u64>) -> anyhow::Result<()> {
    let flps = u64::from(args.flps).saturating_mul(config.flp.hold_bytes);
    let epns = u64::from(args.epns).saturating_mul(config.epn.build.capacity_bytes);
    let needed = flps.saturating_add(epns);
    let Some(available) = available.filter(|available| needed > *available) else {
        return Ok(());
    };
    let mut flags = format!("--flps {} --epns {}", args.flps, args.epns);
    if let Some(mib) = args.memory {
        flags += &format!(" --memory {mib}");
    }
    bail!(
        "{flags}: found {} MiB of payload memory for all nodes, which allocate it at the start, expected at most {} \
         MiB, which this machine has available",
        needed >> 20,
        available >> 20
    )
}

/// Returns the requested memory, or half of the machine's, shared out: every node allocates its memory at the start.
fn node_bytes(args: &Args) -> u64 {
    if let Some(mib) = args.memory {
        return mib << 20;
    }
    let nodes = u64::from(args.flps) + u64::from(args.epns);
    let available = sheaf_farm::proc::memory_available_bytes().unwrap_or(4 << 30);
    (available / 2 / nodes).clamp(NODE_BYTES.0, NODE_BYTES.1)
}
