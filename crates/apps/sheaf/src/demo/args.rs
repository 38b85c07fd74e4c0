//! The command line of `sheaf demo`.

use super::faults::{self, Moment, Span};
use crate::duration;
use sheaf_node::config::{Ack, BulkConfig, SourceConfig, Threads};
use sheaf_node::role::Backend;
use sheaf_placement::{Reaction, policy};
use sheaf_scheduler::Incomplete;
use sheaf_stf_builder::SizeModel;
use sheaf_stf_builder::flp::Push;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

/// TFs a second of the LHC: a bunch crossing is 24.95 ns, an orbit has 3564, a TF 32 orbits (ALICE TDR 019).
pub(crate) const LHC_RATE_HZ: f64 = 1e9 / (24.95 * 3564.0 * 32.0);

/// Largest mean of a generator. Above that a node takes gigabytes of memory.
const STF_BYTES_MAX: u64 = 256 << 20;

/// Run a whole farm on this machine and show the fate of every timeframe.
///
/// Starts an ICN, FLPs and EPNs as processes that talk over TCP. The FLPs replay recorded data of the ALICE
/// inner tracker as an endless stream, the ICN chooses an EPN for each timeframe (TF), the EPNs build the TFs
/// and check every byte. Faults can be injected: kill a node, and no timeframe gets lost.
///
/// With several ICNs one leads and the others are ready to: kill the leader, and the run goes on under another.
///
/// At the end the accounting is recomputed from the event logs of the FLPs and EPNs and compared with that of
/// the ICN. Exit status: 0 if every announced TF has exactly one fate, 1 if not, 2 if the farm cannot start.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf demo                                   3 FLPs, 5 EPNs, 100 TF/s, until q or Ctrl-C
  sheaf demo --rate lhc --duration 10s         the rate of the LHC: 351.4 TF/s, 1.17 GB/s
  sheaf demo --kill epn:2@3s --duration 6s     an EPN dies, and no TF is lost
  sheaf demo --kill flp:1@3s --start flp:1@5s  an FLP dies: its TFs say what they miss; later it is back
  sheaf demo --pause epn:0@2s+1s               an EPN hangs for a second
  sheaf demo --icns 3 --kill icn:0@4s          the leading ICN dies, another takes over, and nothing is lost
  sheaf demo --timeframes 2000 --rate max --json summary.json
  sheaf demo --source generator --stf-bytes 1000000 --size-model lognormal --sink discard")]
