//! The command line of `sheaf bench farm`.

use crate::{json_file, progress};
use sheaf_bench::farm::{self, Options, Security, Shape};
use sheaf_node::config::{PayloadDigest, Threads};
use std::path::PathBuf;
use std::process::ExitCode;

/// Largest STF that is measured: a farm of a few nodes then takes gigabytes.
const STF_BYTES_MAX: u64 = 64 << 20;

/// Measure a farm beside a plain pair of TCP sockets.
///
/// Runs a farm as processes over loopback with everything on: generated STFs with CRC-32C at the source and on
/// arrival, announce, assign, build, commit, event logs and books. In turn with each run comes a run of
/// `plain_tcp`, two bare sockets, or two TLS sessions, that move messages of the same size. Each pair of runs gives a
/// ratio; pairs in which the machine was busy with others are dropped and taken again. See docs/how-to/bench.md.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf bench farm                                   1 FLP, 1 EPN, STFs of 1 MB
  sheaf bench farm --shape 1x1 --shape 3x5           two shapes
  sheaf bench farm --stf-bytes 10000 --stf-bytes 1000000 --json farm.json
  sheaf bench farm --security plain --security tls   in the clear, and under TLS
  sheaf bench farm --pin=false --pairs 9 --seconds 3")]
pub(super) struct FarmArgs {
    /// Start this many FLPs.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) flps: u16,
    /// Start this many EPNs.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) epns: u16,
    /// Measure a farm of FLPs x EPNs, such as 3x5, in place of --flps and --epns; may be repeated.
    #[arg(long, value_name = "NxM", conflicts_with_all = ["flps", "epns"])]
    pub(super) shape: Vec<Shape>,
    /// Protect the connections by this: plain, tls or crc-only; may be repeated. With tls the plain pair is one of TLS
    /// sessions; with crc-only STFs are in the clear, as the plain pair.
    #[arg(long, value_name = "KIND", default_values_t = [Security::Plain])]
    pub(super) security: Vec<Security>,
    /// Send this many bytes in an STF, and in a message of the plain pair; may be repeated.
    #[arg(
        long,
        value_name = "BYTES",
        default_values_t = [1_000_000],
        value_parser = clap::value_parser!(u64).range(1..=STF_BYTES_MAX)
    )]
    pub(super) stf_bytes: Vec<u64>,
    /// Take this many undisturbed pairs of runs for each shape and size.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) pairs: u32,
    /// Measure a window of this length in each run, in s.
    #[arg(long, value_name = "S", default_value_t = 1.5, value_parser = parse_window)]
    pub(super) seconds: f64,
    /// Begin the window this long after the start of a run, in s.
    #[arg(long, value_name = "S", default_value_t = 0.3, value_parser = parse_seconds)]
    pub(super) warm_up_seconds: f64,
    /// Pin every process to a CPU; on by default if there are two.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) pin: Option<bool>,
    /// Use this congestion control for all sockets, by its kernel name.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(super) congestion: String,
    /// Run the plain pair of this program; by default `plain_tcp` beside this one.
    #[arg(long, value_name = "PATH")]
    pub(super) peer: Option<PathBuf>,
    /// Hold this many bytes in an FLP until their TFs are decided; at full speed the hold is always full. By default
    /// that of the farm file.
    #[arg(long, value_name = "BYTES")]
    pub(super) hold_bytes: Option<u64>,
    /// Hold this many bytes of TFs in an EPN; by default that of the farm file.
    #[arg(long, value_name = "BYTES")]
    pub(super) capacity_bytes: Option<u64>,
    /// Move STFs with so many threads in each node: a number, or `auto`. Pinned nodes have one CPU for all of them:
    /// with --pin=false.
    #[arg(long, value_name = "N", default_value_t = Threads::Count(1))]
    pub(super) threads: Threads,
    /// Lend STFs to EPNs in shared memory, as in any farm on one machine. Without it, send them as between machines.
    #[arg(long)]
    pub(super) shared_memory: bool,
    /// Compute these digests in EPNs: crc32c, those of all STFs, or none-on-lane, of all but those that are lent by
    /// --shared-memory.
    #[arg(long, value_name = "DIGEST", default_value_t = PayloadDigest::Crc32c)]
    pub(super) digest: PayloadDigest,
    /// Write the report as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

