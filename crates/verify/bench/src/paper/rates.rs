//! Rates and costs: the scenarios, the sources, the streams.

use super::Options;
use super::report::{Check, Figures, Row};
use super::scenario::{Scenario, average};
use super::search::{Search, Tried};
use crate::monitor::load::{LAG_MAX, values_of};
use crate::monitor::server::{Kind, Server, Setup, pause};
use crate::monitor::{LoadOptions, REQUEST_POINTS, Shape, bytes_below, load, warm};
use anyhow::ensure;
use std::time::{Duration, Instant};

/// Points of a datagram.
pub(crate) const PACKED: u32 = 10;
/// Load that the paper requires, in points a second.
pub(crate) const REQUIRED_PER_S: u64 = 600_000;
/// Share that may be lost in the second figure of a scenario, as at 300 kHz in the paper's figure 6.
const LOOSE_PERCENT: f64 = 1.0;
/// Time after the end of a window until the averages of it are made, and some more.
const WINDOW_END: Duration = Duration::from_millis(800);
/// Series, rate and time of the load whose result is checked value by value.
const CHECKED: (u32, u64, f64) = (300, 30_000, 1.2);
/// Times that a check is made while the generator falls behind.
const TRIES_MAX: u32 = 5;
/// Series and time of the history that streams write.
const HISTORY: (u32, u32) = (1000, 3600);

/// Measures the scenarios that `kind` can do.
pub(crate) fn scenarios(
    options: &Options,
    kind: Kind,
    tell: &mut dyn FnMut(&str),
    checks: &mut Vec<Check>,
) -> anyhow::Result<Vec<Row>> {
    let able = Scenario::ALL.into_iter();
    let able: Vec<(Scenario, Setup)> = able
        .filter_map(|scenario| Some((scenario, options.setup(scenario, kind)?)))
        .collect();
    let mut quick: Vec<Tried> = Vec::new();
    if kind == Kind::Sheaf {
        for checked in check_all(options, &able) {
            let (check, tried) = checked?;
            checks.push(check);
            quick.push(tried);
        }
    }
    let mut rows = Vec::new();
    for (at, (scenario, setup)) in able.iter().enumerate() {
        if let Some(tried) = quick.get(at).filter(|_| options.is_quick) {
            let mut figures = Figures::default();
            Found::of(*tried).add_to(&mut figures);
            rows.push(figures.row("scenarios", scenario.name(), kind.name(), ""));
        } else {
            rows.push(highest(
                options,
                kind,
                setup,
                (scenario.name(), PACKED),
                tell,
            )?);
        }
        if *scenario == Scenario::PassThrough {
            let case = ("pass-through, one a datagram", 1);
            rows.push(highest(options, kind, setup, case, tell)?);
        }
    }
    Ok(rows)
}

/// Measures the highest rates of one case, which has so many points a datagram.
fn highest(
    options: &Options,
    kind: Kind,
    setup: &Setup,
    (case, points): (&str, u32),
    tell: &mut dyn FnMut(&str),
) -> anyhow::Result<Row> {
    let mut figures = Figures::default();
    let mut is_generators = false;
    for run in 1..=options.runs {
        let found = rate_of(options, kind, setup, points, 1)?;
        let shown = found.strict.map_or(0.0, |tried| tried.sent_per_s);
        tell(&format!(
            "{}: {case}, run {run}: {shown:.0} points/s",
            kind.name()
        ));
        found.add_to(&mut figures);
        is_generators |= found.is_generators;
    }
    let note = if is_generators {
        "the generator could send no more, so this is a lower bound"
    } else {
        ""
    };
    Ok(figures.row("scenarios", case, kind.name(), note))
}

/// Checks all scenarios at once: nothing of it is timed.
fn check_all(options: &Options, able: &[(Scenario, Setup)]) -> Vec<anyhow::Result<(Check, Tried)>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = able
            .iter()
            .map(|(scenario, setup)| scope.spawn(move || check(options, *scenario, setup)))
            .collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("its panic was printed"));
        joined.collect()
    })
}

