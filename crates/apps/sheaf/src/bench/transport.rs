//! The command line of `sheaf bench transport`.

use super::PeerArgs;
use crate::{json_file, progress};
use anyhow::Context as _;
use peer_harness::Role;
use sheaf_auth::{Authority, CertFiles, Credentials, Moment, Tls, Validity};
use sheaf_bench::transport::peer::Ways;
use sheaf_bench::transport::{self, Options, Path, Receivers, SIZES, Server, Shape, Side};
use sheaf_protocol::{EpnId, FlpId, NodeId};
use sheaf_transport::{Bulk, Security};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure the transport alone beside plain TCP and other libraries.
///
/// Every side is a process of its own that does nothing but send or receive. In each round `plain_tcp` runs first
/// and then every other transport once, so that each ratio is one of two runs of the same minute. A row says whether it
/// can be trusted, and if not, why. Libraries that are not there are skipped by name. See docs/how-to/bench.md.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf bench transport                              1 sender, 1 receiver, 4 KiB to 100 MB, all transports
  sheaf bench transport --sizes 10000,1000000 --shapes 1-1,16-1,1-16 --transports sheaf,plain-tcp,libzmq
  sheaf bench transport --paths loopback,veth --queues 1,5,1000 --binds receiver,sender --json transport.json
  sheaf bench transport --html transport.html --plots plots
  sheaf bench transport --remote flp7                receivers at another host, started by ssh
  sheaf bench transport --serve 10.0.0.7:7700        there, by hand; then here with what it prints:
  sheaf bench transport --connect 10.0.0.7:7700 --token 0123456789abcdef")]
pub(super) struct TransportArgs {
    /// Measure these shapes, senders-receivers, such as 1-1, 1-64, 240-1, 4-4.
    #[arg(
        long,
        value_name = "N-M,…",
        value_delimiter = ',',
        default_value = "1-1"
    )]
    pub(super) shapes: Vec<Shape>,
    /// Send messages of these sizes, in bytes.
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', default_values_t = SIZES, value_parser = parse_size)]
    pub(super) sizes: Vec<usize>,
    /// Connect the two sides by these networks.
    #[arg(
        long,
        value_name = "PATH,…",
        value_delimiter = ',',
        value_enum,
        default_value = "loopback"
    )]
    pub(super) paths: Vec<PathArg>,
    /// Bind on these sides; the other side connects.
    #[arg(
        long,
        value_name = "SIDE,…",
        value_delimiter = ',',
        value_enum,
        default_value = "receiver"
    )]
    pub(super) binds: Vec<SideArg>,
    /// Queue at most this many messages for one connection, such as 1,5,1000; fewer if they exceed the pool.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1000",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub(super) queues: Vec<usize>,
    /// Measure these transports; by default all that are installed. `plain-tcp` always runs.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = parse_kind)]
    pub(super) transports: Vec<String>,
    /// Take this many undisturbed rounds for each row.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) pairs: u32,
    /// Measure a window of this length in each run, in s.
    #[arg(long, value_name = "S", default_value_t = 0.8, value_parser = parse_seconds)]
    pub(super) seconds: f64,
    /// Begin the window this long after the start of a run, in s; later with many processes.
    #[arg(long, value_name = "S", default_value_t = 0.3, value_parser = parse_seconds)]
    pub(super) warm_up_seconds: f64,
    /// Allocate this many bytes of payloads for all senders together.
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20)]
    pub(super) pool_bytes: usize,
    /// Allocate this many bytes for all receivers together, which hold half of them; by default as the pool.
    #[arg(long, value_name = "BYTES")]
    pub(super) receive_bytes: Option<usize>,
    /// Pin every process to a CPU; on by default if there are two.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) pin: Option<bool>,
    /// Use this congestion control for all sockets, by its kernel name.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(super) congestion: String,
    /// Find the programs of other libraries in this folder; by default beside this program and in tools/peers/bin.
    #[arg(long, value_name = "DIR")]
    pub(super) peers_dir: Option<PathBuf>,
    /// Write the report as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write a page with all figures to this file.
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write the figures as SVG into this folder.
    #[arg(long, value_name = "DIR")]
    pub(super) plots: Option<PathBuf>,
    /// Start the receivers at this host, by ssh; `sheaf` has to be in the path there.
    #[arg(long, value_name = "HOST", conflicts_with_all = ["serve", "connect", "paths"])]
    pub(super) remote: Option<String>,
    /// Start receivers for clients with the printed token, until this program ends.
    #[arg(long, value_name = "IP:PORT", conflicts_with_all = ["connect", "json", "html", "plots"])]
    pub(super) serve: Option<SocketAddr>,
    /// Start the receivers by the `--serve` at this address.
    #[arg(
        long,
        value_name = "IP:PORT",
        requires = "token",
        conflicts_with = "paths"
    )]
    pub(super) connect: Option<SocketAddr>,
    /// Authenticate with this token, which `--serve` printed.
    #[arg(long, value_name = "TOKEN", requires = "connect")]
    pub(super) token: Option<String>,
}

