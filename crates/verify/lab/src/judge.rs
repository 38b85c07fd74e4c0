//! Holds what happened in a cell against what was promised.

use crate::accounting::{self, Recomputed};
use crate::cell::{Cell, Since};
use crate::farm::{Change, Farm, LEADS, Log};
use crate::report::Row;
use crate::shape::{Clocks, Consumer};
use crate::trace::{Outcome, TfTrace, Trace};
use crate::written;
use sheaf_farm::Life;
use sheaf_figures::stat;
use sheaf_node::status::AccountingStatus;
use sheaf_protocol::{NodeId, Role};
use sheaf_testbed::IoError;
use std::ops::Range;
use std::time::Duration;

/// How long after the last fault has healed TFs may still suffer from it.
pub(crate) const SETTLE: Duration = Duration::from_secs(1);
/// How much longer the farm runs then, all of whose TFs have to be complete.
pub(crate) const CALM: Duration = Duration::from_millis(400);
/// A fault shorter than this many times the bound of its detection may pass unnoticed.
const NOTICED_FROM: u64 = 2;
/// How long a TF may be open that was called for after a fault was undone, in ms: its deadline, and a second try.
const AFTER_MS: u64 = 650;
/// Problems that a row tells.
const TOLD_MAX: usize = 8;

/// One fault that was done.
#[derive(Clone, Debug)]
pub(crate) struct Injection {
    /// To whom.
    pub(crate) nodes: Vec<NodeId>,
    /// Just before it began.
    pub(crate) at_ns: u64,
    /// When it was undone.
    pub(crate) healed_ns: u64,
    /// How often the leading ICN has found a node silent meanwhile.
    pub(crate) suspected: u64,
    /// TFs that it has reassigned meanwhile.
    pub(crate) reassigned: u64,
}

/// Evidence to judge.
pub(crate) struct Facts<'a> {
    pub(crate) cell: &'a Cell,
    pub(crate) injections: &'a [Injection],
    pub(crate) changes: &'a [Change],
    pub(crate) trace: &'a Trace,
    pub(crate) accounting: &'a Recomputed,
    pub(crate) problems: Vec<String>,
    pub(crate) slack: f64,
}

/// The times of node clocks that are ahead, in ns.
pub(crate) fn ahead_ns(clocks: Clocks) -> impl Fn(NodeId) -> u64 {
    move |node| match clocks {
        Clocks::Ahead(seconds) if node.index == 0 && node.role != Role::Icn => {
            u64::from(seconds) * 1_000_000_000
        }
        _ => 0,
    }
}

/// Reads what a farm that has ended left, and judges it.
///
/// # Errors
///
/// What reading the event logs gives.
pub(crate) fn judge(
    cell: &Cell,
    farm: &Farm,
    injections: &[Injection],
    slack: f64,
) -> Result<Row, IoError> {
    let mut problems = farm.problems.clone();
    if !cell.may_log_errors {
        problems.extend(farm.lives.iter().filter_map(error_line));
    }
    if let Some(text) = cell.must_log {
        let has_text = |life: &Life| {
            let log = std::fs::read_to_string(&life.log);
            log.is_ok_and(|log| log.contains(text))
        };
        if !farm.lives.iter().any(has_text) {
            problems.push(format!("no node logged: {text}"));
        }
    }
    if cell.shape.consumer.has_streams() {
        let trace = Trace::read(&farm.logs(), ahead_ns(cell.shape.clocks))?;
        problems.extend(written::problems(farm.path(), &cell.shape, &trace));
    }
    let changes = farm.watch().changes();
    let status = farm.last_accounting();
    judge_logs(
        cell,
        &farm.logs(),
        status.as_ref(),
        injections,
        &changes,
        problems,
        slack,
    )
}

