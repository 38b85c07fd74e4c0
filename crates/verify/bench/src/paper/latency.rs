//! Latencies of single points, on a server that is idle and on one that is loaded.

use super::Options;
use super::rates::PACKED;
use super::report::{Figures, Row};
use crate::monitor::row::Times;
use crate::monitor::server::{Kind, Server};
use crate::monitor::{LoadOptions, generator, probe, warm};
use anyhow::ensure;
use sheaf_farm::Process;

/// Longest time that the load beside the latencies lasts, in s.
const LOAD_S: f64 = 3600.0;

pub(crate) fn latency(
    options: &Options,
    kind: Kind,
    tell: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    // Peers show nothing live, and their own loads are less.
    let cases: &[&str] = match (kind, options.is_quick) {
        (Kind::Sheaf, true) => &["loaded"],
        (Kind::Sheaf, false) => &["idle", "loaded"],
        _ => &["idle"],
    };
    for &case in cases {
        let mut figures = Figures::default();
        for run in 1..=options.runs {
            one(options, kind, case == "loaded", &mut figures)?;
            tell(&format!("{}: latency, {case}, run {run}", kind.name()));
        }
        rows.push(figures.row("latency", case, kind.name(), ""));
    }
    Ok(rows)
}

fn one(
    options: &Options,
    kind: Kind,
    is_loaded: bool,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let folder = options.bench.folder()?;
    let mut server = Server::start(kind, folder.path(), &options.bench)?;
    let mut beside = None;
    if is_loaded {
        warm(&server, &options.bench)?;
        let what = LoadOptions {
            to: server.udp()?,
            series: options.bench.series,
            points: PACKED,
            points_per_s: options.required_per_s(),
            seconds: LOAD_S,
            ..LoadOptions::default()
        };
        let command = generator(&options.bench, &what);
        beside = Some(Process::spawn(command, &folder.path().join("load.log"))?);
    }
    let probes = options.bench.probes;
    let visible = probe::visible(&mut server, probes)?;
    add(figures, ["visible_ms_p50", "visible_ms_p99"], visible);
    if kind == Kind::Sheaf {
        let alarm = probe::alarm(&mut server, probes)?;
        add(figures, ["alarm_ms_p50", "alarm_ms_p99"], alarm);
        let display = probe::display(&mut server, probes)?;
        add(figures, ["display_ms_p50", "display_ms_p99"], display);
    }
    if let Some(mut beside) = beside {
        let ended = beside.reap();
        ensure!(ended.is_none(), "the load beside the latencies has ended");
    }
    Ok(())
}

fn add(figures: &mut Figures, [p50, p99]: [&'static str; 2], times: Option<Times>) {
    if let Some(times) = times {
        figures.add(p50, times.p50);
        figures.add(p99, times.p99);
    }
}
