//! Where and how much is logged: to the standard error, as text or JSON.

use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

/// Flags that every command takes.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// What log lines look like.
    #[arg(long, value_enum, global = true, default_value_t = Format::Text)]
    log_format: Format,
    /// Log more; twice: all. The variable `RUST_LOG` says it by module.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Log less; twice: errors only.
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "verbose")]
    quiet: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

/// What is logged without a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usual {
    /// A node tells what happens to it.
    Info,
    /// A command for people tells only what is wrong.
    Warn,
    /// What would be logged is of a world that is not there.
    Nothing,
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

impl Args {
    /// Begins to log.
    pub(crate) fn begin(self, usual: Usual) {
        let filter = match std::env::var("RUST_LOG") {
            Ok(text) if !text.is_empty() => EnvFilter::new(text),
            _ => EnvFilter::new(self.level(usual)),
        };
        let is_terminal = std::io::stderr().is_terminal();
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            // They would be told on the standard error, with a panic if that is what cannot be written to.
            .log_internal_errors(false)
            .with_ansi(is_terminal);
        match self.log_format {
            Format::Text => log.init(),
            Format::Json => log.json().init(),
        }
    }

    fn level(self, usual: Usual) -> &'static str {
        let usual = match usual {
            Usual::Nothing => 0,
            Usual::Warn => 2,
            Usual::Info => 3_usize,
        };
        let index = (usual + usize::from(self.verbose)).saturating_sub(self.quiet.into());
        // However often it is asked to be quiet, a node says what loses data.
        let index = if usual > 0 { index.max(1) } else { index };
        LEVELS[index.min(LEVELS.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_move_the_level_up_and_down() {
        let level = |verbose, quiet, usual| {
            Args {
                log_format: Format::Text,
                verbose,
                quiet,
            }
            .level(usual)
        };
        assert_eq!(level(0, 0, Usual::Info), "info");
        assert_eq!(level(0, 0, Usual::Warn), "warn");
        assert_eq!(level(1, 0, Usual::Info), "debug");
        assert_eq!(level(9, 0, Usual::Info), "trace");
        assert_eq!(level(0, 1, Usual::Info), "warn");
        assert_eq!(level(0, 9, Usual::Info), "error");
        assert_eq!(level(0, 0, Usual::Nothing), "off");
        assert_eq!(level(2, 0, Usual::Nothing), "warn");
    }
}