/// As [`judge`], from what the nodes left.
fn judge_logs(
    cell: &Cell,
    logs: &[Log],
    status: Option<&AccountingStatus>,
    injections: &[Injection],
    changes: &[Change],
    problems: Vec<String>,
    slack: f64,
) -> Result<Row, IoError> {
    let trace = Trace::read(logs, ahead_ns(cell.shape.clocks))?;
    let accounting = accounting::recompute(logs, status)?;
    Ok(row(Facts {
        cell,
        injections,
        changes,
        trace: &trace,
        accounting: &accounting,
        problems,
        slack,
    }))
}

/// Returns the first line of a log with an unexpected error.
pub(crate) fn error_line(life: &Life) -> Option<String> {
    let text = std::fs::read_to_string(&life.log).ok()?;
    let is_error = |line: &&str| line.contains(" ERROR ") || line.contains("panicked at");
    let line = text.lines().find(is_error)?;
    Some(format!("{} logged: {line}", life.node))
}

/// The row of a cell.
pub(crate) fn row(facts: Facts<'_>) -> Row {
    let Facts {
        cell,
        injections,
        changes,
        trace,
        accounting,
        mut problems,
        slack,
    } = facts;
    let detected = detections(cell, injections, changes, &mut problems);
    let (during, after) = waits(cell, injections, trace);
    let (detect_ms_p99, recover_ms_p99) = (stat::p99(&detected), stat::p99(&during));
    let after_ms_p99 = stat::p99(&after);
    let others = problems.len();
    let over = |found: Option<f64>, bound: u64| found.filter(|found| *found > bound as f64 * slack);
    if let Some(found) = cell.detect_ms.and_then(|bound| over(detect_ms_p99, bound)) {
        problems.push(format!("noticed after {found:.0} ms"));
    }
    if let Some(found) = over(recover_ms_p99, cell.recover_ms) {
        problems.push(format!("a TF was open for {found:.0} ms"));
    }
    let after_bound_ms = cell.recover_ms.max(AFTER_MS);
    if let Some(found) = over(after_ms_p99, after_bound_ms) {
        problems.push(format!("a TF was open for {found:.0} ms after the fault"));
    }
    let rate_percent = rate_percent(cell, injections, trace);
    if let Some((found, least)) = rate_percent.zip(cell.rate_percent_min)
        && found < least as f64
    {
        problems.push(format!("{found:.0} % of the TFs that were due are built"));
    }
    let suspected = injections.iter().map(|it| it.suspected).max().unwrap_or(0);
    if cell.suspected_max.is_some_and(|most| suspected > most) {
        problems.push(format!(
            "nodes were found silent {suspected} times in one fault"
        ));
    }
    let late = problems.len() - others;
    problems.extend(accounting.contradictions.iter().cloned());
    if accounting.in_flight > 0 {
        problems.push(format!("{} TFs have no verdict", accounting.in_flight));
    }
    let lost_by_reason = trace.lost();
    for (reason, count) in &lost_by_reason {
        if !cell.losses.contains(&reason.as_str()) {
            problems.push(format!("{count} TFs lost: {reason}"));
        }
    }
    if cell.shape.consumer == Consumer::Stored && trace.abandoned() > 0 {
        problems.push(format!("{} stored TFs abandoned", trace.abandoned()));
    }
    problems.extend(unsettled(injections, trace));
    let is_ok = problems.is_empty()
        && accounting.contradictions_total == 0
        && accounting.delivered_twice == 0;
    problems.truncate(TOLD_MAX);
    Row {
        cell: cell.name.to_owned(),
        number: cell.number.to_owned(),
        what: cell.what.to_owned(),
        injected: injections.len() as u64,
        timeframes: trace.tfs.len() as u64,
        lost: lost_by_reason.values().sum(),
        lost_by_reason,
        abandoned: trace.abandoned(),
        delivered_twice: accounting.delivered_twice,
        detect_ms_p99,
        detect_bound_ms: cell.detect_ms,
        recover_ms_p99,
        recover_ms_median: stat::median_high(&during),
        after_ms_p99,
        after_bound_ms,
        bound_ms: cell.recover_ms,
        rate_percent,
        rate_bound_percent: cell.rate_percent_min,
        suspected,
        suspected_bound: cell.suspected_max,
        reassigned: injections.iter().map(|it| it.reassigned).sum(),
        bound_slack: slack,
        ok: is_ok,
        skipped: None,
        problems,
        late,
        interference: 0.0,
        repeated: 0,
        logs: None,
        seed: 0,
        wall_s: 0.0,
    }
}