pub(crate) struct Args {
    /// Start this many FLPs: nodes that read data out.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub(crate) flps: u16,
    /// Start this many EPNs: nodes that build TFs.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub(crate) epns: u16,
    /// Start this many ICNs: nodes that decide. 1, or with embedded membership an odd number from 3 on: one leads, and
    /// another takes over when it fails, as long as a majority lives. With --membership zookeeper, 2 by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=9))]
    pub(crate) icns: Option<u16>,
    /// Elect the leading ICN and store the verdicts among the ICNs, or in a private ZooKeeper ensemble of three
    /// servers, which the demo starts and ends (needs Java and ZooKeeper on this machine).
    #[arg(
        long,
        value_name = "embedded|zookeeper",
        value_enum,
        default_value = "embedded",
        hide_possible_values = true
    )]
    pub(crate) membership: Membership,
    /// Make this many TFs a second: a number, `lhc` (351.4) or `max` (as fast as it goes).
    #[arg(long, value_name = "HZ|lhc|max", default_value = "100", value_parser = parse_rate)]
    pub(crate) rate: Rate,
    /// Trigger every TF by the clock of the ICN, in place of announcements of the FLPs.
    #[arg(long)]
    pub(crate) paced: bool,
    /// Send STFs `eager`, pushed at once, or `granted`, fetched by the EPN a few at a time.
    #[arg(long, value_name = "eager|granted", default_value = "eager", value_parser = parse_push)]
    pub(crate) push: Push,
    /// Stop the sources after this time, counted from the first announce, such as 10s, 1.5m or 500ms.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) duration: Option<Duration>,
    /// Stop after this many TFs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeframes: Option<u64>,
    #[arg(
        long,
        value_name = "KIND|FILE",
        num_args = 1..,
        default_value = "replay",
        help = "Take STFs of this kind of source, or of these files",
        long_help = source_help()
    )]
    pub(crate) source: Vec<PathBuf>,
    /// Generator: make STFs of this many payload bytes on average.
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 1 << 20,
        value_parser = clap::value_parser!(u64).range(1..=STF_BYTES_MAX)
    )]
    pub(crate) stf_bytes: u64,
    /// Generator: vary sizes like this: equal, random, sine, lognormal.
    #[arg(long, value_name = "MODEL", default_value = "equal", value_parser = parse_size_model)]
    pub(crate) size_model: SizeModel,
    /// Cut TFs of this many LHC orbits, 88.9 µs each.
    #[arg(long, value_name = "N", default_value = "32")]
    pub(crate) orbits_per_tf: NonZeroU32,
    /// LCLS-II files: cut TFs of this time, in ns; the default is the period of 120 Hz.
    #[arg(long, value_name = "NS", default_value = "8333333")]
    pub(crate) window_ns: NonZeroU64,
    #[arg(
        long,
        value_name = "NAME",
        default_value = policy::DEFAULT,
        value_parser = parse_policy,
        help = "Choose EPNs by this policy",
        long_help = format!("Choose EPNs by this policy: {}", policy::choices())
    )]
    pub(crate) policy: String,
    /// Change the list of EPNs like this when one dies: whitelist, blacklist, reinitialise or none.
    #[arg(long, value_name = "NAME", default_value_t = Reaction::Whitelist)]
    pub(crate) reaction: Reaction,
    /// Use this seed for everything random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[arg(
        long,
        value_name = "SINK",
        default_value = "verify",
        value_parser = Sink::of_words,
        help = "Deliver TFs to this sink",
        long_help = sink_help()
    )]
    pub(crate) sink: Sink,
    /// Start this many writer nodes: EPNs hand their TFs to them, and they write the files of --sink streams:DIR.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    pub(crate) writers: u16,
    /// Report a TF as built when it is in memory (`built`), or on the disk (`stored`): then a killed EPN that is
    /// started again delivers its committed TFs. `stored` needs --sink file:DIR, or --writers. With `processed` the
    /// FLPs hold a TF until its consumer has finished, and TFs are delivered at least once: neither a killed EPN nor a
    /// killed consumer costs a TF. It needs --sink shm:PATH.
    #[arg(long, value_name = "built|stored|processed", default_value = "built", value_parser = parse_ack)]
    pub(crate) ack: Ack,
    /// Move STFs with so many threads in each FLP, EPN and writer: a number, or `auto` (one less than there are
    /// processors, 8 at most). With 1 the thread of the node moves them beside all else.
    #[arg(long, value_name = "N", default_value_t = Threads::Count(1))]
    pub(crate) threads: Threads,
    /// Encrypt all connections, with certificates made for this demo; `--tls=crc-only` leaves STFs in the clear.
    #[arg(
        long,
        value_name = "encrypted|crc-only",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "encrypted",
        value_parser = parse_bulk
    )]
    pub(crate) tls: Option<BulkConfig>,
    /// Build a TF that lacks STFs and list them (`allow`), or drop it (`never`).
    #[arg(long, value_name = "never|allow", default_value = "allow", value_parser = parse_incomplete)]
    pub(crate) incomplete: Incomplete,
    /// Kill a node at a time, such as epn:2@3s, counted from the first announce. May be repeated. `icn:N` is the ICN
    /// that leads at that moment, whatever N is; without one, as soon as there is one.
    #[arg(long, value_name = "NODE@TIME", value_parser = faults::parse_moment)]
    pub(crate) kill: Vec<Moment>,
    /// Stop a node for a while, such as epn:0@2s+1s. May be repeated. `icn:N` is the ICN that leads at that moment.
    #[arg(long, value_name = "NODE@TIME+SPAN", value_parser = faults::parse_span)]
    pub(crate) pause: Vec<Span>,
    /// Start a killed node again, such as epn:2@5s. May be repeated. `icn:N` is the ICN that has been dead for longest.
    #[arg(long, value_name = "NODE@TIME", value_parser = faults::parse_moment)]
    pub(crate) start: Vec<Moment>,
    /// Allocate this memory for payloads of one node, in MiB, at the start; by default a share of the machine.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(8..=65536))]
    pub(crate) memory: Option<u64>,
    /// Write the summary as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Keep the farm file, the logs and the event logs in this directory, which must be new or empty.
    #[arg(long, value_name = "DIR", visible_alias = "keep")]
    pub(crate) out: Option<PathBuf>,
    /// Print plain lines on a terminal, too.
    #[arg(long)]
    pub(crate) no_tui: bool,
    /// Serve the metrics of the ICN at this address.
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,
    /// Send the metrics of all nodes to this back end; once for each back end.
    #[arg(long, value_name = "URI")]
    pub(crate) metrics_to: Vec<Backend>,
    /// Start no collector. Else one (`sheaf monitor`) takes the metrics of all nodes, and the demo tells the address
    /// of its pages.
    #[arg(long)]
    pub(crate) no_monitor: bool,
}

