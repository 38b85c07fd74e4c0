//! Health of a farm, judged from its status: what an operator would be called for.

use sheaf_node::operator::IcnSeen;
use sheaf_node::status::FarmStatus;

/// States of nodes that lack something. All others are as they should be, or as an operator wanted them.
const AILING: [&str; 3] = ["silent", "cut", "gone"];

/// Run delay from which on a node counts as short of processor time, in seconds: as long as nodes may be silent.
const RUN_DELAY_LONG_S: f64 = 0.1;

/// Health and the reasons for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// `healthy` or `degraded`.
    pub(super) health: &'static str,
    /// Reasons, if it is degraded.
    pub(super) reasons: Vec<String>,
}

/// Judges a farm by its status and its ICNs. `flps` is the number of FLPs in the farm file, where it is known.
pub(super) fn judge(status: &FarmStatus, icns: &[IcnSeen], flps: Option<u32>) -> Verdict {
    let mut reasons = Vec::new();
    if !status.accounting.balanced {
        reasons.push("the accounting does not balance: keep all logs, it is a bug".to_owned());
    }
    if status.phase == "waiting" {
        reasons.push("the run waits for its quorum".to_owned());
    }
    if let Some(trouble) = &status.ledger.trouble {
        reasons.push(format!("verdict log: {trouble}"));
    }
    for icn in icns.iter().filter(|icn| icn.state == "away") {
        reasons.push(format!("the ICN at {} is away: {}", icn.address, icn.why));
    }
    if status.phase != "over" {
        reasons.extend(of_nodes(status, flps));
    }
    Verdict {
        health: if reasons.is_empty() {
            "healthy"
        } else {
            "degraded"
        },
        reasons,
    }
}

fn of_nodes(status: &FarmStatus, flps: Option<u32>) -> Vec<String> {
    let states = status.flps.iter().map(|flp| ("flp", flp.index, &flp.state));
    let epns = status.epns.iter().map(|epn| ("epn", epn.index, &epn.state));
    let ailing = states
        .chain(epns)
        .filter(|(_, _, state)| AILING.contains(&state.as_str()))
        .map(|(role, index, state)| format!("{role}:{index} is {state}"));
    let mut reasons: Vec<String> = ailing.collect();
    reasons.extend(of_processors(status));
    let off_step = status
        .flps
        .iter()
        .filter(|flp| ["behind", "ahead"].contains(&flp.counter.as_str()));
    reasons.extend(off_step.map(|flp| {
        let (index, counter) = (flp.index, &flp.counter);
        format!("the source of flp:{index} counts {counter}: its STFs are refused (docs/reference/feed.md)")
    }));
    if let Some(flps) = flps {
        let has_joined = |index: &u32| status.flps.iter().any(|flp| u32::from(flp.index) == *index);
        let absent = (0..flps).filter(|index| !has_joined(index));
        reasons.extend(absent.map(|index| format!("flp:{index} has not joined")));
    }
    let takes_tfs = |state: &str| state == "up";
    if !status.epns.iter().any(|epn| takes_tfs(&epn.state)) {
        reasons.push("no EPN takes TFs".to_owned());
    }
    reasons
}

/// Returns the nodes that wait for a processor.
fn of_processors(status: &FarmStatus) -> impl Iterator<Item = String> {
    let icn = ("icn", status.ledger.icn, status.run_delay_s);
    let flps = status.flps.iter();
    let flps = flps.map(|flp| ("flp", flp.index, flp.run_delay_s));
    let epns = status.epns.iter();
    let epns = epns.map(|epn| ("epn", epn.index, epn.run_delay_s));
    let nodes = std::iter::once(icn).chain(flps).chain(epns);
    let waiting = nodes.filter(|(_, _, run_delay_s)| *run_delay_s >= RUN_DELAY_LONG_S);
    waiting.map(|(role, index, run_delay_s)| {
        let ms = run_delay_s * 1000.0;
        format!("{role}:{index} waits for the processor, for up to {ms:.0} ms")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::watch::tests::status_at;

    fn icn(state: &'static str) -> IcnSeen {
        IcnSeen {
            address: "10.0.0.2:7000".to_owned(),
            state,
            why: "connection refused".to_owned(),
        }
    }

    /// Changes a healthy farm and compares what is found.
    #[track_caller]
    fn check(change: impl FnOnce(&mut FarmStatus), expected: &[&str]) {
        let mut status = status_at(3);
        change(&mut status);
        let verdict = judge(&status, &[icn("leads"), icn("standby")], Some(1));
        assert_eq!(verdict.reasons, expected);
        let health = if expected.is_empty() {
            "healthy"
        } else {
            "degraded"
        };
        assert_eq!(verdict.health, health);
    }

    #[test]
    fn a_farm_is_healthy_until_something_is_lacking() {
        check(|_| {}, &[]);
        check(
            |status| status.phase = "waiting".to_owned(),
            &["the run waits for its quorum"],
        );
        check(
            |status| status.accounting.balanced = false,
            &["the accounting does not balance: keep all logs, it is a bug"],
        );
        check(
            |status| status.flps[0].state = "silent".to_owned(),
            &["flp:0 is silent"],
        );
        check(
            |status| status.flps[0].counter = "behind".to_owned(),
            &["the source of flp:0 counts behind: its STFs are refused (docs/reference/feed.md)"],
        );
        check(|status| status.flps[0].run_delay_s = 0.099, &[]);
        check(
            |status| (status.run_delay_s, status.epns[0].run_delay_s) = (0.25, 0.1),
            &[
                "icn:0 waits for the processor, for up to 250 ms",
                "epn:0 waits for the processor, for up to 100 ms",
            ],
        );
        check(|status| status.flps.clear(), &["flp:0 has not joined"]);
        check(
            |status| status.epns[0].state = "cut".to_owned(),
            &["epn:0 is cut", "no EPN takes TFs"],
        );
        check(
            |status| status.ledger.trouble = Some("no majority".to_owned()),
            &["verdict log: no majority"],
        );
    }

    #[test]
    fn what_an_operator_wanted_is_healthy() {
        check(|status| status.flps[0].state = "ended".to_owned(), &[]);
        let drained = |status: &mut FarmStatus| {
            let mut other = status.epns[0].clone();
            other.index = 1;
            other.state = "left".to_owned();
            status.epns.push(other);
        };
        check(drained, &[]);
        let over = |status: &mut FarmStatus| {
            status.phase = "over".to_owned();
            status.epns[0].state = "cut".to_owned();
        };
        check(over, &[]);
    }

    #[test]
    fn an_icn_that_is_away_degrades_the_farm() {
        let verdict = judge(&status_at(3), &[icn("leads"), icn("away")], None);
        let expected = "the ICN at 10.0.0.2:7000 is away: connection refused";
        assert_eq!(verdict.reasons, [expected]);
    }
}
