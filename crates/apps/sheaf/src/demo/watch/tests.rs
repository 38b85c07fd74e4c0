//! The farm as it is seen, status by status.

use super::*;
use sheaf_node::status::{AccountingStatus, EpnStatus, FlpStatus, Quantiles};
use sheaf_protocol::EpnId;

/// A farm of one FLP and one EPN after `seconds` at 100 TF/s of 1 MB.
pub(crate) fn status_at(seconds: u32) -> FarmStatus {
    let tfs = 100 * u64::from(seconds);
    FarmStatus {
        version: 1,
        run: "00000000000000aa".to_owned(),
        phase: "running".to_owned(),
        policy: "round-robin".to_owned(),
        uptime_s: f64::from(seconds) + 0.5,
        duration_s: f64::from(seconds),
        accounting: AccountingStatus {
            announced: tfs + 2,
            complete: tfs,
            in_flight: 2,
            bytes: tfs * 1_000_000,
            balanced: true,
            ..AccountingStatus::default()
        },
        flps: vec![FlpStatus {
            state: "up".to_owned(),
            held_bytes: 2_000_000,
            made_stfs: tfs + 2,
            sent_bytes: tfs * 1_000_000,
            ..FlpStatus::default()
        }],
        epns: vec![EpnStatus {
            state: "up".to_owned(),
            incarnation: 7,
            open_bytes: 1_500_000,
            sink_bytes: 500_000,
            delivered_tfs: tfs,
            received_bytes: tfs * 1_000_000,
            latency_us: Quantiles {
                p50: 1500.0,
                p99: 12_300.0,
                max: 20_000.0,
            },
            ..EpnStatus::default()
        }],
        ..FarmStatus::default()
    }
}

pub(crate) fn watch() -> Watch {
    let mut watch = Watch::default();
    watch.add(status_at(2));
    watch.add(status_at(3));
    watch
}

#[test]
fn rates_are_those_of_the_last_second() {
    let mut watch = watch();
    let mut slower = status_at(3);
    slower.uptime_s += 1.0;
    slower.accounting.complete += 10;
    watch.add(slower);
    assert_eq!(watch.tfs_per_s(), 10.0);
}

