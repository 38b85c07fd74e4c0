//! Status of a farm as text: lines about the run, and a line a node. At most 80 columns wide.

use super::Report;
use sheaf_node::status::{EpnStatus, FarmStatus, FlpStatus, Quantiles};
use std::fmt::Write as _;

const WRITTEN: &str = "a string takes every text";

/// Returns one line about the run.
pub(super) fn detail(status: &FarmStatus) -> String {
    format!(
        "run {} is {}, {} TFs in flight, {} EPNs",
        status.run,
        status.phase,
        status.accounting.in_flight,
        status.epns.len()
    )
}

/// Returns the report as text; with rates since `before`, if that is of the same leader.
pub(super) fn text(report: &Report, before: Option<&FarmStatus>) -> String {
    let (Some(status), Some(icn), Some(term)) = (&report.status, &report.icn, report.term) else {
        return format!("health  {}: {}\n", report.health, report.detail);
    };
    let mut text = format!("leader  {icn} (term {term})\nstate   {}\n", report.detail);
    match report.reasons.split_first() {
        None => writeln!(text, "health  {}", report.health),
        Some((first, _)) => writeln!(text, "health  {}: {first}", report.health),
    }
    .expect(WRITTEN);
    for reason in report.reasons.iter().skip(1) {
        writeln!(text, "        {reason}").expect(WRITTEN);
    }
    if report.icns.len() > 1 {
        let icns = report
            .icns
            .iter()
            .map(|icn| format!("{} {}", icn.address, icn.state));
        line(&mut text, "icns", icns);
    }
    run(&mut text, status, before);
    text.push('\n');
    if !status.flps.is_empty() {
        let head = [
            "node",
            "state",
            "made STFs",
            "sent MB",
            "held STFs",
            "held MB",
            "lag TFs",
        ];
        let rows: Vec<_> = status.flps.iter().map(flp_row).collect();
        table(&mut text, head, &rows);
    }
    if !status.epns.is_empty() {
        let head = [
            "node",
            "state",
            "TFs",
            "received MB",
            "open TFs",
            "held MB",
            "p99 ms",
        ];
        let rows: Vec<_> = status.epns.iter().map(epn_row).collect();
        table(&mut text, head, &rows);
    }
    text
}

/// Writes the lines about the run.
fn run(text: &mut String, status: &FarmStatus, before: Option<&FarmStatus>) {
    let accounting = &status.accounting;
    let dropped: u64 = accounting.dropped.values().sum();
    let sum = format!(
        "announced {} = complete {} + incomplete {}",
        accounting.announced, accounting.complete, accounting.incomplete
    );
    let rest = format!("+ dropped {dropped} + in flight {}", accounting.in_flight);
    if sum.len() + rest.len() < 72 {
        line(text, "TFs", [format!("{sum} {rest}")]);
    } else {
        line(text, "TFs", [sum]);
        line(text, "", [rest]);
    }
    let mut efforts = vec![
        format!("reassigned {}", accounting.reassigned),
        format!("abandoned {}", accounting.abandoned),
        format!("waiting for room {}", status.queued),
    ];
    if accounting.redelivered > 0 {
        efforts.push(format!("redelivered {}", accounting.redelivered));
    }
    line(text, "", efforts);
    if dropped > 0 {
        let reasons = accounting
            .dropped
            .iter()
            .map(|(reason, count)| format!("{reason} {count}"));
        line(text, "drops", reasons);
    }
    let rates = before.and_then(|before| rates(before, status));
    let Quantiles { p50, p99, max } = status.latency_us.get("total").copied().unwrap_or_default();
    let latency = [("p50", p50), ("p99", p99), ("longest", max)];
    let latency = latency.map(|(name, us)| format!("{name} {} ms", ms(us)));
    line(text, "latency", latency.into_iter().chain(rates));
    let ledger = &status.ledger;
    let facts = [
        format!("policy {}", status.policy),
        format!("security {}", status.security),
        format!("ledger {} with {} records", ledger.backend, ledger.records),
    ];
    line(text, "farm", facts);
}

/// Returns what the farm did between two looks at one leader.
fn rates(before: &FarmStatus, now: &FarmStatus) -> Option<String> {
    let span_s = now.uptime_s - before.uptime_s;
    let is_same = before.ledger.icn == now.ledger.icn && before.ledger.term == now.ledger.term;
    let built = |status: &FarmStatus| status.accounting.complete + status.accounting.incomplete;
    (is_same && span_s > 0.0).then(|| {
        let tfs = built(now).saturating_sub(built(before)) as f64 / span_s;
        let bytes = now.accounting.bytes.saturating_sub(before.accounting.bytes);
        format!("{tfs:.1} TF/s, {:.1} MB/s", bytes as f64 / 1e6 / span_s)
    })
}

