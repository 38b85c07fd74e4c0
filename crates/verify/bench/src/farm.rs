//! A whole farm beside a plain pair of TCP sockets; under TLS, beside a plain pair of TLS sessions.
//!
//! `options` says what is asked, `plain` runs the pair and `run` the farm, of whose life `window` cuts the measured
//! time; `report` makes rows of the pairs, and `table` shows them.

mod options;
mod plain;
mod report;
pub(crate) mod run;
mod table;
mod window;

use crate::cpus::Cpus;
use anyhow::{Context as _, bail};
pub use options::{Options, Security, Shape};
use plain::Peer;
pub use report::Report;
use report::{Congestion, Pair, Point, Row};
use run::FarmBench;
use sheaf_farm::{Notice, quit_on_signals};
use std::sync::mpsc::{Receiver, sync_channel};

/// Notices that may wait; a node that writes more waits.
const NOTICES_MAX: usize = 1024;

/// Runs the benchmark; `tell` takes a line after each pair.
///
/// # Errors
///
/// [`Missing`](crate::Missing) without the plain pair, or why a run did not come to its end in order.
pub fn measure(options: &Options, tell: &mut dyn FnMut(&str)) -> anyhow::Result<Report> {
    let peer = Peer::find(options.peer.as_deref())?;
    let cpus = Cpus::allowed(options.pin).context("cannot read the CPU affinity")?;
    let (sender, notices) = sync_channel(NOTICES_MAX);
    quit_on_signals(sender.clone()).context("cannot handle signals")?;
    let congestion = run::congestion_in_force(&options.congestion)?;
    let bench = FarmBench {
        options,
        cpus: &cpus,
        sender: &sender,
        notices: &notices,
    };
    let mut rows = Vec::new();
    for &security in &options.security {
        for &shape in &options.shapes {
            for &stf_bytes in &options.stf_bytes {
                let point = Point {
                    shape,
                    stf_bytes,
                    security,
                };
                rows.push(measure_row(&bench, &peer, point, &congestion, tell)?);
            }
        }
    }
    Ok(Report::new(options, &cpus, rows))
}

/// Takes pairs until enough of them are undisturbed, or twice as many were taken.
fn measure_row(
    bench: &FarmBench<'_>,
    peer: &Peer,
    point: Point,
    congestion: &str,
    tell: &mut dyn FnMut(&str),
) -> anyhow::Result<Row> {
    let wanted = bench.options.pairs as usize;
    let (mut pairs, mut plain_congestion) = (Vec::new(), String::new());
    let kept = |pairs: &[Pair]| pairs.iter().filter(|pair| pair.is_kept()).count();
    while kept(&pairs) < wanted && pairs.len() < 2 * wanted {
        let plain = peer.run(bench.options, bench.cpus, point.stf_bytes, point.security);
        quit_if_asked(bench.notices)?;
        let plain = plain?;
        let farm = bench.run(point.shape, point.stf_bytes, point.security)?;
        plain_congestion.clone_from(&plain.congestion);
        let pair = Pair { farm, plain };
        let figures = pair.to_string();
        pairs.push(pair);
        let (taken, kept) = (pairs.len(), kept(&pairs));
        tell(&format!(
            "{point}, pair {taken} ({kept} of {wanted} kept): {figures}"
        ));
    }
    let congestion = Congestion {
        farm: congestion.to_owned(),
        plain: plain_congestion,
    };
    Ok(Row::new(point, congestion, &pairs))
}

/// Returns an error after a Ctrl-C during a run of the plain pair, which reads no notices.
fn quit_if_asked(notices: &Receiver<Notice>) -> anyhow::Result<()> {
    if notices
        .try_iter()
        .any(|notice| matches!(notice, Notice::Quit))
    {
        bail!("asked to end: the measurement is not complete");
    }
    Ok(())
}