/// Sends few series, and compares what is stored with what was sent.
fn check(options: &Options, scenario: Scenario, setup: &Setup) -> anyhow::Result<(Check, Tried)> {
    let mut tries = 0;
    loop {
        tries += 1;
        let (check, tried) = check_once(options, scenario, setup)?;
        // Behind so far, points of a series have one time, and the store keeps one of them.
        if tried.behind_s <= LAG_MAX.as_secs_f64() {
            return Ok((check, tried));
        }
        ensure!(
            tries < TRIES_MAX,
            "the machine is too busy: the generator was {:.2} s behind",
            tried.behind_s
        );
    }
}

fn check_once(
    options: &Options,
    scenario: Scenario,
    setup: &Setup,
) -> anyhow::Result<(Check, Tried)> {
    let (series, rate, seconds) = CHECKED;
    let folder = options.bench.folder()?;
    let server = Server::start_with(Kind::Sheaf, folder.path(), &options.bench, setup)?;
    let what = LoadOptions {
        to: server.udp()?,
        series,
        points: PACKED,
        points_per_s: rate,
        seconds,
        ..LoadOptions::default()
    };
    let mut taken = 0;
    let tried = offer(options, &server, &what, &mut taken)?;
    if scenario == Scenario::Average {
        pause(Duration::from_secs(1));
    }
    let stored = server.samples("{__name__=~\"m[0-9]+(_avg)?\"}[5m]", now_s())?;
    let sent = tried.points;
    let mut problems = scenario.problems(&values_of(&what, sent), &stored);
    if taken != sent {
        problems.insert(0, format!("{taken} of {sent} points were taken"));
    }
    // One that goes wrong everywhere says so once for each series.
    let more = problems.len().saturating_sub(3);
    problems.truncate(3);
    if more > 0 {
        problems.push(format!("and {more} more"));
    }
    let what = format!(
        "{}: what is stored is what it should make of what was sent",
        scenario.name()
    );
    Ok((Check { what, problems }, tried))
}

/// Highest rates of one run.
struct Found {
    strict: Option<Tried>,
    loose: Option<Tried>,
    is_generators: bool,
}

impl Found {
    /// Returns the rates of a single load.
    fn of(tried: Tried) -> Self {
        let kept = |percent| (tried.lost_percent <= percent).then_some(tried);
        Self {
            strict: kept(0.0),
            loose: kept(LOOSE_PERCENT),
            is_generators: false,
        }
    }

    fn add_to(&self, figures: &mut Figures) {
        let rate = |tried: Option<Tried>| tried.map_or(0.0, |tried| tried.sent_per_s);
        figures.add("points_per_s", rate(self.strict));
        figures.add("points_per_s_1", rate(self.loose));
        if let Some(tried) = self.strict.or(self.loose) {
            figures.add("cpu_s_per_million", tried.cpu_s_per_million);
        }
    }
}

/// Finds the highest rates of a server that was just started.
fn rate_of(
    options: &Options,
    kind: Kind,
    setup: &Setup,
    points: u32,
    streams: u32,
) -> anyhow::Result<Found> {
    let folder = options.bench.folder()?;
    let server = Server::start_with(kind, folder.path(), &options.bench, setup)?;
    warm(&server, &options.bench)?;
    let mut stored = server.points_within(options.bench.series.into())?;
    let mut tried: Vec<Tried> = Vec::new();
    let strict = options.search(0.0);
    let loose = options.search(LOOSE_PERCENT);
    while let Some(rate) = strict.next(&tried).or_else(|| loose.next(&tried)) {
        let what = LoadOptions {
            to: server.udp()?,
            series: options.bench.series,
            points,
            points_per_s: rate,
            seconds: options.bench.seconds,
            connections: streams,
            ..LoadOptions::default()
        };
        tried.push(offer(options, &server, &what, &mut stored)?);
    }
    Ok(Found {
        strict: strict.good(&tried),
        loose: loose.good(&tried),
        is_generators: strict.is_generators(&tried),
    })
}

