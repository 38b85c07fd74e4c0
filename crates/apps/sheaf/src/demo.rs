//! `sheaf demo`: a farm on this machine, as separate processes, watched and then judged.
//!
//! `args` says what is wanted, `farm_file` makes a farm of it, `sheaf-farm` runs its processes, `run` leads them
//! from their start to their end, `watch` knows how they do and `screen` shows it. When all have ended, `judge`
//! recomputes the accounting from their event logs, and `summary` tells the result.

mod args;
#[cfg(feature = "monitor")]
mod collector;
mod farm_file;
mod faults;
mod history;
mod icns;
mod plain;
mod run;
pub(crate) mod screen;
mod summary;
#[cfg(feature = "tui")]
pub(crate) mod view;
pub(crate) mod watch;

pub(crate) use args::Args;

use crate::{fail, json_file};
use anyhow::Context as _;
use args::Rate;
use history::History;
use run::{Ender, Record, Run};
use screen::Screen;
use sheaf_audit::{self as verify, Evidence, Options};
use sheaf_farm::{Life, Notice, RunDir, Supervisor, quit_on_signals};
use sheaf_node::config::FarmConfig;
use sheaf_protocol::Role;
use sheaf_zookeeper::server::Ensemble;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use summary::{Outcome, Summary};
use watch::Watch;

/// How often the ICN reports the farm.
const STATUS_MS: u64 = 250;
/// Notices that may wait for the supervisor; a node that writes more waits.
const NOTICES_MAX: usize = 1024;

/// Runs the demo.
///
/// # Errors
///
/// What is wrong with the arguments, or why the farm did not come to its end in order.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    json_file::check(args.json.as_deref())?;
    let mut dir = RunDir::make(args.out.as_deref()).map_err(|error| bad_use(&error.into()))?;
    let file = dir.file("farm.toml");
    let (config, beside) = write_farm_file(args, &dir, &file).map_err(|error| bad_use(&error))?;
    let (sender, notices) = sync_channel(NOTICES_MAX);
    quit_on_signals(sender.clone()).context("cannot handle signals")?;
    let mut watch = Watch::default();
    let outcome = {
        let mut farm = Supervisor::new(&dir, &file, STATUS_MS, sender.clone())?;
        let mut ender = Ender::Signal;
        if args.has_lasting_icns() {
            farm.set_fixed_icns();
            let (config, notices) = (Box::new(config.clone()), sender.clone());
            ender = Ender::Order { config, notices };
        }
        // An error means that the demo is over already.
        let quit = move || drop(sender.send(Notice::Quit));
        let title = title(args, &config);
        let mut screen = Screen::new(&title, !args.no_tui, args.is_json_on_stdout(), quit)?;
        watch.tell(0.0, memory(args, &config));
        beside.news.iter().for_each(|news| watch.tell(0.0, news));
        let drain = Duration::from_millis(config.icn.scheduler.drain_ms);
        let run = Run::new(args, &mut farm, &mut watch, &mut screen, drain, ender);
        let outcome = run.run(&notices);
        drop(screen);
        beside.end();
        outcome.and_then(|record| judge(args, &dir, &farm, &watch, record))
    };
    let summary = match outcome {
        Ok(summary) => summary,
        Err(error) => {
            dir.keep();
            let kept = dir.kept().unwrap_or(Path::new("")).display();
            return Err(error.context(format!("the demo failed (logs in {kept})")));
        }
    };
    if !summary.is_good() {
        dir.keep();
    }
    tell(args, &dir, &summary)?;
    Ok(if summary.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn bad_use(error: &anyhow::Error) -> anyhow::Error {
    fail::bad_use(fail::message(error))
}

/// Processes beside the nodes; they end when this is dropped.
#[derive(Default)]
struct Beside {
    _ensemble: Option<Ensemble>,
    #[cfg(feature = "monitor")]
    collector: Option<collector::Collector>,
    /// News about them, for the user.
    news: Vec<String>,
}

impl Beside {
    /// Starts what the farm needs, and puts it into the farm file.
    fn start(args: &Args, dir: &RunDir, config: &mut FarmConfig) -> anyhow::Result<Self> {
        #[cfg_attr(not(feature = "monitor"), expect(unused_mut, reason = "no collector"))]
        let mut beside = Self {
            _ensemble: icns::start_ensemble(args, config)?,
            ..Self::default()
        };
        #[cfg(feature = "monitor")]
        if !args.no_monitor {
            beside.start_collector(dir, config);
        }
        Ok(beside)
    }

    /// A farm runs without its collector, too: the reason why there is none is shown.
    #[cfg(feature = "monitor")]
    fn start_collector(&mut self, dir: &RunDir, config: &mut FarmConfig) {
        match collector::Collector::start(dir) {
            Ok(collector) => {
                collector.add_to(&mut config.metrics);
                self.news
                    .push(format!("monitoring pages at {}", collector.pages()));
                self.collector = Some(collector);
            }
            Err(error) => self
                .news
                .push(format!("the collector does not start: {error:#}")),
        }
    }

    /// Ends what takes samples, after all nodes have ended.
    fn end(self) {
        #[cfg(feature = "monitor")]
        if let Some(collector) = self.collector {
            collector.end();
        }
    }
}

/// Starts what the farm needs beside its nodes, writes the farm file, and reads it back as the nodes will: what they
/// would refuse is reported here and at once.
fn write_farm_file(args: &Args, dir: &RunDir, file: &Path) -> anyhow::Result<(FarmConfig, Beside)> {
    let mut config = farm_file::farm_config(args, dir)?;
    let beside = Beside::start(args, dir, &mut config)?;
    farm_file::write(&config, file)?;
    let mut roles = vec![Role::Icn, Role::Flp, Role::Epn];
    roles.extend((args.writers > 0).then_some(Role::Writer));
    let config = FarmConfig::load_for(file, &roles)?;
    Ok((config, beside))
}

fn title(args: &Args, config: &FarmConfig) -> String {
    let rate = match args.rate {
        Rate::Hz(hz) => format!("{hz:.1} TF/s"),
        Rate::Max => "full speed".to_owned(),
    };
    let end = match (args.duration, args.timeframes) {
        (Some(duration), None) => format!("after {} s, ", duration.as_secs_f64()),
        (None, Some(tfs)) => format!("after {tfs} TFs, "),
        (Some(duration), Some(tfs)) => format!("after {} s or {tfs} TFs, ", duration.as_secs_f64()),
        (None, None) => String::new(),
    };
    let writers = match args.writers {
        0 => String::new(),
        some => format!(", {}", counted(some.into(), "writer")),
    };
    format!(
        "sheaf demo: {}, {}, {}{writers} on this machine, {} at {rate}; ends {end}with q or Ctrl-C",
        counted(args.icns().into(), "ICN"),
        counted(args.flps.into(), "FLP"),
        counted(args.epns.into(), "EPN"),
        config.flp.source.kind()
    )
}

/// Names the memory that the nodes take at their start, and what they may take.
fn memory(args: &Args, config: &FarmConfig) -> String {
    let roles = [
        (Role::Icn, usize::from(args.icns())),
        (Role::Flp, usize::from(args.flps)),
        (Role::Epn, usize::from(args.epns)),
        (Role::Writer, usize::from(args.writers)),
    ];
    let roles = roles.into_iter().filter(|(_, count)| *count > 0);
    let (mut at_start, mut most) = (0.0, 0.0);
    let each = roles.map(|(role, count)| {
        let budget = config.memory_budget(role);
        at_start += budget.at_start as f64 / 1e6 * count as f64;
        most += budget.total() as f64 / 1e6 * count as f64;
        let article = if role == Role::Writer { "a" } else { "an" };
        let name = name_of(role);
        format!("{:.0} {article} {name}", budget.at_start as f64 / 1e6)
    });
    let each = each.collect::<Vec<String>>().join(", ");
    format!(
        "the nodes take {at_start:.0} MB of memory at their start ({each}), and {most:.0} at most"
    )
}

/// Returns the name of a role in a text.
fn name_of(role: Role) -> &'static str {
    match role {
        Role::Icn => "ICN",
        Role::Flp => "FLP",
        Role::Epn => "EPN",
        Role::Operator => "operator",
        Role::Writer => "writer",
    }
}

fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Recomputes the accounting from the event logs.
fn judge(
    args: &Args,
    dir: &RunDir,
    farm: &Supervisor<'_>,
    watch: &Watch,
    record: Record,
) -> anyhow::Result<Summary> {
    let mut evidence = Evidence::default();
    for life in farm.lives() {
        evidence
            .read(&life.events, Some(life.node), life.fate_of_log())
            .with_context(|| format!("cannot read {}", life.events.display()))?;
    }
    let history = History::read(farm.lives()).context("cannot read the event logs")?;
    // The books of a leader that did not come to the end are those of a moment, and another one may have gone on.
    let status = watch.status();
    let is_over = status.phase == "over";
    let accounting = (is_over || history.leaders.len() < 2)
        .then(|| sheaf_farm::accounting_of(&status.accounting));
    let audit = verify::audit(
        &mut evidence,
        &Options {
            accounting,
            ..Options::default()
        },
    );
    let Record {
        faults,
        mut problems,
        ended_by,
    } = record;
    if !is_over {
        problems.push(format!(
            "no ICN left last books: the last ones are of {:.1} s, and the event logs go on",
            status.duration_s
        ));
    }
    if dir.is_full() {
        problems.push(format!(
            "the disk of {} is full: logs and event logs may be cut, and their books with them",
            dir.path().display()
        ));
    }
    let warnings = farm.lives().iter().filter_map(Life::warning);
    Ok(Summary::new(Outcome {
        args,
        history,
        warnings: warnings.collect(),
        farm,
        watch,
        evidence: &evidence,
        audit,
        faults,
        problems,
        ended_by,
    }))
}

/// Tells the result to machines and people, in this order: a reader of the text may have gone.
fn tell(args: &Args, dir: &RunDir, summary: &Summary) -> anyhow::Result<()> {
    let mut text = summary.to_string();
    if let Some(path) = dir.kept() {
        writeln!(
            text,
            "  farm file, logs and event logs are in {}",
            path.display()
        )?;
    }
    let mut is_written = Ok(());
    if args.is_json_on_stdout() {
        // Who reads the standard output only may have closed the other.
        let _ = std::io::stderr().write_all(text.as_bytes());
        text = summary.to_json();
    } else if let Some(path) = &args.json {
        is_written = std::fs::write(path, summary.to_json())
            .with_context(|| format!("cannot write {}", path.display()));
    }
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        outcome => outcome.context("cannot write the summary")?,
    }
    is_written
}
