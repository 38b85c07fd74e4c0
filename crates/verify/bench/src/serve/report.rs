//! Report of a load test.

use super::Placement;
use super::case::{Case, Sample};
use crate::report::{Head, to_json};
use serde::Serialize;
use sheaf_figures::stat::quantile;
use sheaf_load::{Outcome, Spread};
use std::collections::BTreeMap;
use std::fmt;

/// Name of the plane that all others are compared with.
pub(super) const DIRECT: &str = "direct";

/// Latencies of one kind in ms, over all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Median.
    pub p50: f64,
    /// 99 in 100 are not above it.
    pub p99: f64,
    /// Longest.
    pub max: f64,
}

impl Latency {
    fn of(spread: &Spread) -> Self {
        Self {
            p50: spread.quantile_ms(0.5),
            p99: spread.quantile_ms(0.99),
            max: spread.max_ms(),
        }
    }
}

/// Latencies in ms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatencyMs {
    /// From the call to the connection.
    pub connect: Latency,
    /// From the request to the first byte of the answer.
    pub first_byte: Latency,
    /// From the call to the last byte, of transfers that finished.
    pub transfer: Latency,
}

/// Part of one server, over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Server {
    /// Name, as answers have it; else the address.
    pub name: String,
    /// Transfers finished.
    pub finished: u64,
    /// Bytes of bodies.
    pub bytes: u64,
    /// Share of the bytes.
    pub share: f64,
}

/// Row of the report: one plane with one number of clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Plane: how clients come to servers.
    pub plane: String,
    /// Kind of the servers, if they are ours.
    pub engine: Option<String>,
    /// Clients at once.
    pub clients: u32,
    /// Most connections at once, in all rounds.
    pub held_max: u32,
    /// Bytes of an object, if it is known.
    pub object_bytes: Option<u64>,
    /// Rate of the cable of each client host in Mbit/s, if it has one.
    pub client_mbit: Option<f64>,
    /// Spread of the clients over their hosts.
    pub placement: Placement,
    /// Rate of bodies, median of the rounds.
    pub gbit_per_s: f64,
    /// Least and most of the rounds.
    pub gbit_per_s_range: [f64; 2],
    /// Largest rate of a whole second, in all rounds.
    pub gbit_per_s_max: f64,
    /// Rate of clients that go to the servers directly, median of the same rounds.
    pub direct_gbit_per_s: Option<f64>,
    /// Median of the ratios to it in the same round.
    pub ratio_to_direct: Option<f64>,
    /// New connections a second, median of the rounds.
    pub connections_per_s: f64,
    /// Median of the ratios to those of direct clients in the same round.
    pub connections_ratio_to_direct: Option<f64>,
    /// Transfers finished a second, median of the rounds.
    pub transfers_per_s: f64,
    /// CPU seconds of the whole machine for a GB, median of the rounds.
    pub cpu_s_per_gb: f64,
    /// Largest share of the processors that other programs took in user mode during a run; above some hundredths the
    /// machine was not quiet.
    pub others_share_max: f64,
    /// Jain's index of the bytes of the servers, median of the rounds.
    pub jain: f64,
    /// Transfers that began, in all rounds: finished, failed and cut.
    pub started: u64,
    /// Transfers that finished.
    pub finished: u64,
    /// Transfers that failed on a connection that they had.
    pub broken: u64,
    /// Servers drained and added again under load, in all rounds.
    pub drains: u32,
    /// Transfers that failed, those too.
    pub failed: u64,
    /// Transfers that the end of a run cut.
    pub cut: u64,
    /// Reasons of those that failed.
    pub failures: BTreeMap<String, u64>,
    /// Latencies.
    pub latency_ms: LatencyMs,
    /// By server.
    pub servers: Vec<Server>,
    /// Rounds.
    pub rounds: usize,
}

/// Results of a load test.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub(super) head: Head,
    /// URLs of a service that ran already; none: a site of namespaces.
    pub urls: Vec<String>,
    /// Servers of the site.
    pub servers: usize,
    /// Client hosts of the site.
    pub client_hosts: usize,
    /// Whether clients used IPv6.
    pub is_ipv6: bool,
    /// Rate of the cable of each server in Mbit/s, if it has one.
    pub server_mbit: Option<f64>,
    /// A row for each plane and number of clients.
    pub rows: Vec<Row>,
    /// Names of what was not measured, with the reason.
    pub skipped: Vec<String>,
}