/// Network between the two sides, by its name on the command line.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum PathArg {
    /// The loopback device.
    Loopback,
    /// A pair of virtual network cards.
    Veth,
}

/// One of the two sides, by its name on the command line.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum SideArg {
    /// Sender.
    Sender,
    /// Receiver.
    Receiver,
}

impl TransportArgs {
    fn options(&self) -> Options {
        let path = |arg: &PathArg| match arg {
            PathArg::Loopback => Path::Loopback,
            PathArg::Veth => Path::Veth,
        };
        let side = |arg: &SideArg| match arg {
            SideArg::Sender => Side::Sender,
            SideArg::Receiver => Side::Receiver,
        };
        Options {
            shapes: self.shapes.clone(),
            sizes: self.sizes.clone(),
            paths: self.paths.iter().map(path).collect(),
            binds: self.binds.iter().map(side).collect(),
            queues: self.queues.clone(),
            transports: self.transports.clone(),
            pairs: self.pairs,
            seconds: self.seconds,
            warm_up_seconds: self.warm_up_seconds,
            pool_bytes: self.pool_bytes,
            receive_bytes: self.receive_bytes,
            pin: self.pin.unwrap_or(true),
            congestion: self.congestion.clone(),
            peers_dir: self.peers_dir.clone(),
            certificates: None,
            receivers: match (&self.remote, self.connect, &self.token) {
                (Some(host), ..) => Receivers::Host(host.clone()),
                (None, Some(address), Some(token)) => Receivers::Server {
                    address,
                    token: token.clone(),
                },
                _ => Receivers::Here,
            },
        }
    }
}

/// Runs the benchmark.
///
/// # Errors
///
/// What is wrong with the arguments, or what cannot be written.
pub(super) fn run(args: &TransportArgs) -> anyhow::Result<ExitCode> {
    let mut options = args.options();
    if let Some(address) = args.serve {
        serve(&options, address)?;
        return Ok(ExitCode::SUCCESS);
    }
    let folder = tempfile::tempdir().context("cannot make a folder for certificates")?;
    if options.receivers == Receivers::Here {
        issue(folder.path())?;
        options.certificates = Some(folder.path().to_owned());
    }
    let report = transport::measure(&options, &mut |line| progress::line(line))?;
    // To machines first: a reader of the table may have gone.
    if let Some(path) = &args.json {
        json_file::write(path, &report.to_json())?;
    }
    let figures = report.figures()?;
    if let Some(folder) = &args.plots {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        for figure in &figures {
            super::write(&folder.join(format!("{}.svg", figure.name)), &figure.svg)?;
        }
    }
    if let Some(path) = &args.html {
        super::write(path, &report.html(&figures))?;
    }
    json_file::tell(args.json.as_deref(), &report.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Runs one side.
///
/// # Errors
///
/// As [`transport::peer::run`], and for certificates that cannot be read.
pub(super) fn peer(args: &PeerArgs) -> anyhow::Result<()> {
    let security = match &args.certificates {
        Some(folder) => {
            let node = node_of(args.common.role);
            let files = CertFiles::in_directory(folder, node);
            let credentials = Credentials::load(&files, node, Moment::now())?;
            Security::Tls {
                tls: Tls::new(&credentials)?,
                bulk: Bulk::Encrypted,
            }
        }
        None => Security::Insecure,
    };
    let ways = Ways {
        shares_memory: args.shared_memory,
        is_unix: args.unix,
        security,
    };
    transport::peer::run(&args.common, ways)
}

fn node_of(role: Role) -> NodeId {
    match role {
        Role::Send => FlpId(0).into(),
        Role::Receive => EpnId(0).into(),
    }
}

/// Writes certificates for both sides, of a farm that exists for this run.
fn issue(folder: &std::path::Path) -> anyhow::Result<()> {
    let authority = Authority::new("bench", Validity::of_days(1))?;
    authority.save(folder, false)?;
    for role in [Role::Send, Role::Receive] {
        let node = node_of(role);
        let pem = authority.issue(node, Validity::of_days(1))?;
        pem.save(&CertFiles::in_directory(folder, node), false)?;
    }
    Ok(())
}

/// Prints address and token, and starts receivers from then on.
fn serve(options: &Options, address: SocketAddr) -> anyhow::Result<()> {
    let server = Server::listen(address)?;
    let mut out = std::io::stdout();
    let (address, token) = (server.address(), server.token());
    writeln!(out, "--connect {address} --token {token}")?;
    out.flush()?;
    server.serve(options, |line| progress::line(line))
}

fn parse_kind(text: &str) -> Result<String, String> {
    let names = transport::names();
    if names.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "found `{text}`, expected one of {}",
        names.join(", ")
    ))
}

