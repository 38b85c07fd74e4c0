//! Tests of the FLP, event by event. Input and expectation are text; [`Bench`] knows the API.

mod holding;
mod pacing;
mod sending;

use super::*;
use bytes::Bytes;
use sheaf_protocol::control::Position;
use sheaf_protocol::{EpnId, FlpId, Incarnation, PayloadFormat, RosterId};

/// Payload of an STF, unless a script sets another one.
const STF_BYTES: usize = 10;
/// Largest STF of the source.
const STF_BYTES_MAX: u64 = 20;

struct Bench {
    flp: Flp,
    now: Timestamp,
}

/// Returns an FLP whose run has begun with TF 0, with open streams to EPN 0 and EPN 1.
fn running(change: impl FnOnce(&mut FlpConfig)) -> Bench {
    let mut bench = joined(change);
    bench.after("start 0; epns 0 1; open 0; open 1");
    bench
}

/// Returns an FLP that is in a run which has not begun.
fn joined(change: impl FnOnce(&mut FlpConfig)) -> Bench {
    let mut config = FlpConfig {
        pace: Pace::Max,
        hold_stfs_max: 3,
        ..FlpConfig::default()
    };
    change(&mut config);
    let source = Source {
        flp: FlpId(0),
        incarnation: Incarnation(1),
    };
    let mut bench = Bench {
        flp: Flp::new(config, source, STF_BYTES_MAX),
        now: Timestamp(0),
    };
    bench.after("joins 9");
    bench
}

fn number<N: std::str::FromStr<Err: std::fmt::Debug>>(word: &str) -> N {
    word.parse()
        .unwrap_or_else(|error| panic!("{word}: {error:?}"))
}

fn tf(word: &str) -> TfId {
    TfId(number(word))
}

/// Parses `3` or `3.2`: an EPN and its life, 1 if left out.
fn target(word: &str) -> Target {
    let (epn, life) = word.split_once('.').unwrap_or((word, "1"));
    Target {
        epn: EpnId(number(epn)),
        incarnation: Incarnation(number(life)),
    }
}

/// Parses `5#2>1`: attempt 2 for TF 5 goes to EPN 1.
fn assign(word: &str) -> Assign {
    let (id, rest) = word.split_once('#').expect("tf#attempt>epn");
    let (attempt, epn) = rest.split_once('>').expect("tf#attempt>epn");
    Assign {
        tf: tf(id),
        attempt: Attempt(number(attempt)),
        target: target(epn),
        roster: RosterId(1),
    }
}

/// Parses `first..end` of TFs.
fn range(word: &str) -> (TfId, TfId) {
    let (first, end) = word.split_once("..").expect("first..end");
    (tf(first), tf(end))
}

fn epn_word(target: Target) -> String {
    match target.incarnation.0 {
        1 => target.epn.0.to_string(),
        life => format!("{}.{life}", target.epn.0),
    }
}

impl Bench {
    /// Runs the events, and returns the actions of the FLP after them.
    fn after(&mut self, script: &str) -> String {
        let events = script
            .split(';')
            .map(str::trim)
            .filter(|event| !event.is_empty());
        for event in events {
            let words: Vec<&str> = event.split_whitespace().collect();
            self.event(words[0], &words[1..]);
        }
        self.said()
    }