/// How long it took until the ICN said that each victim is not in good standing any more, in ms.
fn detections(
    cell: &Cell,
    injections: &[Injection],
    changes: &[Change],
    problems: &mut Vec<String>,
) -> Vec<f64> {
    let Some(bound_ms) = cell.detect_ms else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for injection in injections {
        for node in &injection.nodes {
            // Of an ICN it is noticed when another one, or its next life, leads.
            let is_word = |change: &&Change| match node.role {
                Role::Icn => change.state == LEADS,
                _ => change.node == *node && change.state != "up",
            };
            let mut later = changes
                .iter()
                .filter(|change| change.at_ns >= injection.at_ns);
            let noticed = later.find(is_word);
            let lasted_ms = injection.healed_ns.saturating_sub(injection.at_ns) / 1_000_000;
            match noticed {
                Some(change) if change.at_ns <= injection.healed_ns + bound_ms * 1_000_000 => {
                    found.push((change.at_ns - injection.at_ns) as f64 / 1e6);
                }
                _ if lasted_ms > NOTICED_FROM * bound_ms => {
                    problems.push(format!("no node noticed the fault of {node}"));
                }
                _ => {}
            }
        }
    }
    found
}

/// The longest that a TF had to wait because of each fault, in ms: of those called for before it was undone, and of
/// those called for afterwards.
fn waits(cell: &Cell, injections: &[Injection], trace: &Trace) -> (Vec<f64>, Vec<f64>) {
    let (mut during, mut after) = (Vec::new(), Vec::new());
    let mut last_ns = 0;
    for (index, injection) in injections.iter().enumerate() {
        let next_ns = injections
            .get(index + 1)
            .map_or(u64::MAX, |next| next.at_ns);
        let since_ns = match cell.since {
            Since::Fault => injection.at_ns,
            Since::Heal => injection.healed_ns,
        };
        let called = last_ns..injection.healed_ns;
        during.extend(trace.longest_wait_ms(&called, since_ns));
        let called = injection.healed_ns..next_ns;
        after.extend(trace.longest_wait_ms(&called, injection.healed_ns));
        // A TF that was called for before the last one healed and is still open belongs to that.
        last_ns = injection.healed_ns;
    }
    (during, after)
}

/// The least share of the TFs due during a fault that were built during it, in percent, over all faults.
fn rate_percent(cell: &Cell, injections: &[Injection], trace: &Trace) -> Option<f64> {
    let built = |range: &Range<u64>| {
        let is_built = |tf: &&TfTrace| {
            let is_in_time = tf.verdict_ns.is_some_and(|at| range.contains(&at));
            is_in_time && tf.outcome == Outcome::Complete
        };
        trace.tfs.values().filter(is_built).count()
    };
    let percents = injections.iter().map(|injection| {
        let range = injection.at_ns..injection.healed_ns;
        let span_s = (range.end - range.start) as f64 / 1e9;
        100.0 * built(&range) as f64 / (cell.shape.rate_hz * span_s)
    });
    percents.min_by(f64::total_cmp)
}

