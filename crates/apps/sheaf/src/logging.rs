//! Where and how much is logged: to the standard error or a file, as text or JSON.

use crate::progress;
use sheaf_node::log_tail;
use sheaf_protocol::control::LogLevel;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, reload};

/// Options of every command.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Args {
    /// Write log lines in this format.
    #[arg(long, value_enum, global = true, default_value_t = Format::Text)]
    log_format: Format,
    /// Log more; twice: everything. `RUST_LOG` selects levels by module.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Print no progress and log less; twice: errors only. Results are printed all the same.
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "verbose")]
    quiet: u8,
    /// Use colours in help, logs and screens; `auto`: on a terminal, unless `NO_COLOR` is set.
    #[arg(long, value_enum, global = true, value_name = "WHEN", default_value_t = Color::Auto)]
    color: Color,
}

/// Filter of log lines while the process runs.
struct Level {
    handle: reload::Handle<Targets, Registry>,
    /// Setting that counts more than the farm file.
    fixed_by: Option<&'static str>,
}

static LEVEL: Mutex<Option<Level>> = Mutex::new(None);
/// File that log lines go to, with its path; without one, they go to the standard error.
static FILE: Mutex<Option<(PathBuf, File)>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Destination of log lines.
struct Out;

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *lock(&FILE) {
            Some((_, file)) => file.write(bytes),
            None => {
                progress::hide();
                io::stderr().write(bytes)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Appends log lines to the file at `path` from now on.
pub(crate) fn write_to(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    *lock(&FILE) = Some((path.to_owned(), file));
    Ok(())
}

/// Opens the log file at its path again, which may have been renamed.
pub(crate) fn reopen() -> io::Result<()> {
    let path = lock(&FILE).as_ref().map(|(path, _)| path.clone());
    path.map_or(Ok(()), |path| write_to(&path))
}

/// Sets the level of the farm file. Returns the setting that counts more, if there is one.
pub(crate) fn set_level(text: &str) -> Option<&'static str> {
    let level = lock(&LEVEL);
    let level = level.as_ref()?;
    if level.fixed_by.is_none() {
        // Without a subscriber there is nothing to set.
        let _ = level.handle.reload(by_module(text));
    }
    level.fixed_by
}

/// Lines for the ICN, which shows them to operators.
struct ForIcn;

impl<S: Subscriber> Layer<S> for ForIcn {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !log_tail::is_kept() {
            return;
        }
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => LogLevel::Error,
            tracing::Level::WARN => LogLevel::Warn,
            tracing::Level::INFO => LogLevel::Info,
            tracing::Level::DEBUG => LogLevel::Debug,
            tracing::Level::TRACE => LogLevel::Trace,
        };
        let mut line = LineText::default();
        event.record(&mut line);
        log_tail::add(level, &(line.message + &line.fields));
    }
}

/// Text of a line: the message, and each field behind it.
#[derive(Default)]
struct LineText {
    message: String,
    fields: String,
}

impl Visit for LineText {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        use std::fmt::Write as _;
        let written = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
        written.expect("a string takes every text");
    }
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

/// When output has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