/// Offers one load; `stored` are the points of the server before and after.
fn offer(
    options: &Options,
    server: &Server,
    what: &LoadOptions,
    stored: &mut u64,
) -> anyhow::Result<Tried> {
    let begun = server.usage()?;
    let sent = load(&options.bench, what)?;
    ensure!(sent.points > 0, "the generator sent nothing");
    let before = *stored;
    let used = || server.usage().map(|used| used.cpu_s - begun.cpu_s);
    let cpu_s = if server.counts_by_query() {
        // The query is none of what is measured.
        pause(WINDOW_END);
        let cpu_s = used()?;
        *stored = server.points_within(before + sent.points)?;
        cpu_s
    } else {
        *stored = server.points_within(before + sent.points)?;
        pause(WINDOW_END);
        used()?
    };
    let kept = stored.saturating_sub(before).min(sent.points);
    Ok(Tried {
        points: sent.points,
        behind_s: sent.behind_s,
        offered_per_s: what.points_per_s,
        sent_per_s: sent.points as f64 / sent.seconds,
        lost_percent: 100.0 * (1.0 - kept as f64 / sent.points as f64),
        cpu_s_per_million: cpu_s * 1e6 / kept.max(1) as f64,
    })
}

/// Measures the required load from as many sources as series.
pub(crate) fn sources(
    options: &Options,
    kind: Kind,
    tell: &mut dyn FnMut(&str),
    checks: &mut Vec<Check>,
) -> anyhow::Result<Vec<Row>> {
    let mut figures = Figures::default();
    let mut problems = Vec::new();
    let series = options.bench.series;
    for run in 1..=options.runs {
        let folder = options.bench.folder()?;
        let setup = Setup {
            farm: average(&["avg", "count"]),
            ..Setup::default()
        };
        let server = Server::start_with(kind, folder.path(), &options.bench, &setup)?;
        let once = LoadOptions {
            to: server.http()?,
            series,
            names: 1,
            points: REQUEST_POINTS,
            points_max: u64::from(series),
            seconds: 120.0,
            ..LoadOptions::default()
        };
        let warmed = load(&options.bench, &once)?.points;
        let mut stored = server.points_within(warmed)?;
        let what = LoadOptions {
            to: server.udp()?,
            series,
            names: 1,
            points: PACKED,
            points_per_s: options.required_per_s(),
            seconds: options.bench.seconds,
            ..LoadOptions::default()
        };
        let begun = Instant::now();
        let tried = offer(options, &server, &what, &mut stored)?;
        figures.add("points_per_s", tried.sent_per_s);
        figures.add("stored_percent", 100.0 - tried.lost_percent);
        figures.add("cpu_s_per_million", tried.cpu_s_per_million);
        figures.add(
            "rss_mib_max",
            server.usage()?.rss_bytes_max as f64 / f64::from(1 << 20),
        );
        tell(&format!(
            "{}: sources, run {run}: {:.2} % stored of {:.0} points/s",
            kind.name(),
            100.0 - tried.lost_percent,
            tried.sent_per_s
        ));
        if kind != Kind::Sheaf {
            continue;
        }
        // The last window has to end.
        pause(Duration::from_secs(1));
        let window_s = begun.elapsed().as_secs() + 60;
        let counted = format!("sum(sum_over_time(m0_count[{window_s}s]))");
        let averaged = server.value_at(&counted, now_s())?.unwrap_or(0.0);
        figures.add("averaged_percent", 100.0 * averaged / stored.max(1) as f64);
        let found = server.value_at(&format!("count(last_over_time(m0[{window_s}s]))"), now_s())?;
        if found != Some(f64::from(series)) {
            problems.push(format!("found {found:?} series, expected {series}"));
        }
    }
    if kind == Kind::Sheaf {
        checks.push(Check {
            what: "sources: each has its series".to_owned(),
            problems,
        });
    }
    let case = "600 kHz from 100,000 sources";
    let note = if kind == Kind::Sheaf {
        "the averages bring a count of each window with them, so that those missing are seen"
    } else {
        "stored, not averaged"
    };
    Ok(vec![figures.row("sources", case, kind.name(), note)])
}