impl FarmArgs {
    fn options(&self) -> Options {
        let (flps, epns) = (self.flps, self.epns);
        Options {
            shapes: if self.shape.is_empty() {
                vec![Shape { flps, epns }]
            } else {
                self.shape.clone()
            },
            security: self.security.clone(),
            stf_bytes: self.stf_bytes.clone(),
            pairs: self.pairs,
            seconds: self.seconds,
            warm_up_seconds: self.warm_up_seconds,
            pin: self.pin.unwrap_or(true),
            congestion: self.congestion.clone(),
            peer: self.peer.clone(),
            hold_bytes: self.hold_bytes,
            capacity_bytes: self.capacity_bytes,
            threads: self.threads,
            shared_memory: self.shared_memory,
            digest: self.digest,
        }
    }
}

/// Runs the benchmark.
///
/// # Errors
///
/// What is wrong with the arguments, or why a run did not come to its end in order.
pub(super) fn run(args: &FarmArgs) -> anyhow::Result<ExitCode> {
    let report = farm::measure(&args.options(), &mut |line| progress::line(line))?;
    // To machines first: a reader of the table may have gone.
    if let Some(path) = &args.json {
        json_file::write(path, &report.to_json())?;
    }
    json_file::tell(args.json.as_deref(), &report.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let found = text.parse().ok();
    found
        .filter(|seconds| (0.0..=3600.0).contains(seconds))
        .ok_or_else(|| format!("found `{text}`, expected seconds, 0 to 3600"))
}

/// A window has several status lines of the ICN in it, and CPU times come in steps of 10 ms.
fn parse_window(text: &str) -> Result<f64, String> {
    let found = parse_seconds(text).ok();
    found
        .filter(|seconds| *seconds >= 0.2)
        .ok_or_else(|| format!("found `{text}`, expected seconds, 0.2 to 3600"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: FarmArgs,
    }

    pub(super) fn parse(line: &str) -> Result<FarmArgs, String> {
        let words = std::iter::once("farm").chain(line.split_whitespace());
        Command::try_parse_from(words)
            .map(|found| found.args)
            .map_err(|error| error.to_string())
    }

    fn shapes(line: &str) -> Vec<String> {
        let shapes = parse(line).unwrap().options().shapes;
        shapes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_defaults_are_those_of_the_benchmark() {
        assert_eq!(parse("").unwrap().options(), Options::default());
    }

    #[test]
    fn the_defaults_are_those_of_the_target() {
        let args = parse("").unwrap();
        assert_eq!(shapes(""), ["1x1"]);
        assert_eq!(args.stf_bytes, [1_000_000]);
        assert_eq!(
            (args.pairs, args.seconds, args.congestion.as_str()),
            (7, 1.5, "cubic")
        );
    }

    #[test]
    fn shapes_and_sizes_may_be_repeated() {
        assert_eq!(shapes("--flps 2 --epns 4"), ["2x4"]);
        assert_eq!(shapes("--shape 1x1 --shape 3x5"), ["1x1", "3x5"]);
        let args = parse("--stf-bytes 10 --stf-bytes 20").unwrap();
        assert_eq!(args.stf_bytes, [10, 20]);
        let args = parse("--security tls --security crc-only").unwrap();
        assert_eq!(args.security, [Security::Tls, Security::CrcOnly]);
    }

    #[test]
    fn pinning_is_the_machines_to_say_unless_it_is_told() {
        let pin = |line| parse(line).unwrap().pin;
        assert_eq!(
            [pin(""), pin("--pin"), pin("--pin=false")],
            [None, Some(true), Some(false)]
        );
    }

    #[test]
    fn a_wrong_value_is_answered_with_the_right_ones() {
        for (line, expected) in [
            ("--shape 3", "expected FLPs x EPNs, 1 to 64 each"),
            ("--shape 0x5", "expected FLPs x EPNs, 1 to 64 each"),
            ("--shape 1x1 --flps 2", "cannot be used with"),
            ("--seconds 0.1", "expected seconds, 0.2 to 3600"),
            ("--warm-up-seconds nan", "expected seconds, 0 to 3600"),
            ("--stf-bytes 0", "0 is not in 1..=67108864"),
            ("--security ssl", "expected plain, tls or crc-only"),
        ] {
            let error = parse(line).err().unwrap_or_default();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