/// Electors of the leading ICN, and place of the verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Membership {
    /// The ICNs themselves.
    Embedded,
    /// An ensemble of `ZooKeeper` servers.
    Zookeeper,
}

impl Membership {
    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Zookeeper => "zookeeper",
        }
    }
}

/// How many TFs a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// This many.
    Hz(f64),
    /// As many as the farm takes.
    Max,
}

/// Consumer of the TFs.
pub(crate) type Sink = sheaf_node::config::SinkConfig;

/// Returns the help of `--sink`, from the registrations of sinks.
fn sink_help() -> String {
    let kinds = Sink::KINDS.iter();
    let kinds: Vec<String> = kinds
        .map(|kind| format!("`{}` ({})", kind.words(), kind.help))
        .collect();
    format!(
        "Deliver TFs to this sink: {}. {{epn}} in a place is the index of the EPN",
        kinds.join(", ")
    )
}

/// Returns the help of `--source`, from the registrations of sources: those that need no more than a name, and
/// those that read files.
fn source_help() -> String {
    let (mut named, mut of_files) = (Vec::new(), Vec::new());
    for kind in SourceConfig::KINDS {
        let source = SourceConfig::with_defaults(kind).filter(|source| !source.is_fed());
        match source.as_ref().map(SourceConfig::files) {
            Some(Some([])) => of_files.push(format!("{} ({})", kind.name, kind.help)),
            Some(_) => named.push(format!("`{}` ({})", kind.name, kind.help)),
            None => {}
        }
    }
    format!(
        "Take STFs of {}, or of files of detector data, whose kind is detected: {}",
        named.join(", "),
        of_files.join(", ")
    )
}

fn parse_push(text: &str) -> Result<Push, String> {
    let found = Push::ALL.into_iter().find(|push| push.name() == text);
    found.ok_or_else(|| "expected eager or granted".to_owned())
}

fn parse_rate(text: &str) -> Result<Rate, String> {
    match text {
        "lhc" => Ok(Rate::Hz(LHC_RATE_HZ)),
        "max" => Ok(Rate::Max),
        _ => match text.parse() {
            Ok(hz) if hz > 0.0 && hz <= 1e6 => Ok(Rate::Hz(hz)),
            _ => Err(format!(
                "found `{text}`, expected lhc, max or a number above 0, at most 1000000"
            )),
        },
    }
}

fn parse_size_model(text: &str) -> Result<SizeModel, String> {
    match text {
        "equal" => Ok(SizeModel::Equal),
        "random" => Ok(SizeModel::Random),
        "sine" => Ok(SizeModel::Sine),
        "lognormal" => Ok(SizeModel::Lognormal),
        _ => Err(format!(
            "found `{text}`, expected equal, random, sine or lognormal"
        )),
    }
}

fn parse_policy(text: &str) -> Result<String, policy::UnknownPolicy> {
    policy::by_name(text, 0).map(|_| text.to_owned())
}

fn parse_bulk(text: &str) -> Result<BulkConfig, String> {
    match text {
        "encrypted" => Ok(BulkConfig::Encrypted),
        "crc-only" => Ok(BulkConfig::CrcOnly),
        _ => Err(format!("found `{text}`, expected encrypted or crc-only")),
    }
}

fn parse_ack(text: &str) -> Result<Ack, String> {
    let names = Ack::ALL.map(Ack::name).join(", ");
    Ack::named(text).ok_or_else(|| format!("found `{text}`, expected one of {names}"))
}

