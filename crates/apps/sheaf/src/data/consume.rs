//! `sheaf data consume`: a consumer of an EPN, which looks at the timeframes in its memory.

use crate::duration;
use crate::fail;
use crate::json_file;
use anyhow::Context as _;
use bytes::Bytes;
use serde::Serialize;
use sheaf_node::consume::{ConsumeError, Consumer, Lent, Next, faults};
use sheaf_node::shutdown::Shutdown;
use sheaf_protocol::Tf;
use sheaf_sim::des::TimeDraw;
use sheaf_sim::scenario::Processing;
use sheaf_transport::handover::{AnswerError, TakeError, are_tags};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Version of the schema.
const SCHEMA: u32 = 1;
/// How often the flag of shutdown and the sockets of EPNs are polled.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often it says how it goes.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How long an EPN that listens has to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// Consume timeframes of an EPN on this machine without a copy, and check them.
///
/// Connects to the sink `shm` of an EPN, reads every timeframe (TF) in shared memory, recomputes the CRC-32C of its
/// payloads, and releases it. Several consumers may share an EPN; each TF goes to one of them. Ends with the EPN, or on
/// SIGTERM or SIGINT. Exit status: 0; 1 if a TF was damaged or the EPN broke the protocol; 2 if there is no EPN. How to
/// write such a program: docs/how-to/shm.md.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf demo --epns 1 --sink shm:/tmp/epn & sheaf data consume /tmp/epn
  sheaf data consume /run/sheaf/epn-0 --log tfs.jsonl       what was in each TF, a line each
  sheaf data consume /run/sheaf/epn-0 --again --no-check    for as long as there are EPNs, as fast as it goes
  sheaf data consume /run/sheaf/epn-0 --work 20ms           holds each TF for 20 ms (sheaf data records: who waited)
  sheaf data consume /run/sheaf/epn-0 --work 20ms --work-spread exponential    times around 20 ms
  sheaf data consume /run/sheaf/epn-0 --tag physics --tag-every 10    a tenth of the TFs to the stream of this tag")]
pub(crate) struct Args {
    /// Connect to this socket of an EPN: `epn.sink.path` of its farm file.
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Consume this many TFs; without it, until the EPN ends.
    #[arg(long, value_name = "N")]
    tfs: Option<u64>,
    /// Wait at most this long for an EPN to listen.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    wait: Duration,
    /// Wait for the next EPN when this one ends.
    #[arg(long)]
    again: bool,
    /// Do not check the payloads.
    #[arg(long)]
    no_check: bool,
    /// Hold each TF for this time, as a consumer that works on it.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    work: Option<Duration>,
    /// Draw the time of each TF around that of --work: exponential, lognormal:SIGMA, pareto:ALPHA or trace:FILE.
    #[arg(long, value_name = "SPREAD", default_value = "fixed", requires = "work", value_parser = spread)]
    work_spread: Processing,
    /// Take the time of --work for a TF of so many bytes, and for others in proportion.
    #[arg(long, value_name = "BYTES", requires = "work", value_parser = clap::value_parser!(u64).range(1..))]
    work_bytes: Option<u64>,
    /// Draw times from this seed: equal for a TF wherever it is consumed, as in a simulation.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "work")]
    work_seed: u64,
    /// Give TFs back with these tags, with a comma between two, for streams of [epn.sink.write].
    #[arg(long, value_name = "TAGS", value_parser = parse_tags)]
    tag: Option<String>,
    /// Tag one of so many TFs: those whose id is a multiple.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "tag",
          value_parser = clap::value_parser!(u64).range(1..))]
    tag_every: u64,
    /// Give TFs that have a tag back with a product: the line of --log, as JSON.
    #[arg(long, requires = "tag")]
    product: bool,
    /// Write a line of JSON for each TF to this file.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write the summary as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// End when the parent process, which has this id, ends.
    #[arg(long, value_name = "PID", hide = true)]
    parent: Option<i32>,
}

fn spread(text: &str) -> Result<Processing, String> {
    Processing::default().with_spread(text)
}