/// Whether TFs went wrong long after the last fault.
fn unsettled(injections: &[Injection], trace: &Trace) -> Option<String> {
    let settle_ns = u64::try_from(SETTLE.as_nanos()).unwrap_or(u64::MAX);
    let from_ns = injections.last()?.healed_ns + settle_ns;
    let later = trace
        .tfs
        .values()
        .filter(|tf| tf.called_ns.is_some_and(|called| called > from_ns));
    let (mut all, mut bad) = (0_u64, 0_u64);
    for tf in later {
        all += 1;
        bad += u64::from(tf.outcome != Outcome::Complete);
    }
    if all == 0 {
        return Some("no TF was called for after the faults".to_owned());
    }
    (bad > 0).then(|| format!("{bad} of {all} TFs are not complete though the faults were over"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Fault, Who};
    use sheaf_audit::Fate;
    use sheaf_protocol::{EpnId, FlpId};
    use std::collections::BTreeMap;

    const MS: u64 = 1_000_000;
    const CELL: Cell = Cell {
        detect_ms: Some(20),
        recover_ms: 150,
        ..Cell::new("epn-kill", "F1", "an EPN is killed", Fault::Kill, Who::Epn)
    };

    /// A run of 400 TFs at 200 Hz with one fault at 100 ms that is healed at 400 ms: nothing is lost.
    fn good() -> (Vec<Injection>, Vec<Change>, Trace) {
        let node: NodeId = EpnId(1).into();
        let mut trace = Trace::default();
        for number in 0..400 {
            let called = number * 5 * MS;
            let tf = trace.tfs.entry(number).or_default();
            tf.called_ns = Some(called);
            let decided = called + if number == 20 { 40 * MS } else { MS };
            tf.verdict_ns = Some(decided);
            tf.delivered_ns = Some(decided + MS);
            tf.outcome = Outcome::Complete;
        }
        let injection = Injection {
            nodes: vec![node],
            at_ns: 100 * MS,
            healed_ns: 400 * MS,
            suspected: 0,
            reassigned: 0,
        };
        let change = Change {
            at_ns: 107 * MS,
            node,
            state: "cut".to_owned(),
        };
        (vec![injection], vec![change], trace)
    }

    fn judged(
        (injections, changes, trace): &(Vec<Injection>, Vec<Change>, Trace),
        accounting: &Recomputed,
        cell: &Cell,
    ) -> Row {
        row(Facts {
            cell,
            injections,
            changes,
            trace,
            accounting,
            problems: Vec::new(),
            slack: 1.0,
        })
    }

    #[test]
    fn a_cell_in_which_all_went_well_is_ok_and_says_how_long_it_took() {
        let row = judged(&good(), &Recomputed::default(), &CELL);
        assert!(row.ok, "{:?}", row.problems);
        assert_eq!(
            (row.detect_ms_p99, row.recover_ms_p99),
            (Some(7.0), Some(40.0))
        );
        assert_eq!((row.injected, row.lost, row.timeframes), (1, 0, 400));
    }

    #[test]
    fn a_bound_that_is_not_kept_is_not_ok() {
        let mut slow = good();
        slow.1[0].at_ns = 150 * MS;
        let row = judged(&slow, &Recomputed::default(), &CELL);
        assert_eq!(
            (row.ok, row.problems),
            (false, vec!["noticed after 50 ms".to_owned()])
        );
        slow.1.clear();
        let row = judged(&slow, &Recomputed::default(), &CELL);
        let expected = "no node noticed the fault of epn:1";
        assert_eq!((row.ok, row.problems), (false, vec![expected.to_owned()]));
        let strict = Cell {
            recover_ms: 30,
            ..CELL
        };
        let row = judged(&good(), &Recomputed::default(), &strict);
        assert_eq!(
            (row.ok, row.problems),
            (false, vec!["a TF was open for 40 ms".to_owned()])
        );
    }

    #[test]
    fn a_lost_tf_is_not_ok_unless_the_cell_has_a_reason_for_it() {
        let mut facts = good();
        let tf = facts.2.tfs.get_mut(&30).unwrap();
        tf.outcome = Outcome::Dropped("source-died".to_owned());
        let row = judged(&facts, &Recomputed::default(), &CELL);
        assert_eq!((row.ok, row.lost), (false, 1));
        assert_eq!(row.problems, ["1 TFs lost: source-died"]);
        let flp = Cell {
            losses: &["source-died"],
            ..CELL
        };
        assert!(judged(&facts, &Recomputed::default(), &flp).ok);
    }

    #[test]
    fn what_the_books_find_is_not_ok() {
        let accounting = Recomputed {
            delivered_twice: 1,
            contradictions: vec!["TF 7 was delivered twice".to_owned()],
            contradictions_total: 1,
            ..Recomputed::default()
        };
        let row = judged(&good(), &accounting, &CELL);
        assert_eq!((row.ok, row.delivered_twice), (false, 1));
        let open = Recomputed {
            in_flight: 2,
            ..Recomputed::default()
        };
        assert_eq!(
            judged(&good(), &open, &CELL).problems,
            ["2 TFs have no verdict"]
        );
    }

    #[test]
    fn a_farm_that_flaps_or_falls_behind_is_not_ok() {
        let short = Cell {
            rate_percent_min: Some(50),
            suspected_max: Some(2),
            ..CELL
        };
        let mut facts = good();
        facts.0[0].suspected = 2;
        let row = judged(&facts, &Recomputed::default(), &short);
        // 61 heartbeats from 100 to 400 ms, and the one that waited.
        assert!(row.ok, "{:?}", row.problems);
        assert_eq!((row.rate_percent, row.suspected), (Some(100.0), 2));
        facts.0[0].suspected = 3;
        for tf in facts.2.tfs.range_mut(25..60) {
            tf.1.verdict_ns = Some(500 * MS);
        }
        let row = judged(&facts, &Recomputed::default(), &short);
        let problems = row.problems.join("; ");
        assert!(
            problems.contains("42 % of the TFs that were due are built")
                && problems.contains("nodes were found silent 3 times in one fault"),
            "{problems}"
        );
    }

    #[test]
    fn a_farm_that_does_not_calm_down_is_not_ok() {
        let mut facts = good();
        facts.2.tfs.get_mut(&390).unwrap().outcome = Outcome::Dropped("source-died".to_owned());
        let flp = Cell {
            losses: &["source-died"],
            ..CELL
        };
        let row = judged(&facts, &Recomputed::default(), &flp);
        let expected = "1 of 119 TFs are not complete though the faults were over";
        assert_eq!((row.ok, row.problems), (false, vec![expected.to_owned()]));
    }

    /// Logs of 400 TFs that an FLP made and an EPN delivered, all of them right, and the accounting of the ICN.
    fn honest_logs() -> (BTreeMap<&'static str, String>, AccountingStatus) {
        let line =
            |text: String, at_ns: u64| text.replace('}', &format!(",\"at_ns\":{at_ns}}}")) + "\n";
        let begin = |node: &str, life: u64| {
            line(
                format!(r#"{{"event":"begin","node":"{node}","incarnation":{life}}}"#),
                0,
            ) + &line(r#"{"event":"run","run":"00000000000000aa"}"#.to_owned(), 0)
        };
        let (mut icn, mut flp, mut epn) = (begin("icn:0", 1), begin("flp:0", 2), begin("epn:0", 3));
        for tf in 0..400_u64 {
            let at = tf * 5 * MS;
            icn += &line(format!(r#"{{"event":"called","tf":{tf}}}"#), at);
            flp += &line(
                format!(r#"{{"event":"made","tf":{tf},"bytes":8,"digest":9}}"#),
                at + 1,
            );
            flp += &line(
                format!(r#"{{"event":"sent","tf":{tf},"attempt":1,"epn":0,"incarnation":3}}"#),
                at + 2,
            );
            icn += &line(
                format!(
                    r#"{{"event":"verdict","tf":{tf},"verdict":"complete","epn":0,"incarnation":3,"missing":[]}}"#
                ),
                at + MS,
            );
            let part = r#"{"flp":0,"incarnation":2,"bytes":8,"digest":9}"#;
            let delivered = format!(
                r#"{{"event":"delivered","tf":{tf},"attempt":1,"parts":[{part}],"missing":[],"at_ns":{}}}"#,
                at + 2 * MS
            );
            epn += &(delivered + "\n");
        }
        let accounting = AccountingStatus {
            announced: 400,
            complete: 400,
            bytes: 3200,
            balanced: true,
            ..AccountingStatus::default()
        };
        (
            [("icn", icn), ("flp", flp), ("epn", epn)].into(),
            accounting,
        )
    }

    fn judged_logs(logs: &BTreeMap<&str, String>, status: &AccountingStatus) -> Row {
        let folder = tempfile::tempdir().unwrap();
        let log = |name: &str, node: NodeId| {
            let path = folder.path().join(name);
            std::fs::write(&path, &logs[name]).unwrap();
            Log {
                node,
                fate: Fate::Ended,
                path,
            }
        };
        let logs = [
            log("icn", NodeId::ICN),
            log("flp", FlpId(0).into()),
            log("epn", EpnId(0).into()),
        ];
        let injection = Injection {
            nodes: Vec::new(),
            at_ns: 100 * MS,
            healed_ns: 400 * MS,
            suspected: 0,
            reassigned: 0,
        };
        let cell = Cell {
            detect_ms: None,
            ..CELL
        };
        judge_logs(
            &cell,
            &logs,
            Some(status),
            &[injection],
            &[],
            Vec::new(),
            1.0,
        )
        .unwrap()
    }

    #[test]
    fn honest_logs_are_ok() {
        let (logs, accounting) = honest_logs();
        let row = judged_logs(&logs, &accounting);
        assert!(row.ok, "{:?}", row.problems);
        assert_eq!((row.timeframes, row.lost, row.delivered_twice), (400, 0, 0));
    }

    #[test]
    fn a_log_doctored_to_deliver_twice_is_not_ok() {
        let (mut logs, accounting) = honest_logs();
        let epn = logs.get_mut("epn").unwrap();
        let again = epn
            .lines()
            .find(|line| line.contains("\"tf\":77,"))
            .unwrap()
            .to_owned();
        *epn += &(again + "\n");
        let row = judged_logs(&logs, &accounting);
        assert_eq!(
            (row.ok, row.delivered_twice),
            (false, 1),
            "{:?}",
            row.problems
        );
    }

    #[test]
    fn a_log_doctored_to_lose_a_tf_without_a_reason_is_not_ok() {
        // What is taken out: the delivery of a TF, its verdict, or both.
        for (taken, told) in [
            (&["epn"][..], "TF 77"),
            (&["icn"][..], "without a verdict"),
            (&["epn", "icn"][..], "1 TFs have no verdict"),
        ] {
            let (mut logs, accounting) = honest_logs();
            for name in taken {
                let log = logs.get_mut(name).unwrap();
                let is_kept = |line: &&str| !line.contains("\"tf\":77,") || line.contains("called");
                let kept: Vec<&str> = log.lines().filter(is_kept).collect();
                *log = kept.join("\n") + "\n";
            }
            let row = judged_logs(&logs, &accounting);
            assert!(!row.ok, "{taken:?}");
            let problems = row.problems.join("; ");
            assert!(problems.contains(told), "{taken:?}: {problems}");
        }
    }

    #[test]
    fn a_log_doctored_to_hand_on_other_bytes_is_not_ok() {
        let (mut logs, accounting) = honest_logs();
        let epn = logs.get_mut("epn").unwrap();
        *epn = epn.replacen("\"digest\":9", "\"digest\":8", 1);
        let row = judged_logs(&logs, &accounting);
        assert!(!row.ok && !row.problems.is_empty());
    }
}