impl Report {
    /// Returns the report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        to_json(self)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.head)?;
        writeln!(
            f,
            "{:<10} {:<7} {:>7} {:>9} {:>7} {:>13} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6}",
            "PLANE",
            "SERVERS",
            "CLIENTS",
            "BYTES",
            "Gbit/s",
            "least–most",
            "÷ direct",
            "conn/s",
            "÷ direct",
            "CPU s/GB",
            "Jain",
            "broken",
            "failed"
        )?;
        for row in &self.rows {
            let ratio =
                |ratio: Option<f64>| ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
            let [least, most] = row.gbit_per_s_range;
            writeln!(
                f,
                "{:<10} {:<7} {:>7} {:>9} {:>7.2} {:>13} {:>8} {:>8.0} {:>8} {:>8.2} {:>6.3} {:>6} {:>6}",
                row.plane,
                row.engine.as_deref().unwrap_or("–"),
                row.clients,
                row.object_bytes
                    .map_or("–".to_owned(), |bytes| bytes.to_string()),
                row.gbit_per_s,
                format!("{least:.2}–{most:.2}"),
                ratio(row.ratio_to_direct),
                row.connections_per_s,
                ratio(row.connections_ratio_to_direct),
                row.cpu_s_per_gb,
                row.jain,
                row.broken,
                row.failed,
            )?;
        }
        writeln!(
            f,
            "\n{:<10} {:<7} {:>7} {:>24} {:>24} {:>30}",
            "ms", "SERVERS", "CLIENTS", "connect p50/p99/max", "first byte", "transfer"
        )?;
        for row in &self.rows {
            let text = |latency: Latency| {
                format!("{:.1}/{:.0}/{:.0}", latency.p50, latency.p99, latency.max)
            };
            writeln!(
                f,
                "{:<10} {:<7} {:>7} {:>24} {:>24} {:>30}",
                row.plane,
                row.engine.as_deref().unwrap_or("–"),
                row.clients,
                text(row.latency_ms.connect),
                text(row.latency_ms.first_byte),
                text(row.latency_ms.transfer)
            )?;
        }
        let others = self.rows.iter().map(|row| row.others_share_max);
        let others = others.fold(0.0, f64::max) * 100.0;
        writeln!(f, "others took up to {others:.0} % of the processors")?;
        self.failures(f)
    }
}

impl Report {
    fn failures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in self.rows.iter().filter(|row| row.failed > 0) {
            let reasons = row.failures.iter();
            let reasons: Vec<String> = reasons.map(|(why, n)| format!("{n} {why}")).collect();
            let (plane, clients) = (&row.plane, row.clients);
            writeln!(f, "{plane} with {clients} clients: {}", reasons.join(", "))?;
        }
        for row in self.rows.iter().filter(|row| row.drains > 0) {
            let (plane, clients, drains, broken) =
                (&row.plane, row.clients, row.drains, row.broken);
            writeln!(
                f,
                "{plane} with {clients} clients: {drains} drains, {broken} broken transfers"
            )?;
        }
        for skipped in &self.skipped {
            writeln!(f, "skipped: {skipped}")?;
        }
        Ok(())
    }
}

/// Rows of `cases`; each is compared with the direct one of the same round.
pub(super) fn rows(cases: &[Case]) -> Vec<Row> {
    let row = |case: &Case| {
        let direct = cases.iter().find(|other| {
            other.plane == DIRECT
                && case.plane != DIRECT
                && (&other.engine, other.clients, other.object_bytes)
                    == (&case.engine, case.clients, case.object_bytes)
                && (other.client_mbit, other.placement) == (case.client_mbit, case.placement)
        });
        row(case, direct.map(|direct| direct.samples.as_slice()))
    };
    cases.iter().map(row).collect()
}