    /// Checks the actions of the FLP after each line, written as `events => words`.
    fn check(&mut self, script: &str) {
        for line in script
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            let (events, expected) = line.split_once("=>").expect("events => words");
            assert_eq!(self.after(events), expected.trim(), "after: {events}");
        }
    }

    fn event(&mut self, event: &str, words: &[&str]) {
        let now = self.now;
        let control = match event {
            "joins" => return self.flp.handle_joined(now, RunId(number(words[0])), false),
            "make" => return self.make(),
            "stf" => {
                let bytes = words.get(1).map_or(STF_BYTES, |word| number(word));
                self.flp.handle_stf(now, stf(tf(words[0]), bytes));
                return;
            }
            "give-up" => {
                let reason = DropReason::SourceDisorder;
                return self.flp.handle_given_up(tf(words[0]), reason);
            }
            "offer" => return self.flp.handle_offered(tf(words[0])),
            "source-ends" => return self.flp.handle_source_ended(),
            "grant" => {
                let tfs = words[1..].iter().map(|word| tf(word)).collect();
                let grant = Control::Grant(tfs);
                return self.flp.handle_epn_message(target(words[0]), &grant);
            }
            "open" => return self.flp.handle_link_opened(target(words[0])),
            "close" => return self.flp.handle_link_closed(now, target(words[0])),
            "wait" => {
                self.now = now + Duration::from_millis(number(words[0]));
                return self.flp.handle_tick(self.now);
            }
            "start" => Control::Start(Start {
                first: tf(words[0]),
                end: words.get(1).map_or(TfId(u64::MAX), |word| tf(word)),
                elapsed_ns: words.get(2).map_or(0, |word| number(word)),
                origin: words.get(3).map_or(TfId(0), |word| tf(word)),
            }),
            "pace" => Control::Pace(words.iter().map(|word| tf(word)).collect()),
            "assign" => Control::Assign(words.iter().map(|word| assign(word)).collect()),
            "release" => Control::Release(Release {
                version: number(words[0]),
                floor: tf(words[1]),
                ranges: words[2..].iter().map(|word| range(word)).collect(),
            }),
            "epns" => {
                let address = |word: &&str| EpnAddress {
                    target: target(word),
                    address: format!("epn{word}:7100"),
                };
                Control::Epns(words.iter().map(address).collect())
            }
            "stop" => Control::Stop,
            "stop-at" => Control::StopAt { next: tf(words[0]) },
            "dismissed" => Control::Dismissed,
            "leaving" => Control::Leaving,
            other => panic!("{other} is no event"),
        };
        self.flp.handle_control(now, control);
    }

    /// Makes every STF that is wanted now.
    fn make(&mut self) {
        for _ in 0..10_000 {
            let Demand::Make(tf) = self.flp.demand(self.now) else {
                return;
            };
            self.flp.handle_stf(self.now, stf(tf, STF_BYTES));
        }
        panic!("the source is asked for more than any hold takes");
    }

    fn demand(&mut self) -> String {
        match self.flp.demand(self.now) {
            Demand::Make(tf) => format!("make {tf}"),
            Demand::WaitUntil(at) => format!("wait until {}", at.0),
            Demand::Nothing => "nothing".to_owned(),
        }
    }

    fn said(&mut self) -> String {
        let mut words = Vec::new();
        while let Some(action) = self.flp.poll_action() {
            words.push(match action {
                Action::SendStf {
                    target,
                    header,
                    stf,
                } => {
                    assert_eq!((header.key.tf, header.digest), (stf.tf, stf.digest));
                    assert_eq!(Some(header.key.run), self.flp.run());
                    format!(
                        "send {}#{} to {}",
                        stf.tf,
                        header.attempt.0,
                        epn_word(target)
                    )
                }
                Action::Connect { target, .. } => format!("connect {}", epn_word(target)),
                Action::Disconnect { target } => format!("disconnect {}", epn_word(target)),
                // A source that is in step and begins with any TF.
                Action::Send(Control::Position(position)) if position == Position::default() => {
                    continue;
                }
                Action::Send(control) => control_word(&control),
                Action::SendToEpn { target, control } => {
                    format!("{} to {}", control_word(&control), epn_word(target))
                }
            });
        }
        words.join(", ")
    }

    fn held(&self) -> (usize, u64) {
        (self.flp.held_stfs(), self.flp.held_bytes())
    }
}

fn control_word(control: &Control) -> String {
    match control {
        Control::Announce(items) => {
            let tfs: Vec<String> = items.iter().map(|item| item.tf.to_string()).collect();
            format!("announce {}", tfs.join(" "))
        }
        Control::Skipped(items) => {
            let words = items
                .iter()
                .map(|item| format!("{} {}", item.tf, item.reason));
            format!("skip {}", words.collect::<Vec<_>>().join(" "))
        }
        Control::Offer(items) => {
            let words = items.iter().map(|item| item.tf.to_string());
            format!("offer {}", words.collect::<Vec<_>>().join(" "))
        }
        Control::Withdrawn(tfs) => {
            let words = tfs.iter().map(TfId::to_string);
            format!("withdraw {}", words.collect::<Vec<_>>().join(" "))
        }
        Control::Released(tfs) => {
            let words = tfs.iter().map(TfId::to_string);
            format!("released {}", words.collect::<Vec<_>>().join(" "))
        }
        Control::Position(position) => format!(
            "position {} {} refused {}",
            position.first,
            position.counter.name(),
            position.refused_stfs
        ),
        Control::Stopped { next } => format!("stopped {next}"),
        Control::Ended { next } => format!("ended {next}"),
        Control::Unreachable { target } => format!("unreachable {}", epn_word(*target)),
        other => other.name().to_owned(),
    }
}

fn stf(tf: TfId, bytes: usize) -> Stf {
    Stf::new(
        tf,
        PayloadFormat::Opaque,
        Bytes::from(vec![tf.0 as u8; bytes]),
    )
}