fn parse_incomplete(text: &str) -> Result<Incomplete, String> {
    match text {
        "never" => Ok(Incomplete::Never),
        "allow" => Ok(Incomplete::Allow),
        _ => Err(format!("found `{text}`, expected never or allow")),
    }
}

impl Args {
    /// Whether the summary goes to the standard output, and so nothing else may.
    pub(crate) fn is_json_on_stdout(&self) -> bool {
        self.json
            .as_ref()
            .is_some_and(|path| path.as_os_str() == "-")
    }

    /// How many ICNs there are.
    pub(crate) fn icns(&self) -> u16 {
        self.icns.unwrap_or(match self.membership {
            Membership::Embedded => 1,
            Membership::Zookeeper => 2,
        })
    }

    /// How many of the ICNs have to live for one to lead.
    pub(crate) fn icns_needed(&self) -> u16 {
        match self.membership {
            Membership::Embedded => self.icns() / 2 + 1,
            Membership::Zookeeper => 1,
        }
    }

    /// Whether ICNs have addresses that are fixed before they begin, and logs that outlive them: all but a lone one
    /// that is never touched.
    pub(crate) fn has_lasting_icns(&self) -> bool {
        let is_icn = |node: sheaf_protocol::NodeId| node.role == sheaf_protocol::Role::Icn;
        self.icns() > 1
            || self.membership == Membership::Zookeeper
            || self.fault_nodes().any(is_icn)
    }

    /// The nodes that faults name, in the order of the command line.
    pub(crate) fn fault_nodes(&self) -> impl Iterator<Item = sheaf_protocol::NodeId> + '_ {
        let moments = self
            .kill
            .iter()
            .chain(&self.start)
            .map(|moment| moment.node);
        moments.chain(self.pause.iter().map(|pause| pause.moment.node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, String> {
        let words = std::iter::once("demo").chain(line.split_whitespace());
        Command::try_parse_from(words)
            .map(|found| found.args)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_lhc_makes_351_tfs_a_second() {
        assert!((LHC_RATE_HZ - 351.4).abs() < 0.05, "{LHC_RATE_HZ}");
    }

    #[test]
    fn the_defaults_are_those_of_the_issue() {
        let args = parse("").unwrap();
        assert_eq!((args.flps, args.epns, args.rate), (3, 5, Rate::Hz(100.0)));
        assert_eq!((args.orbits_per_tf.get(), args.sink.kind()), (32, "verify"));
        assert_eq!(args.incomplete, Incomplete::Allow);
    }

    #[test]
    fn every_flag_of_the_examples_is_known() {
        let help = <Command as clap::CommandFactory>::command()
            .render_long_help()
            .to_string();
        let examples = help
            .lines()
            .filter_map(|line| line.strip_prefix("  sheaf demo"));
        let mut count = 0;
        for example in examples {
            // What stands behind two spaces is the explanation.
            let line = example.trim_start().split("  ").next().unwrap_or_default();
            let line = if example.starts_with("   ") { "" } else { line };
            parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            count += 1;
        }
        assert_eq!(count, 8);
    }

    #[test]
    fn several_files_may_follow_source() {
        let args = parse("--source a.raw b.raw --json -").unwrap();
        assert_eq!(
            args.source,
            [PathBuf::from("a.raw"), PathBuf::from("b.raw")]
        );
        assert!(args.is_json_on_stdout());
    }

    #[test]
    fn a_wrong_value_is_answered_with_the_right_ones() {
        for (line, expected) in [
            ("--rate fast", "expected lhc, max or a number above 0"),
            ("--rate 0", "expected lhc, max or a number above 0"),
            (
                "--size-model big",
                "expected equal, random, sine or lognormal",
            ),
            ("--policy best", "expected one of fixed, random"),
            (
                "--reaction best",
                "expected one of whitelist, blacklist, reinitialise, none",
            ),
            (
                "--sink file:",
                "expected one of discard, verify, file:DIRECTORY, stf-file:DIRECTORY, \
                 streams:DIRECTORY, unix:PATH, shm:PATH",
            ),
            ("--incomplete maybe", "expected never or allow"),
            ("--kill epn:2", "expected NODE@TIME, such as epn:2@3s"),
            ("--flps 0", "0 is not in 1..=512"),
            (
                "--membership none",
                "[possible values: embedded, zookeeper]",
            ),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
