//! `sheaf logs`: the logs of all nodes of a running farm in one, from the ICN that leads.

use crate::duration;
use crate::reach::Way;
use anyhow::Context as _;
use serde::Serialize;
use sheaf_node::icn::Line;
use sheaf_node::operator::OperatorError;
use sheaf_protocol::Term;
use sheaf_protocol::control::LogLevel;
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

/// Show the logs of all nodes of a running farm, and follow them.
///
/// Nodes send the lines of their logs to the ICN that leads, at the levels that they log. It keeps the last 8192 over
/// all nodes; each node's own log has all. Exit status: 0 when the run is over or the reader has seen enough, 1 if
/// no leading ICN answers, 2 if the command line or the farm file is wrong.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf logs --config farm.toml
  sheaf logs --config farm.toml --level warn --node epn
  sheaf logs --icn 10.0.0.1:7000 --node icn:0 --node flp:3 --no-follow
  sheaf logs --config farm.toml --json | jq -r .text")]
pub(crate) struct Args {
    #[command(flatten)]
    way: Way,
    /// Show lines of this node, such as `epn:3`, or of this role, such as `epn`; once for each.
    #[arg(long, value_name = "NODE", value_parser = parse_whom)]
    node: Vec<String>,
    /// Show lines of this level and graver ones.
    #[arg(long, value_name = "LEVEL", value_parser = parse_level, default_value = "trace")]
    level: LogLevel,
    /// Begin with the last lines, this many.
    #[arg(long, value_name = "N", default_value_t = 100)]
    lines: usize,
    /// End after the lines that there are.
    #[arg(long)]
    no_follow: bool,
    /// Ask for new lines at this interval.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = duration::parse)]
    every: Duration,
    /// Print a JSON object a line.
    #[arg(long)]
    json: bool,
}

fn parse_whom(text: &str) -> Result<String, String> {
    let (role, index) = match text.split_once(':') {
        Some((role, index)) => (role, Some(index)),
        None => (text, None),
    };
    let is_role = matches!(role, "icn" | "flp" | "epn");
    let is_index = index.is_none_or(|index| index.parse::<u16>().is_ok());
    if is_role && is_index {
        return Ok(text.to_owned());
    }
    Err(format!(
        "found {text:?}, expected icn, flp or epn, or one of these with an index, such as epn:3"
    ))
}

fn parse_level(text: &str) -> Result<LogLevel, String> {
    let mut levels = LogLevel::ALL.into_iter();
    let names = || LogLevel::ALL.map(LogLevel::name).join(", ");
    levels
        .find(|level| level.name() == text)
        .ok_or_else(|| format!("found {text:?}, expected one of {}", names()))
}

/// One line, as `--json` writes it.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    /// When it was logged, in UTC.
    at: &'a str,
    #[serde(flatten)]
    line: &'a Line,
}

/// Runs the command.
///
/// # Errors
///
/// The reason why no ICN answers, or why nothing can be printed.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut operator = args.way.operator()?;
    let mut reader = Reader::default();
    loop {
        let (term, page) = match operator.log(reader.after, args.way.timeout) {
            Ok(answer) => answer,
            Err(error @ OperatorError::Older { .. }) => return Err(crate::fail::bad_use(error)),
            Err(error) => return Err(error.into()),
        };
        let (has_more, is_over) = (page.has_more, page.is_over);
        let is_same_leader = reader.take(args, term, page.last, page.lines);
        if has_more || !is_same_leader {
            continue;
        }
        if !show(&reader.drain(args.lines), args.json).context("cannot write the lines")? {
            return Ok(ExitCode::SUCCESS);
        }
        if args.no_follow || is_over {
            return Ok(ExitCode::SUCCESS);
        }
        pause(args.every);
    }
}

/// Position in the lines of the leader.
#[derive(Debug, Default)]
struct Reader {
    term: Option<Term>,
    /// Number of the last line of this leader.
    after: u64,
    /// The last line of each node: its life, and its number there. A new leader is sent what the former one had.
    heard: BTreeMap<String, (u64, u64)>,
    /// Lines that are to be shown.
    lines: Vec<Line>,
    has_begun: bool,
}

impl Reader {
    /// Takes lines of a leader; `false` if it is another leader than the last one, whose lines begin at 1 again.
    fn take(&mut self, args: &Args, term: Term, last: u64, lines: Vec<Line>) -> bool {
        let former = self.term.replace(term);
        if former.is_some_and(|former| former != term) {
            self.after = 0;
            return false;
        }
        self.after = last;
        for line in lines {
            let number = (line.incarnation, line.sequence);
            let heard = self.heard.entry(line.node.clone()).or_default();
            if number > *heard {
                *heard = number;
                if is_wanted(args, &line) {
                    self.lines.push(line);
                }
            }
        }
        true
    }