fn parse_size(text: &str) -> Result<usize, String> {
    let found = text
        .parse()
        .ok()
        .filter(|bytes| (16..=256 << 20).contains(bytes));
    found.ok_or_else(|| format!("found `{text}`, expected bytes, 16 to {}", 256 << 20))
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let found = text
        .parse()
        .ok()
        .filter(|seconds| (0.05..=3600.0).contains(seconds));
    found.ok_or_else(|| format!("found `{text}`, expected seconds, 0.05 to 3600"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: TransportArgs,
    }

    pub(super) fn parse(line: &str) -> Result<TransportArgs, String> {
        let words = std::iter::once("transport").chain(line.split_whitespace());
        let found = Command::try_parse_from(words).map(|found| found.args);
        found.map_err(|error| error.to_string())
    }

    #[test]
    fn lists_are_given_with_commas() {
        let args = parse(
            "--shapes 1-1,240-1 --sizes 4096,100000000 --queues 1,5,1000 --paths loopback,veth",
        )
        .unwrap()
        .options();
        let shapes: Vec<String> = args.shapes.iter().map(ToString::to_string).collect();
        assert_eq!(shapes, ["1-1", "240-1"]);
        assert_eq!(
            (args.sizes, args.queues),
            (vec![4096, 100_000_000], vec![1, 5, 1000])
        );
        assert_eq!(args.paths, [Path::Loopback, Path::Veth]);
    }

    #[test]
    fn the_defaults_are_those_of_the_benchmark() {
        assert_eq!(parse("").unwrap().options(), Options::default());
    }

    #[test]
    fn the_defaults_are_those_of_the_poster() {
        let args = parse("").unwrap();
        assert_eq!(
            (args.sizes.as_slice(), args.pairs, args.pool_bytes),
            (&SIZES[..], 7, 256 << 20)
        );
        assert_eq!(
            (args.options().binds, args.queues),
            (vec![Side::Receiver], vec![1000])
        );
    }

    #[test]
    fn a_wrong_value_is_answered_with_the_right_ones() {
        for (line, expected) in [
            ("--shapes 3", "expected senders-receivers, 1 to 1024 each"),
            ("--shapes 0-1", "expected senders-receivers"),
            ("--sizes 8", "expected bytes, 16 to"),
            ("--queues 0", "0 is not in 1..=1000000"),
            ("--transports zmq", "expected one of plain-tcp, sheaf,"),
            ("--seconds nan", "expected seconds, 0.05 to 3600"),
            ("--connect 10.0.0.1:7", "--token"),
            ("--remote host --paths veth", "cannot be used with"),
        ] {
            let error = parse(line).err().unwrap_or_default();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