/// Measures storage by streams.
pub(crate) fn storage(
    options: &Options,
    kind: Kind,
    tell: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &streams in options.streams() {
        let case = format!("UDP, {}", counted(streams));
        let mut figures = Figures::default();
        // Of the peers one listener was measured above: VictoriaMetrics has no more.
        if kind == Kind::Sheaf && streams <= 4 {
            let setup = Setup {
                receivers: Some(streams),
                ..Setup::default()
            };
            for run in 1..=options.runs {
                let found = rate_of(options, kind, &setup, PACKED, streams)?;
                let rate = found.strict.map_or(0.0, |tried| tried.sent_per_s);
                tell(&format!("sheaf: {case}, run {run}: {rate:.0} points/s"));
                figures.add("points_per_s", rate);
                if let Some(tried) = found.strict {
                    figures.add("cpu_s_per_million", tried.cpu_s_per_million);
                }
            }
            rows.push(figures.row("storage", &case, kind.name(), ""));
        }
    }
    for &streams in options.streams() {
        let case = format!("HTTP, {}", counted(streams));
        let mut figures = Figures::default();
        for run in 1..=options.runs {
            let rate = write_history(options, kind, streams, &mut figures)?;
            tell(&format!(
                "{}: {case}, run {run}: {rate:.0} points/s",
                kind.name()
            ));
        }
        rows.push(figures.row("storage", &case, kind.name(), ""));
    }
    Ok(rows)
}

fn counted(streams: u32) -> String {
    let word = if streams == 1 { "stream" } else { "streams" };
    format!("{streams} {word}")
}

fn write_history(
    options: &Options,
    kind: Kind,
    streams: u32,
    figures: &mut Figures,
) -> anyhow::Result<f64> {
    let folder = options.bench.folder()?;
    let (series, seconds) = HISTORY;
    let seconds = if options.is_quick {
        seconds / 20
    } else {
        seconds
    };
    let points = u64::from(series) * u64::from(seconds);
    let server = Server::start(kind, folder.path(), &options.bench)?;
    let what = LoadOptions {
        to: server.http()?,
        series,
        names: 1,
        points: REQUEST_POINTS,
        points_max: points,
        history_s: seconds,
        shape: Shape::Mix,
        seconds: 600.0,
        connections: streams,
        ..LoadOptions::default()
    };
    let begun = server.usage()?;
    let sent = load(&options.bench, &what)?;
    let stored = server.points_within(sent.points)?;
    let cpu_s = server.usage()?.cpu_s - begun.cpu_s;
    ensure!(
        stored >= sent.points,
        "{stored} of {} points are stored, which all were acknowledged",
        sent.points
    );
    server.end()?;
    let rate = sent.points as f64 / sent.seconds;
    figures.add("points_per_s", rate);
    figures.add("cpu_s_per_million", cpu_s * 1e6 / sent.points as f64);
    figures.add(
        "bytes_per_point",
        bytes_below(folder.path()) as f64 / sent.points as f64,
    );
    Ok(rate)
}

/// Returns the time since 1970, in s.
pub(crate) fn now_s() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

impl Options {
    fn search(&self, lost_percent_max: f64) -> Search {
        let (first, least, most) = if self.is_quick {
            (50_000, 50_000, 50_000)
        } else {
            (300_000, 10_000, 10_000_000)
        };
        Search {
            first,
            least,
            most,
            ratio: 1.08,
            lost_percent_max,
        }
    }

    /// Returns the load of the sources, and of the latencies beside a load.
    pub(crate) fn required_per_s(&self) -> u64 {
        if self.is_quick {
            REQUIRED_PER_S / 10
        } else {
            REQUIRED_PER_S
        }
    }

    fn streams(&self) -> &'static [u32] {
        if self.is_quick { &[2] } else { &[1, 2, 4, 8] }
    }

    /// Returns how `kind` is set up for `scenario`.
    fn setup(&self, scenario: Scenario, kind: Kind) -> Option<Setup> {
        let setup = scenario.setup(kind)?;
        let given = self.processing.get(&scenario);
        Some(match given.filter(|_| kind == Kind::Sheaf) {
            Some(farm) => Setup {
                farm: farm.clone(),
                ..setup
            },
            None => setup,
        })
    }
}
