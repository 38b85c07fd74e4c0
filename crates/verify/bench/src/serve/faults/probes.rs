//! New connections at a steady pace while something fails, and what they tell.

use sheaf_load::{Target, Tls, probe};
use sheaf_testbed::site::Site;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Probes at once: one that waits for a dead server does not hold the others up.
const PROBERS: u32 = 8;
/// Time from one connection of a prober to its next.
const EVERY: Duration = Duration::from_millis(20);
/// Longest wait for a connection and for its answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Window over which the spread over servers is looked at.
const WINDOW_S: f64 = 1.0;
/// Step from one window to the next.
const STEP_S: f64 = 0.1;
/// Least part of an equal share that a server has to get in a window.
const LEAST_SHARE: f64 = 0.4;

/// New connection: when it began, and the server that answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Probe {
    /// Seconds since the fault.
    pub(super) at_s: f64,
    /// Name of the server; `None`: no answer.
    pub(super) server: Option<String>,
}

/// Probers that run.
pub(super) struct Probers {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<(Instant, Option<String>)>>>,
}

type Threads = Vec<JoinHandle<Vec<(Instant, Option<String>)>>>;

impl Probers {
    /// Begins to open connections to `target` from the first client host.
    pub(super) fn start(site: &Site, target: &Target) -> anyhow::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (target, flag) = (target.clone(), is_over.clone());
        let start = move || -> Threads {
            let one = |number| {
                let (target, is_over) = (target.clone(), flag.clone());
                std::thread::spawn(move || run(&target, EVERY * number / PROBERS, &is_over))
            };
            (0..PROBERS).map(one).collect()
        };
        let thread = site.inside(site.client(0), start)?;
        let threads = thread.join().expect("starting threads does not panic")?;
        Ok(Self { is_over, threads })
    }

    /// Ends the probers. Returns all connections, in order, with times relative to `fault`.
    pub(super) fn finish(self, fault: Instant) -> Vec<Probe> {
        self.is_over.store(true, Ordering::Relaxed);
        let threads = self.threads.into_iter();
        let mut all: Vec<Probe> = threads
            .flat_map(|thread| thread.join().expect("probing does not panic"))
            .map(|(at, server)| {
                let after = at.saturating_duration_since(fault).as_secs_f64();
                let before = fault.saturating_duration_since(at).as_secs_f64();
                let at_s = after - before;
                Probe { at_s, server }
            })
            .collect();
        all.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        all
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a pacer: connections are opened at times that a clock sets"
)]
fn run(target: &Target, offset: Duration, is_over: &AtomicBool) -> Vec<(Instant, Option<String>)> {
    let mut found = Vec::new();
    let mut due = Instant::now() + offset;
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let began = Instant::now();
        let answer = probe(target, &[], &Tls::Any, PATIENCE);
        found.push((began, answer.ok().and_then(|answer| answer.server)));
        due = (due + EVERY).max(Instant::now());
    }
    found
}

/// Effect of a fault on new connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seen {
    /// Connections since the fault.
    pub(super) probes: u64,
    /// Connections without an answer since the fault.
    pub(super) failed: u64,
    /// Seconds from the fault to the begin of the last one without an answer; 0 if there is none.
    pub(super) recovered_s: f64,
    /// Seconds from the fault on which every window of a second has no failure, and a fair part for each of `expected`.
    pub(super) spread_s: Option<f64>,
}

/// Says what `probes` tell, of which servers `expected` should get their part in the end.
pub(super) fn seen(probes: &[Probe], expected: &BTreeSet<String>) -> Seen {
    let after: Vec<&Probe> = probes.iter().filter(|probe| probe.at_s >= 0.0).collect();
    let failed = after.iter().filter(|probe| probe.server.is_none());
    let last = after.last().map_or(0.0, |probe| probe.at_s);
    let windows = ((last - WINDOW_S) / STEP_S).floor().max(0.0) as usize;
    let is_fair = |window: usize| {
        let from = window as f64 * STEP_S;
        let inside = after.iter().filter(|probe| {
            let at = probe.at_s - from;
            (0.0..WINDOW_S).contains(&at)
        });
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut all = 0;
        for probe in inside {
            let Some(server) = &probe.server else {
                return false;
            };
            *counts.entry(server).or_default() += 1;
            all += 1;
        }
        let least = all as f64 / expected.len().max(1) as f64 * LEAST_SHARE;
        let share = |server: &String| counts.get(server.as_str()).copied().unwrap_or(0) as f64;
        all > 0 && expected.iter().all(|server| share(server) >= least)
    };
    // The first from which on all are fair.
    let unfair = (0..windows).rev().find(|window| !is_fair(*window));
    let first = unfair.map_or(0, |window| window + 1);
    Seen {
        probes: after.len() as u64,
        failed: failed.clone().count() as u64,
        recovered_s: failed.map(|probe| probe.at_s).fold(0.0, f64::max),
        spread_s: (first < windows).then_some(first as f64 * STEP_S),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probes every 10 ms from a second before the fault to ten seconds behind it, at servers in turn.
    fn probes(server: impl Fn(usize, f64) -> Option<&'static str>) -> Vec<Probe> {
        let one = |number: usize| {
            let at_s = number as f64 / 100.0 - 1.0;
            let server = server(number, at_s).map(str::to_owned);
            Probe { at_s, server }
        };
        (0..1100).map(one).collect()
    }

    fn expected(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn nothing_failed_means_no_time_to_recover() {
        let all = probes(|number, _| Some(["s1", "s2"][number % 2]));
        let seen = seen(&all, &expected(&["s1", "s2"]));
        assert_eq!((seen.failed, seen.recovered_s), (0, 0.0));
        assert_eq!(seen.spread_s, Some(0.0));
        assert_eq!(seen.probes, 1000);
    }

    #[test]
    fn a_dead_server_costs_connections_until_others_have_its_part() {
        let all = probes(|number, at_s| match ["s1", "s2", "s3"][number % 3] {
            "s3" if (0.0..0.8).contains(&at_s) => None,
            // All of it goes to one at first.
            "s3" if (0.8..2.5).contains(&at_s) => Some("s1"),
            "s3" if at_s >= 2.5 => Some(["s1", "s2"][number / 3 % 2]),
            "s2" if (0.8..2.5).contains(&at_s) => Some("s1"),
            server => Some(server),
        });
        let seen = seen(&all, &expected(&["s1", "s2"]));
        assert!(seen.failed > 20, "{seen:?}");
        assert!((0.7..0.8).contains(&seen.recovered_s), "{seen:?}");
        let spread = seen.spread_s.expect("it is spread in the end");
        assert!((1.8..2.6).contains(&spread), "{seen:?}");
    }

    #[test]
    fn a_part_that_no_server_takes_over_is_never_spread() {
        let all = probes(|number, at_s| match ["s1", "s2"][number % 2] {
            "s2" if at_s >= 0.0 => None,
            server => Some(server),
        });
        let seen = seen(&all, &expected(&["s1"]));
        assert_eq!(seen.spread_s, None);
        assert!(seen.recovered_s > 9.9, "{seen:?}");
    }
}
