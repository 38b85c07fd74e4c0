//! Faults of the demo: kill, pause, start again.

use crate::{duration, node_name};
use serde::{Deserialize, Serialize};
use sheaf_protocol::NodeId;
use std::fmt;
use std::time::Duration;

/// Fault of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FaultKind {
    /// SIGKILL: it has no time to say goodbye.
    Kill,
    /// SIGSTOP: it hangs, its streams stay open.
    Pause,
    /// SIGCONT: it goes on as if nothing had happened.
    Resume,
    /// A new process takes the place of one that is dead.
    Start,
}

/// One thing to be done, at a time that counts from the first announce of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// When.
    pub(crate) at: Duration,
    /// To whom.
    pub(crate) node: NodeId,
    /// Kind of the fault.
    pub(crate) kind: FaultKind,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "killed",
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Start => "started again",
        })
    }
}

/// `NODE@TIME`, such as `epn:2@3s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// To whom.
    pub(crate) node: NodeId,
    /// When.
    pub(crate) at: Duration,
}

/// `NODE@TIME+SPAN`, such as `epn:0@2s+1s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// When and to whom.
    pub(crate) moment: Moment,
    /// For how long.
    pub(crate) length: Duration,
}

/// Reads `NODE@TIME`.
pub(crate) fn parse_moment(text: &str) -> Result<Moment, String> {
    let expected = || format!("found `{text}`, expected NODE@TIME, such as epn:2@3s");
    let (node, at) = text.split_once('@').ok_or_else(expected)?;
    Ok(Moment {
        node: node_name::parse(node)?,
        at: duration::parse(at)?,
    })
}

/// Reads `NODE@TIME+SPAN`.
pub(crate) fn parse_span(text: &str) -> Result<Span, String> {
    let expected = || format!("found `{text}`, expected NODE@TIME+SPAN, such as epn:0@2s+1s");
    let (moment, length) = text.split_once('+').ok_or_else(expected)?;
    Ok(Span {
        moment: parse_moment(moment)?,
        length: duration::parse(length)?,
    })
}

/// Faults still to inject, in order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agenda {
    /// The next one last.
    open: Vec<Fault>,
}

impl Agenda {
    /// All that the command line asks for.
    pub(crate) fn new(kills: &[Moment], pauses: &[Span], starts: &[Moment]) -> Self {
        let fault = |moment: &Moment, kind| Fault {
            at: moment.at,
            node: moment.node,
            kind,
        };
        let kills = kills.iter().map(|kill| fault(kill, FaultKind::Kill));
        let starts = starts.iter().map(|start| fault(start, FaultKind::Start));
        let pauses = pauses.iter().flat_map(|pause| {
            let end = Moment {
                at: pause.moment.at + pause.length,
                ..pause.moment
            };
            [
                fault(&pause.moment, FaultKind::Pause),
                fault(&end, FaultKind::Resume),
            ]
        });
        let mut open: Vec<Fault> = kills.chain(pauses).chain(starts).collect();
        open.sort_by_key(|fault| std::cmp::Reverse((fault.at, fault.kind)));
        Self { open }
    }

    /// All that is still to be done, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.open.iter().rev()
    }

    /// When the next one is due.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        self.open.last().map(|fault| fault.at)
    }

    /// Takes the next one, if it is due at `now`.
    pub(crate) fn take_due(&mut self, now: Duration) -> Option<Fault> {
        self.open.pop_if(|fault| fault.at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::{EpnId, FlpId};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_fault_names_node_and_time() {
        let kill = Moment {
            node: EpnId(2).into(),
            at: ms(3000),
        };
        assert_eq!(parse_moment("epn:2@3s"), Ok(kill));
        let moment = Moment {
            node: FlpId(11).into(),
            at: ms(1500),
        };
        assert_eq!(
            parse_span("flp:11@1.5s+200ms"),
            Ok(Span {
                moment,
                length: ms(200)
            })
        );
    }

    #[test]
    fn what_is_wrong_in_a_fault_is_named() {
        for (text, expected) in [
            ("epn:2", "expected NODE@TIME"),
            (
                "reader:0@3s",
                "found node `reader:0`, expected icn:N, flp:N, epn:N or writer:N",
            ),
            ("epn@3s", "found node `epn`"),
            ("epn:x@3s", "found node `epn:x`"),
            ("epn:70000@3s", "found node `epn:70000`"),
            ("epn:2@3", "found `3`, expected a number and ms, s, m or h"),
        ] {
            let error = parse_moment(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let error = parse_span("epn:2@3s").unwrap_err();
        assert!(error.contains("expected NODE@TIME+SPAN"), "{error}");
    }

    #[test]
    fn faults_come_in_order_of_time_and_a_pause_ends() {
        let moment = |text| parse_moment(text).unwrap();
        let span = |text| parse_span(text).unwrap();
        let mut agenda = Agenda::new(
            &[moment("epn:2@3s"), moment("flp:1@1s")],
            &[span("epn:0@2s+1s")],
            &[moment("epn:2@3s")],
        );
        let mut told = Vec::new();
        while let Some(at) = agenda.next_at() {
            assert_eq!(agenda.take_due(at - ms(1)), None, "too early");
            let fault = agenda.take_due(at).unwrap();
            told.push(format!(
                "{} {} {}",
                fault.at.as_secs(),
                fault.node,
                fault.kind
            ));
        }
        let expected = [
            "1 flp:1 killed",
            "2 epn:0 paused",
            "3 epn:2 killed",
            "3 epn:0 resumed",
            "3 epn:2 started again",
        ];
        assert_eq!(told, expected);
    }
}