    /// Returns the lines to show, by time; of those that were there at the begin, the last `count`.
    fn drain(&mut self, count: usize) -> Vec<Line> {
        let mut lines = std::mem::take(&mut self.lines);
        lines.sort_by_key(|line| line.at_unix_ns);
        if !std::mem::replace(&mut self.has_begun, true) {
            lines.drain(..lines.len().saturating_sub(count));
        }
        lines
    }
}

fn is_wanted(args: &Args, line: &Line) -> bool {
    let role = line.node.split(':').next().unwrap_or_default();
    let is_of = |whom: &String| *whom == line.node || whom == role;
    let is_grave = parse_level(&line.level).is_ok_and(|level| level <= args.level);
    is_grave && (args.node.is_empty() || args.node.iter().any(is_of))
}

/// Prints lines; `false` if the reader has gone.
fn show(lines: &[Line], is_json: bool) -> io::Result<bool> {
    let mut text = String::new();
    for line in lines {
        text += &shown(line, is_json);
        text.push('\n');
    }
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

fn shown(line: &Line, is_json: bool) -> String {
    let at = jiff::Timestamp::from_nanosecond(line.at_unix_ns.into());
    // A clock that is far off has a time that no calendar has.
    let at = at.map_or_else(
        |_| format!("{} ns", line.at_unix_ns),
        |at| format!("{at:.6}"),
    );
    if is_json {
        let shown = Shown { at: &at, line };
        return serde_json::to_string(&shown).expect("names and numbers always have a JSON form");
    }
    let Line {
        node, level, text, ..
    } = line;
    format!("{at} {:>5} {node}: {text}", level.to_uppercase())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the interval between two looks is what was asked for"
)]
fn pause(period: Duration) {
    std::thread::sleep(period);
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &str) -> Args {
        let all = ["logs", "--icn", "127.0.0.1:1"].into_iter();
        let cli = Cli::try_parse_from(all.chain(words.split_whitespace()));
        cli.expect("a command line").args
    }

    fn line(node: &str, sequence: u64, level: &str, at_unix_ns: u64) -> Line {
        Line {
            node: node.to_owned(),
            incarnation: 4,
            sequence,
            at_unix_ns,
            level: level.to_owned(),
            text: format!("line {sequence} of {node}"),
        }
    }

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn lines_are_chosen_by_node_role_and_level() {
        let lines = [
            line("epn:3", 1, "info", 1),
            line("epn:30", 1, "warn", 2),
            line("flp:3", 1, "error", 3),
        ];
        for (words, expected) in [
            ("", "epn:3 epn:30 flp:3"),
            ("--node epn:3", "epn:3"),
            ("--node epn", "epn:3 epn:30"),
            ("--node epn:3 --node flp", "epn:3 flp:3"),
            ("--level warn", "epn:30 flp:3"),
            ("--level error --node epn", ""),
        ] {
            let args = args(words);
            let chosen = lines.iter().filter(|line| is_wanted(&args, line));
            let chosen: Vec<&str> = chosen.map(|line| line.node.as_str()).collect();
            assert_eq!(chosen.join(" "), expected, "{words}");
        }
        let error = parse_whom("epn:x").unwrap_err();
        assert_eq!(
            error,
            "found \"epn:x\", expected icn, flp or epn, or one of these with an index, such as epn:3"
        );
        let error = parse_level("loud").unwrap_err();
        assert_eq!(
            error,
            "found \"loud\", expected one of error, warn, info, debug, trace"
        );
    }

    #[test]
    fn the_last_lines_come_first_by_time_and_a_new_leader_repeats_none() {
        let (args, mut reader) = (args(""), Reader::default());
        let told = vec![
            line("epn:0", 1, "info", 30),
            line("flp:0", 1, "info", 10),
            line("flp:0", 2, "info", 20),
        ];
        assert!(reader.take(&args, Term(1), 3, told.clone()));
        assert_eq!(
            texts(&reader.drain(2)),
            ["line 2 of flp:0", "line 1 of epn:0"]
        );
        assert_eq!(reader.after, 3);
        // Another leader begins its lines at 1 again, and is asked for all of them.
        assert!(!reader.take(&args, Term(2), 9, Vec::new()));
        assert_eq!(reader.after, 0);
        let mut again = told;
        again.push(line("epn:0", 2, "info", 40));
        assert!(reader.take(&args, Term(2), 4, again));
        assert_eq!(texts(&reader.drain(2)), ["line 2 of epn:0"]);
    }

    #[test]
    fn a_line_is_text_or_json() {
        let line = line("epn:0", 2, "warn", 1_764_416_646_123_456_789);
        assert_eq!(
            shown(&line, false),
            "2025-11-29T11:44:06.123456Z  WARN epn:0: line 2 of epn:0"
        );
        let json = shown(&line, true);
        assert!(
            json.starts_with(
                r#"{"at":"2025-11-29T11:44:06.123456Z","node":"epn:0","incarnation":4"#
            ),
            "{json}"
        );
    }
}
