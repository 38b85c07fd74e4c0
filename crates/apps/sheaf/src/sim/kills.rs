//! `sheaf sim kills`: what the death of an EPN costs, by the length of the hold.

use crate::{fail, json_file, progress};
use serde_json::json;
use sheaf_sim::Ack;
use sheaf_sim::kills::{Config, Report, run as run_kills};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Kill EPNs of a simulated farm and count losses by length of the hold.
///
/// A TF is lost when it is dropped or incomplete; it is abandoned when its EPN died between the commit and its word
/// that the consumer has it. Half of the kills are seen (the process dies), half are silent (the machine dies).
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Kill this many EPNs for each length of the hold.
    #[arg(long, default_value_t = 1000)]
    kills: u64,
    /// Compare these lengths of the hold, in ms.
    #[arg(long, value_delimiter = ',', default_value = "1000,250,100,50")]
    hold_ms: Vec<u64>,
    /// Make this many TFs a second.
    #[arg(long, default_value_t = 200)]
    rate_hz: u32,
    /// Simulate this many FLPs.
    #[arg(long, default_value_t = 3)]
    flps: u16,
    /// Simulate this many EPNs.
    #[arg(long, default_value_t = 6)]
    epns: u16,
    /// Report a TF as built when it is in memory, or when it is on the disk.
    #[arg(long, value_enum, default_value_t = AckArg::Built)]
    ack: AckArg,
    /// Compare with FLPs that release an STF as soon as it is sent, as earlier systems do.
    #[arg(long)]
    send_and_forget: bool,
    /// Begin with this seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the figures as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// When an EPN says that a TF is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum AckArg {
    /// When it has all STFs; TFs that it has when it dies are abandoned.
    Built,
    /// When it survives the death of the EPN on its disk; a later life publishes it.
    Stored,
}

struct Row {
    hold_ms: u64,
    sends_and_forgets: bool,
    report: Report,
}

/// Kills EPNs.
///
/// # Errors
///
/// Arguments that make no farm, a promise that broke, or a file that cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.rate_hz == 0 || args.flps == 0 || args.epns == 0 {
        return Err(fail::bad_use(
            "found a rate or a number of nodes of 0, expected at least 1",
        ));
    }
    let mut rows = Vec::new();
    for rule in [false, true] {
        if rule && !args.send_and_forget {
            continue;
        }
        for &hold_ms in &args.hold_ms {
            let config = Config {
                kills: args.kills,
                hold: Duration::from_millis(hold_ms),
                rate_hz: args.rate_hz,
                flps: args.flps,
                epns: args.epns,
                ack: match args.ack {
                    AckArg::Built => Ack::Built,
                    AckArg::Stored => Ack::Stored,
                },
                sends_and_forgets: rule,
                seed: args.seed,
            };
            let report = run_kills(&config, &mut |_| {});
            let report =
                report.map_err(|violation| anyhow::anyhow!("a promise broke: {violation}"))?;
            rows.push(Row {
                hold_ms,
                sends_and_forgets: rule,
                report,
            });
            progress::line(format_args!("hold {hold_ms} ms done"));
            if rule {
                break; // What is forgotten is not held, however long one could.
            }
        }
    }
    if let Some(path) = &args.json {
        let rows: Vec<_> = rows.iter().map(to_json).collect();
        let text = format!(
            "{:#}\n",
            json!({
                "rate_hz": args.rate_hz,
                "epns": args.epns,
                "flps": args.flps,
                "ack": format!("{:?}", args.ack).to_lowercase(),
                "rows": rows,
            })
        );
        json_file::write(path, &text)?;
    }
    json_file::tell(args.json.as_deref(), &table(&rows))?;
    Ok(ExitCode::SUCCESS)
}

fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<18}{:>7}{:>9}{:>7}{:>10}{:>11}{:>14}{:>8}{:>11}\n",
        "hold", "kills", "TFs", "lost", "per kill", "abandoned", "per kill", "moved", "recovered"
    );
    for Row {
        hold_ms,
        sends_and_forgets,
        report,
    } in rows
    {
        let hold = if *sends_and_forgets {
            "send and forget".to_owned()
        } else {
            format!("{hold_ms} ms")
        };
        let kills = report.kills.max(1) as f64;
        let _ = writeln!(
            text,
            "{hold:<18}{:>7}{:>9}{:>7}{:>10.3}{:>11}{:>14.3}{:>8}{:>11}",
            report.kills,
            report.accounting.decided,
            report.lost(),
            report.lost() as f64 / kills,
            report.accounting.abandoned,
            report.accounting.abandoned as f64 / kills,
            report.accounting.reassigned,
            report.accounting.recovered,
        );
    }
    text
}

fn to_json(row: &Row) -> serde_json::Value {
    let accounting = &row.report.accounting;
    json!({
        "hold_ms": row.hold_ms,
        "send_and_forget": row.sends_and_forgets,
        "kills": row.report.kills,
        "timeframes": accounting.decided,
        "lost": row.report.lost(),
        "dropped": accounting.dropped,
        "incomplete": accounting.incomplete,
        "abandoned": accounting.abandoned,
        "reassigned": accounting.reassigned,
        "recovered": accounting.recovered,
        "reasons": accounting.reasons,
        "simulated_s": row.report.simulated.as_secs_f64(),
    })
}