fn row(case: &Case, direct: Option<&[Sample]>) -> Row {
    let samples = &case.samples;
    let values = |of: fn(&Sample) -> f64| samples.iter().map(of).collect::<Vec<f64>>();
    let median = |of: fn(&Sample) -> f64| quantile(&values(of), 0.5).unwrap_or(0.0);
    let ratio = |of: fn(&Sample) -> f64| {
        let pairs = samples.iter().zip(direct?);
        let ratios: Vec<f64> = pairs.map(|(own, direct)| of(own) / of(direct)).collect();
        quantile(&ratios, 0.5).filter(|ratio| ratio.is_finite())
    };
    let direct_rate = direct.and_then(|direct| {
        let rates: Vec<f64> = direct.iter().map(Sample::gbit_per_s).collect();
        quantile(&rates, 0.5)
    });
    let mut sum = Outcome::default();
    for sample in samples {
        sum.merge(&sample.outcome);
    }
    let held = samples.iter().map(|sample| sample.outcome.held_max);
    let all = sum.servers.values().map(|served| served.bytes).sum::<u64>();
    let server = |(name, served): (&String, &sheaf_load::Served)| Server {
        name: name.clone(),
        finished: served.finished,
        bytes: served.bytes,
        share: served.bytes as f64 / (all as f64).max(1.0),
    };
    let rates = values(Sample::gbit_per_s);
    Row {
        plane: case.plane.clone(),
        engine: case.engine.clone(),
        clients: case.clients,
        held_max: held.max().unwrap_or(0),
        object_bytes: (case.object_bytes > 0).then_some(case.object_bytes),
        client_mbit: case.client_mbit,
        placement: case.placement,
        gbit_per_s: median(Sample::gbit_per_s),
        gbit_per_s_range: [
            rates.iter().copied().fold(f64::INFINITY, f64::min),
            rates.iter().copied().fold(0.0, f64::max),
        ],
        gbit_per_s_max: values(Sample::gbit_per_s_max)
            .into_iter()
            .fold(0.0, f64::max),
        direct_gbit_per_s: direct_rate,
        ratio_to_direct: ratio(Sample::gbit_per_s),
        connections_per_s: median(Sample::connections_per_s),
        connections_ratio_to_direct: ratio(Sample::connections_per_s),
        transfers_per_s: median(Sample::transfers_per_s),
        cpu_s_per_gb: median(Sample::cpu_s_per_gb),
        others_share_max: values(|sample| sample.others_share)
            .into_iter()
            .fold(0.0, f64::max),
        jain: median(Sample::jain),
        started: sum.started,
        finished: sum.finished,
        broken: sum.broken(),
        drains: samples.iter().map(|sample| sample.drains).sum(),
        failed: sum.failures(),
        cut: sum.cut,
        failures: sum
            .failed
            .iter()
            .map(|(failure, count)| (failure.name().to_owned(), *count))
            .collect(),
        latency_ms: LatencyMs {
            connect: Latency::of(&sum.latencies.connect),
            first_byte: Latency::of(&sum.latencies.first_byte),
            transfer: Latency::of(&sum.latencies.transfer),
        },
        servers: sum.servers.iter().map(server).collect(),
        rounds: samples.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_load::Served;

    fn sample(bytes: u64, broken: u64) -> Sample {
        let mut outcome = Outcome {
            seconds: 2.0,
            started: 10 + broken,
            finished: 10,
            window_bytes: bytes,
            window_connections: 8,
            bytes_each_second: vec![bytes / 4, bytes - bytes / 4, 0],
            ..Outcome::default()
        };
        if broken > 0 {
            outcome.failed.insert(sheaf_load::Failure::Reset, broken);
        }
        for (name, bytes) in [("s1", bytes / 4), ("s2", bytes - bytes / 4)] {
            outcome
                .servers
                .insert(name.to_owned(), Served { finished: 5, bytes });
        }
        Sample {
            outcome,
            cpu_s: 3.0,
            drains: 0,
            others_share: 0.125,
        }
    }

    fn case(plane: &str, samples: Vec<Sample>) -> Case {
        Case {
            plane: plane.to_owned(),
            engine: Some("nginx".to_owned()),
            clients: 60,
            object_bytes: 10_000_000,
            client_mbit: None,
            placement: Placement::Even,
            samples,
        }
    }

    #[test]
    fn a_plane_is_compared_with_direct_clients_of_the_same_round() {
        let cases = [
            case(
                DIRECT,
                vec![sample(1_000_000_000, 0), sample(4_000_000_000, 0)],
            ),
            case(
                "nft",
                vec![sample(900_000_000, 0), sample(2_000_000_000, 3)],
            ),
        ];
        let rows = rows(&cases);
        assert_eq!(
            (rows[0].ratio_to_direct, rows[0].direct_gbit_per_s),
            (None, None)
        );
        // 0.9 and 0.5 of the same rounds; of the medians it would be 0.58.
        assert!(
            (rows[1].ratio_to_direct.unwrap() - 0.7).abs() < 1e-9,
            "{:?}",
            rows[1]
        );
        assert!((rows[1].direct_gbit_per_s.unwrap() - 10.0).abs() < 1e-9);
        assert_eq!(
            (rows[1].broken, rows[1].failed, rows[1].started),
            (3, 3, 23)
        );
        assert!(
            (rows[1].gbit_per_s_max - 12.0).abs() < 1e-9,
            "{:?}",
            rows[1]
        );
        assert!((rows[1].jain - 0.8).abs() < 1e-9);
        assert!((rows[1].servers[0].share - 0.25).abs() < 1e-9);
    }
}