impl Color {
    /// Returns whether output that goes to a terminal, or not, has colours.
    fn is_on(self, is_terminal: bool) -> bool {
        match self {
            Self::Auto => {
                is_terminal && std::env::var_os("NO_COLOR").is_none_or(|text| text.is_empty())
            }
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// Returns when help and errors of the command line have colours, which are printed before it is parsed.
pub(crate) fn help_color(words: &[OsString]) -> clap::ColorChoice {
    let words = || words.iter().map(|word| word.to_str().unwrap_or_default());
    let behind = words()
        .skip(1)
        .zip(words())
        .filter(|(_, word)| *word == "--color");
    let within = words().filter_map(|word| word.strip_prefix("--color="));
    match behind.map(|(value, _)| value).chain(within).last() {
        Some("always") => clap::ColorChoice::Always,
        Some("never") => clap::ColorChoice::Never,
        _ => clap::ColorChoice::Auto,
    }
}

/// Level of the log without a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usual {
    /// Events of a node.
    Info,
    /// Warnings only, for commands of people.
    Warn,
    /// No log, for nodes of a simulation.
    #[cfg(feature = "lab")]
    Nothing,
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

impl Args {
    /// Initialises the log, and turns progress off if it is unwanted. Lines of a log that goes to a file have no
    /// colours, whatever is wanted of the terminal.
    pub(crate) fn begin(self, usual: Usual, to_file: bool) {
        if self.is_quiet() {
            progress::silence();
        }
        let (filter, fixed_by) = match std::env::var("RUST_LOG") {
            Ok(text) if !text.is_empty() => (by_module(&text), Some("RUST_LOG")),
            _ if self.verbose + self.quiet > 0 => (by_module(self.level(usual)), Some("-v or -q")),
            _ => (by_module(self.level(usual)), None),
        };
        let (filter, handle) = reload::Layer::new(filter);
        *lock(&LEVEL) = Some(Level { handle, fixed_by });
        #[cfg(feature = "tui")]
        if self.color == Color::Never {
            ratatui::crossterm::style::force_color_output(false);
        }
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(|| Out)
            // The subscriber would print them to the standard error, and panic if that cannot be written to.
            .log_internal_errors(false)
            .with_ansi(!to_file && self.color.is_on(std::io::stderr().is_terminal()));
        let log = tracing_subscriber::registry().with(filter).with(ForIcn);
        match self.log_format {
            Format::Text => log.with(lines).init(),
            Format::Json => log.with(lines.json()).init(),
        }
    }

    /// Returns whether progress and hints are unwanted.
    pub(crate) fn is_quiet(self) -> bool {
        self.quiet > 0
    }

    /// Prints one warning that is no event of a node: a line for people, or a line of the log if that is JSON.
    pub(crate) fn warn(self, text: &str) {
        if self.is_quiet() {
            return;
        }
        match self.log_format {
            // Unlike `eprintln!` this does not panic if the standard error is closed.
            Format::Text => drop(writeln!(std::io::stderr(), "sheaf: {text}")),
            Format::Json => tracing::warn!("{text}"),
        }
    }

    fn level(self, usual: Usual) -> &'static str {
        let usual = match usual {
            #[cfg(feature = "lab")]
            Usual::Nothing => 0,
            Usual::Warn => 2,
            Usual::Info => 3_usize,
        };
        let index = (usual + usize::from(self.verbose)).saturating_sub(self.quiet.into());
        // A node logs errors, which mean loss of data, at any level of quiet.
        let index = if usual > 0 { index.max(1) } else { index };
        LEVELS[index.min(LEVELS.len() - 1)]
    }
}

/// Library whose failures the forwarder that uses it tells by itself, with what to do. Its lines come at `debug`, or if
/// it is named.
const TOLD_TWICE: &str = "rskafka";

/// Parses a list such as `info,sheaf_node=debug`.
///
/// A part that is neither a level nor a module is named on the standard error and left out: a mistake in a variable
/// must not keep a node from starting. Errors are logged if no part is left.
fn by_module(text: &str) -> Targets {
    let mut parts = Vec::new();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        // A bracket would be taken as part of a module's name, which matches nothing.
        let parsed = if part.contains(['[', '{']) {
            Err("filters by span or field are not supported".to_owned())
        } else {
            part.parse::<Targets>().map_err(|error| error.to_string())
        };
        match parsed {
            Ok(_) => parts.push(part),
            Err(error) => {
                // A closed standard error is no reason to stop.
                let _ = writeln!(std::io::stderr(), "RUST_LOG: ignoring `{part}`: {error}");
            }
        }
    }
    let errors_only = || Targets::new().with_default(LevelFilter::ERROR);
    if parts.is_empty() {
        return errors_only();
    }
    let read = |parts: &[&str]| parts.join(",").parse().unwrap_or_else(|_| errors_only());
    let filter: Targets = read(&parts);
    let is_named = parts.iter().any(|part| part.starts_with(TOLD_TWICE));
    if is_named || filter.would_enable(TOLD_TWICE, &tracing::Level::DEBUG) {
        return filter;
    }
    let off = format!("{TOLD_TWICE}=off");
    parts.push(&off);
    read(&parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn levels_are_set_for_all_and_by_module() {
        let filter = by_module("warn, sheaf_node=debug,,sheaf_transport::shared=off");
        assert!(filter.would_enable("sheaf_sim", &Level::WARN));
        assert!(!filter.would_enable("sheaf_sim", &Level::INFO));
        assert!(filter.would_enable("sheaf_node::control", &Level::DEBUG));
        assert!(!filter.would_enable("sheaf_node", &Level::TRACE));
        assert!(!filter.would_enable("sheaf_transport::shared", &Level::ERROR));
    }

    #[test]
    fn a_library_whose_failures_are_told_by_ours_is_silent_unless_asked() {
        for (text, is_on) in [
            ("info", false),
            ("error", false),
            ("sheaf_monitor=debug", false),
            ("debug", true),
            ("warn,rskafka=error", true),
        ] {
            let filter = by_module(text);
            assert_eq!(
                filter.would_enable("rskafka", &Level::ERROR),
                is_on,
                "{text}"
            );
        }
        assert!(by_module("info").would_enable("sheaf_monitor", &Level::INFO));
    }

    #[test]
    fn only_named_modules_log_without_a_level_for_all() {
        let filter = by_module("sheaf_node=info");
        assert!(filter.would_enable("sheaf_node", &Level::INFO));
        assert!(!filter.would_enable("sheaf_sim", &Level::ERROR));
    }

    #[test]
    fn filters_by_span_are_left_out() {
        let filter = by_module("[run]=debug,info");
        assert!(filter.would_enable("sheaf_node", &Level::INFO));
        assert!(by_module("[run]=debug").would_enable("sheaf_node", &Level::ERROR));
    }

    #[test]
    fn wrong_parts_are_left_out() {
        let filter = by_module("sheaf_sim=loud,sheaf_node=debug");
        assert!(filter.would_enable("sheaf_node", &Level::DEBUG));
        assert!(!filter.would_enable("sheaf_sim", &Level::ERROR));
        let filter = by_module("sheaf_sim=loud");
        assert!(filter.would_enable("sheaf_node", &Level::ERROR));
        assert!(!filter.would_enable("sheaf_node", &Level::WARN));
    }

    #[test]
    fn flags_move_the_level_up_and_down() {
        let level = |verbose, quiet, usual| {
            Args {
                log_format: Format::Text,
                verbose,
                quiet,
                color: Color::Auto,
            }
            .level(usual)
        };
        assert_eq!(level(0, 0, Usual::Info), "info");
        assert_eq!(level(0, 0, Usual::Warn), "warn");
        assert_eq!(level(1, 0, Usual::Info), "debug");
        assert_eq!(level(9, 0, Usual::Info), "trace");
        assert_eq!(level(0, 1, Usual::Info), "warn");
        assert_eq!(level(0, 9, Usual::Info), "error");
        #[cfg(feature = "lab")]
        assert_eq!(level(0, 0, Usual::Nothing), "off");
        #[cfg(feature = "lab")]
        assert_eq!(level(2, 0, Usual::Nothing), "warn");
    }
}