impl Args {
    /// Returns how long this consumer works on TFs; `None`: not at all.
    fn work(&self) -> Option<TimeDraw> {
        let processing = Processing {
            ms: self.work?.as_secs_f64() * 1e3,
            by_size: self.work_bytes.is_some(),
            ..self.work_spread.clone()
        };
        #[expect(clippy::cast_precision_loss, reason = "a time in proportion to it")]
        let tf_bytes = self.work_bytes.unwrap_or(1) as f64;
        Some(TimeDraw::new(processing, tf_bytes, self.work_seed))
    }
}

fn parse_tags(text: &str) -> Result<String, String> {
    if text.is_empty() || !are_tags(text) {
        return Err("expected words of a-z, 0-9, - and _ with a comma between two".to_owned());
    }
    Ok(text.to_owned())
}

/// Report of `--json`. `docs/how-to/shm.md` describes every field.
#[derive(Clone, Debug, Default, Serialize)]
struct Summary {
    schema: u32,
    version: &'static str,
    tfs: u64,
    incomplete: u64,
    redelivered: u64,
    bytes: u64,
    damaged: u64,
    tagged: u64,
    seconds: f64,
}

/// A line of `--log`.
#[derive(Serialize)]
struct Line<'a> {
    run: String,
    tf: u64,
    attempt: u32,
    redelivered: bool,
    bytes: u64,
    parts: Vec<PartLine>,
    missing: Vec<u16>,
    faults: &'a [String],
}

#[derive(Serialize)]
struct PartLine {
    flp: u16,
    incarnation: u64,
    bytes: u64,
    digest: u32,
}

impl<'a> Line<'a> {
    fn of(tf: &Tf<Bytes>, faults: &'a [String]) -> Self {
        let parts = tf.parts.iter().map(|part| PartLine {
            flp: part.source.flp.0,
            incarnation: part.source.incarnation.0,
            bytes: part.bytes,
            digest: part.digest,
        });
        Self {
            run: tf.run.to_string(),
            tf: tf.tf.0,
            attempt: tf.attempt.0,
            redelivered: tf.is_redelivered,
            bytes: tf.bytes(),
            parts: parts.collect(),
            missing: tf.missing.iter().map(|flp| flp.0).collect(),
            faults,
        }
    }
}

/// Runs the command.
///
/// # Errors
///
/// Reasons why TFs cannot be taken or written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    json_file::check(args.json.as_deref())?;
    if let Some(parent) = args.parent {
        crate::parent::end_with(parent)?;
    }
    let shutdown = Shutdown::on_signals().context("cannot handle signals")?;
    let log = args.log.as_deref().map(create).transpose()?;
    let mut session = Session {
        args,
        work: args.work(),
        shutdown,
        log,
        summary: Summary {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            ..Summary::default()
        },
        began: Instant::now(),
        told: (Instant::now(), 0, 0),
    };
    let mut wait = args.wait;
    while let Some(consumer) = session.connect(wait)? {
        session.take(consumer)?;
        if !args.again || session.is_over() {
            break;
        }
        wait = Duration::MAX;
    }
    session.end()
}

fn create(path: &Path) -> anyhow::Result<BufWriter<File>> {
    let bad = |error| fail::bad_use(format!("cannot write --log {}: {error}", path.display()));
    Ok(BufWriter::new(File::create(path).map_err(bad)?))
}

struct Session<'a> {
    args: &'a Args,
    work: Option<TimeDraw>,
    shutdown: Shutdown,
    log: Option<BufWriter<File>>,
    summary: Summary,
    began: Instant,
    /// When it last said how it goes, and TFs and bytes then.
    told: (Instant, u64, u64),
}