/// Writes `name` and the parts beside it, over as many lines of 80 columns as it takes.
fn line(text: &mut String, name: &str, parts: impl IntoIterator<Item = String>) {
    let mut current = format!("{name:8}");
    let mut is_empty = true;
    for part in parts {
        // With the comma that may follow.
        if !is_empty && current.chars().count() + 2 + part.chars().count() + 1 > 80 {
            writeln!(text, "{current},").expect(WRITTEN);
            current = " ".repeat(8);
            is_empty = true;
        }
        if !is_empty {
            current += ", ";
        }
        current += &part;
        is_empty = false;
    }
    writeln!(text, "{}", current.trim_end()).expect(WRITTEN);
}

fn flp_row(flp: &FlpStatus) -> [String; 7] {
    [
        format!("flp:{}", flp.index),
        flp.state.clone(),
        flp.made_stfs.to_string(),
        mb(flp.sent_bytes),
        flp.held_stfs.to_string(),
        mb(flp.held_bytes),
        flp.lag_tfs.to_string(),
    ]
}

fn epn_row(epn: &EpnStatus) -> [String; 7] {
    [
        format!("epn:{}", epn.index),
        epn.state.clone(),
        epn.delivered_tfs.to_string(),
        mb(epn.received_bytes),
        epn.open_tfs.to_string(),
        mb(epn.open_bytes + epn.sink_bytes),
        ms(epn.latency_us.p99),
    ]
}

/// Writes rows under their head: the first two columns to the left, numbers to the right.
fn table(text: &mut String, head: [&str; 7], rows: &[[String; 7]]) {
    let widths: [usize; 7] = std::array::from_fn(|at| {
        let widest = rows.iter().map(|row| row[at].chars().count()).max();
        widest.unwrap_or_default().max(head[at].len())
    });
    let mut write = |cells: [&str; 7]| {
        let cells = cells.iter().zip(widths).enumerate();
        let cells = cells.map(|(at, (cell, width))| match at {
            0 | 1 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        let cells: Vec<String> = cells.collect();
        writeln!(text, "{}", cells.join("  ").trim_end()).expect(WRITTEN);
    };
    write(head);
    for row in rows {
        write(row.each_ref().map(String::as_str));
    }
}

fn mb(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

fn ms(us: f64) -> String {
    format!("{:.1}", us / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::super::{Icn, report};
    use super::*;
    use crate::demo::watch::tests::status_at;
    use sheaf_node::operator::Told;
    use sheaf_protocol::Term;

    fn report_of(status: FarmStatus) -> Report {
        let icn = "127.0.0.1:7000".to_owned();
        let term = Term(1);
        report(&Ok(Told { icn, term, status }), &[], Some(1))
    }

    #[test]
    fn a_farm_is_told_in_lines() {
        let text = text(&report_of(status_at(3)), Some(&status_at(2)));
        let lines: Vec<&str> = text.lines().collect();
        let expected = [
            "leader  127.0.0.1:7000 (term 1)",
            "state   run 00000000000000aa is running, 2 TFs in flight, 1 EPNs",
            "health  healthy",
            "TFs     announced 302 = complete 300 + incomplete 0 + dropped 0 + in flight 2",
            "        reassigned 0, abandoned 0, waiting for room 0",
            "latency p50 0.0 ms, p99 0.0 ms, longest 0.0 ms, 100.0 TF/s, 100.0 MB/s",
            "farm    policy round-robin, security , ledger  with 0 records",
            "",
            "node   state  made STFs  sent MB  held STFs  held MB  lag TFs",
            "flp:0  up           302    300.0          0      2.0        0",
            "node   state  TFs  received MB  open TFs  held MB  p99 ms",
            "epn:0  up     300        300.0         0      2.0    12.3",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn large_numbers_and_many_parts_fit_80_columns() {
        let mut status = status_at(3);
        status.accounting.dropped = [
            "source-died",
            "source-late",
            "shed-overload",
            "oversize",
            "run-ended",
            "operator",
        ]
        .map(|reason| (reason.to_owned(), 123_456))
        .into();
        status.flps[0].made_stfs = 1_000_000_000;
        status.flps[0].sent_bytes = 1_000_000_000_000_000;
        status.flps[0].state = "leaving".to_owned();
        let mut report = report_of(status);
        report.icns = (0..5)
            .map(|index| Icn {
                address: format!("10.0.0.{index}:7000"),
                state: "standby",
                why: String::new(),
            })
            .collect();
        for line in text(&report, None).lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