#[test]
fn a_row_shows_what_a_node_does() {
    let rows = watch().rows();
    let told: Vec<String> = rows
        .iter()
        .map(|row| {
            let (items, mb) = (row.items_per_s, row.mb_per_s);
            format!(
                "{} {} {items} {mb} {}",
                row.node, row.state, row.buffered_bytes
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            "icn:0 up 100 0 0",
            "flp:0 up 100 100 2000000",
            "epn:0 up 100 100 2000000"
        ]
    );
}

#[test]
fn the_ledger_shows_its_sum() {
    let expected = "announced 302 = complete 300 + incomplete 0 + dropped 0 + in flight 2 ✔";
    assert_eq!(watch().ledger(), expected);
}

#[test]
fn what_changes_is_told_once() {
    let mut watch = watch();
    let mut cut = status_at(4);
    cut.epns[0].state = "cut".to_owned();
    cut.accounting.reassigned = 4;
    watch.add(cut.clone());
    watch.add(cut);
    let told: Vec<&str> = watch
        .happenings_from(0)
        .map(|found| found.text.as_str())
        .collect();
    assert_eq!(told, ["the run begins", "epn:0 cut, 4 TFs reassigned"]);
    assert_eq!(watch.happenings_from(1).count(), 1);
}

#[test]
fn old_happenings_are_forgotten_and_keep_their_numbers() {
    let mut watch = Watch::default();
    (0..300).for_each(|number| watch.tell(0.0, number.to_string()));
    assert_eq!(watch.happened(), 300);
    assert_eq!(
        watch
            .happenings_from(298)
            .map(|found| found.text.as_str())
            .next(),
        Some("298")
    );
    assert_eq!(watch.happenings_from(0).count(), 256);
}

#[test]
fn a_new_life_of_an_epn_keeps_the_duplicates_of_the_old() {
    let mut watch = Watch::default();
    for (incarnation, count) in [(7, 3), (8, 1), (8, 2)] {
        let mut status = status_at(3);
        status.epns[0].incarnation = incarnation;
        status.epns[0].duplicates_refused = count;
        watch.add(status);
    }
    assert_eq!(
        (watch.duplicates_refused(), watch.duplicates_refused_by(0)),
        (5, 5)
    );
}

#[test]
fn another_leader_is_told_and_its_counts_are_added() {
    let said = |index: u16, office: &str, term: u64, reassigned: u64| {
        let mut status = status_at(3);
        status.ledger.icn = index;
        status.ledger.office = office.to_owned();
        status.ledger.term = term;
        status.accounting.reassigned = reassigned;
        status
    };
    let mut watch = Watch::default();
    assert_eq!(watch.add(said(0, "leader", 1, 4)), Voice::Leader);
    assert_eq!(watch.offices(), None);
    assert_eq!(watch.add(said(1, "standby", 1, 0)), Voice::Other);
    assert_eq!(
        watch.offices().unwrap(),
        "icn:0 leads in term 1, standby icn:1"
    );
    watch.mark(icn(0), Some("paused"));
    assert_eq!(watch.leader(), None);
    assert_eq!(watch.offices().unwrap(), "no leader, standby icn:1");
    assert_eq!(watch.add(said(1, "leader", 2, 3)), Voice::Leader);
    // It does not know yet.
    assert_eq!(watch.add(said(0, "leader", 1, 9)), Voice::Other);
    watch.mark(icn(0), None);
    assert_eq!(
        watch.offices().unwrap(),
        "icn:1 leads in term 2, standby icn:0"
    );
    assert_eq!(watch.reassigned(), 7);
    let told: Vec<&str> = watch
        .happenings_from(1)
        .map(|found| found.text.as_str())
        .collect();
    assert_eq!(told, ["4 TFs reassigned", "icn:1 leads in term 2"]);
    let states: Vec<String> = watch.rows().into_iter().map(|row| row.state).collect();
    assert_eq!(states[..2], ["standby", "leads"]);
}

#[test]
fn a_node_that_is_gone_has_no_rate() {
    let mut watch = watch();
    let mut status = status_at(4);
    status.epns[0].state = "cut".to_owned();
    watch.add(status);
    watch.mark(NodeId::from(FlpId(0)), Some("killed"));
    let rates: Vec<(f64, f64)> = watch
        .rows()
        .iter()
        .map(|row| (row.items_per_s, row.mb_per_s))
        .collect();
    assert_eq!(rates[1..], [(0.0, 0.0), (0.0, 0.0)]);
    assert!(rates[0].0 > 0.0, "the farm goes on");
}

#[test]
fn a_farm_that_drained_and_is_silent_has_left() {
    let states =
        |watch: &Watch| -> Vec<String> { watch.rows().into_iter().map(|row| row.state).collect() };
    let mut watch = watch();
    watch.lose("no ICN answers");
    assert_eq!(
        (watch.lost(), states(&watch)[2].as_str()),
        (Some("no ICN answers"), "up")
    );
    let mut status = status_at(4);
    status.phase = "draining".to_owned();
    watch.add(status);
    assert_eq!(watch.lost(), None);
    watch.lose("no ICN answers");
    assert_eq!(watch.lost(), Some("the farm has ended"));
    assert_eq!(states(&watch), ["left", "left", "left"]);
}

#[test]
fn the_past_has_a_moment_a_second() {
    let mut watch = Watch::default();
    for quarter in 0..=40_u32 {
        let mut status = status_at(3);
        status.uptime_s = f64::from(quarter) / 4.0;
        status.accounting.complete = u64::from(quarter) * 25;
        watch.add(status);
    }
    let rates: Vec<f64> = watch.past().map(|moment| moment.tfs_per_s).collect();
    assert_eq!(rates.len(), 10);
    assert_eq!(rates[9], 100.0);
}

#[test]
fn a_change_of_leaders_is_no_gap_in_the_past() {
    let mut watch = Watch::default();
    for (term, seconds) in [(1, 0..5_u32), (2, 5..10)] {
        for second in seconds {
            let mut status = status_at(second);
            status.ledger.term = term;
            watch.add(status);
        }
    }
    let rates: Vec<f64> = watch.past().map(|moment| moment.tfs_per_s).collect();
    assert_eq!(rates, [100.0; 8]);
}

#[test]
fn the_supervisor_knows_better() {
    let mut watch = watch();
    let epn = NodeId::from(EpnId(0));
    watch.mark(epn, Some("killed"));
    assert_eq!(watch.rows()[2].state, "killed");
    assert_eq!(watch.rows()[2].buffered_bytes, 0);
    watch.mark(epn, None);
    assert_eq!(watch.rows()[2].state, "up");
}