impl Session<'_> {
    fn is_over(&self) -> bool {
        let has_all = self.args.tfs.is_some_and(|tfs| self.summary.tfs >= tfs);
        has_all || self.shutdown.is_requested()
    }

    /// The next EPN that listens there within `wait`; `None`: the shutdown comes first.
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing tells when another process begins to listen"
    )]
    fn connect(&self, wait: Duration) -> anyhow::Result<Option<Consumer>> {
        let began = Instant::now();
        loop {
            if self.is_over() {
                return Ok(None);
            }
            match Consumer::connect(&self.args.path, ANSWER_WAIT) {
                Ok(consumer) => return Ok(Some(consumer)),
                Err(error) if !is_absent(&error) || began.elapsed() >= wait => {
                    return Err(fail::bad_use(error));
                }
                Err(_) => std::thread::sleep(LOOK_EVERY),
            }
        }
    }

    fn take(&mut self, mut consumer: Consumer) -> anyhow::Result<()> {
        while !self.is_over() {
            match consumer.next(Some(LOOK_EVERY))? {
                Next::Tf(tf) => self.look_at(tf)?,
                Next::Nothing => {}
                Next::End => break,
            }
            if self.told.0.elapsed() >= TELL_EVERY {
                self.tell();
            }
        }
        Ok(())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the work of a consumer, as asked for"
    )]
    fn look_at(&mut self, tf: Lent) -> anyhow::Result<()> {
        if let Some(work) = &self.work {
            std::thread::sleep(Duration::from_nanos(work.ns(tf.tf.0, 1.0, tf.bytes())));
        }
        let found = if self.args.no_check {
            Vec::new()
        } else {
            faults(&tf)
        };
        let summary = &mut self.summary;
        summary.tfs += 1;
        summary.bytes += tf.bytes();
        summary.incomplete += u64::from(!tf.missing.is_empty());
        summary.redelivered += u64::from(tf.is_redelivered);
        summary.damaged += u64::from(!found.is_empty());
        for fault in &found {
            self.say(&format!("TF {}: {fault}", tf.tf.0));
        }
        let line = (self.log.is_some() || self.args.product).then(|| {
            let line = serde_json::to_string(&Line::of(&tf, &found));
            line.expect("names and numbers always have a JSON form")
        });
        if let (Some(log), Some(line)) = (&mut self.log, &line) {
            writeln!(log, "{line}").context("cannot write the log")?;
        }
        let tags = self.args.tag.as_deref();
        let Some(tags) = tags.filter(|_| tf.tf.0.is_multiple_of(self.args.tag_every)) else {
            return Ok(());
        };
        self.summary.tagged += 1;
        let given = match line.filter(|_| self.args.product) {
            Some(line) => tf.give_back_with(tags, (line + "\n").as_bytes()),
            None => tf.give_back(tags),
        };
        given.map_err(|error| match error {
            AnswerError::NotTaken => fail::bad_use(error),
            error => anyhow::Error::new(error).context("cannot give a TF back"),
        })
    }

    fn tell(&mut self) {
        let (since, tfs, bytes) = self.told;
        let seconds = since.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
        let rate = |now: u64, then: u64| (now - then) as f64 / seconds;
        let text = format!(
            "{:6.1} s  {:9.1} TF/s  {:8.2} GB/s  {} TFs",
            self.began.elapsed().as_secs_f64(),
            rate(self.summary.tfs, tfs),
            rate(self.summary.bytes, bytes) / 1e9,
            self.summary.tfs
        );
        self.say(&text);
        self.told = (Instant::now(), self.summary.tfs, self.summary.bytes);
    }

    /// Prints a line for people. A closed output does not stop the program.
    fn say(&self, text: &str) {
        let is_json_out = self.args.json.as_deref() == Some(Path::new("-"));
        let _ = if is_json_out {
            writeln!(std::io::stderr(), "{text}")
        } else {
            writeln!(std::io::stdout(), "{text}")
        };
    }

    fn end(mut self) -> anyhow::Result<ExitCode> {
        self.summary.seconds = self.began.elapsed().as_secs_f64();
        if let Some(log) = &mut self.log {
            log.flush().context("cannot write the log")?;
        }
        let summary = &self.summary;
        self.say(&format!(
            "{} TFs ({} incomplete, {} redelivered), {} bytes, {} damaged",
            summary.tfs, summary.incomplete, summary.redelivered, summary.bytes, summary.damaged
        ));
        if let Some(path) = &self.args.json {
            let text = serde_json::to_string_pretty(summary);
            let text = text.expect("names and numbers always have a JSON form") + "\n";
            if path.as_os_str() == "-" {
                let _ = std::io::stdout().write_all(text.as_bytes());
            } else {
                std::fs::write(path, text)
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        Ok(if summary.damaged == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

/// Whether an EPN may still come to be there.
fn is_absent(error: &ConsumeError) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound, WouldBlock};
    let ConsumeError::Take(TakeError::Connect { source, .. }) = error else {
        return false;
    };
    matches!(
        source.kind(),
        NotFound | ConnectionRefused | ConnectionReset | WouldBlock
    )
}
