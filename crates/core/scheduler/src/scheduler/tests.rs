//! Tests of the scheduler, event by event. Input and expectation are text; [`Bench`] knows the API.
//!
//! After every event the laws of `laws.rs` are checked, whatever the test is about.

mod absent;
mod committing;
mod failing;
mod laws;
mod placing;
mod reacting;
mod recovering;
mod redelivering;
mod run_of_a_farm;
mod stored;

use super::*;
use sheaf_protocol::control::{
    Announced, Built, Consumed, Counter, EpnPulse, FlpPulse, Hello, Position, Skipped, SlotHeld,
};
use sheaf_protocol::{Attempt, DropReason, Incarnation, RosterId, Verdict};

const RUN: RunId = RunId(9);
/// Bytes of an STF, unless a script says otherwise.
const STF_BYTES: u64 = 10;
/// Largest STF of an FLP, unless a script says otherwise.
const STF_BYTES_MAX: u64 = 30;
/// Room of an EPN, unless a script says otherwise.
const CAPACITY: (u64, u32) = (1000, 10);

struct Bench {
    scheduler: Scheduler,
    now: Timestamp,
    /// Messages that are shown though most tests do not look at them, by [`Control::name`].
    shown: &'static [&'static str],
    /// Rosters sent to each EPN: those that an assignment names have to be among them.
    told: BTreeMap<EpnId, BTreeSet<RosterId>>,
    /// TFs with a verdict, and the EPN that was to deliver them.
    verdicts: BTreeMap<TfId, Option<Target>>,
    abandoned: BTreeSet<TfId>,
    /// All appended records.
    log: Vec<Record>,
    words: Vec<String>,
}

/// Returns a farm of this many FLPs and EPNs whose run has begun.
fn farm(flps: u16, epns: u16) -> Bench {
    farm_with(flps, epns, |_| {})
}

fn farm_with(flps: u16, epns: u16, change: impl FnOnce(&mut SchedulerConfig)) -> Bench {
    let mut bench = waiting(flps, epns, change);
    (0..epns).for_each(|epn| bench.event(&format!("epn {epn} joins")));
    (0..flps).for_each(|flp| bench.event(&format!("flp {flp} joins")));
    bench.event("flps pulse");
    bench.words.clear();
    bench
}

/// Returns a farm that waits for this many FLPs and EPNs.
fn waiting(flps: u16, epns: u16, change: impl FnOnce(&mut SchedulerConfig)) -> Bench {
    let mut config = SchedulerConfig {
        // EPNs in turn, whatever they measure.
        policy: "round-robin".to_owned(),
        stf_bytes_max: 100,
        tf_bytes_max: 200,
        ..SchedulerConfig::default()
    };
    change(&mut config);
    let plan = RunPlan {
        flps: u32::from(flps),
        epns: u32::from(epns),
        timeframes: None,
        ..RunPlan::default()
    };
    Bench {
        scheduler: Scheduler::new(config, plan, RUN).expect("a policy that exists"),
        now: Timestamp(0),
        shown: &[],
        told: BTreeMap::new(),
        verdicts: BTreeMap::new(),
        abandoned: BTreeSet::new(),
        log: Vec::new(),
        words: Vec::new(),
    }
}

/// Splits a text of several lines or sentences into a list of events.
fn sentences(script: &str) -> impl Iterator<Item = &str> {
    let parts = script.split([';', '\n']).map(str::trim);
    parts.filter(|part| !part.is_empty())
}

/// Parses `3` or `3.2`: a node and its life, 1 if left out.
fn node(word: &str) -> (u16, Incarnation) {
    let (id, life) = word.split_once('.').unwrap_or((word, "1"));
    (number(id), Incarnation(number(life)))
}

fn number<N: std::str::FromStr<Err: std::fmt::Debug>>(word: &str) -> N {
    word.parse()
        .unwrap_or_else(|error| panic!("{word}: {error:?}"))
}

/// Parses `5` or `5-7`: TFs, both ends included.
fn tfs(word: &str) -> Vec<TfId> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    (number(first)..=number(last)).map(TfId).collect()
}

fn source_of(word: &str) -> Source {
    let (flp, incarnation) = node(word);
    Source {
        flp: FlpId(flp),
        incarnation,
    }
}

fn target_of(word: &str) -> Target {
    let (epn, incarnation) = node(word);
    Target {
        epn: EpnId(epn),
        incarnation,
    }
}

/// Returns the hello of an FLP that can hold 8 STFs.
fn flp_hello(stf_bytes_max: u64) -> Hello {
    Hello {
        data_address: String::new(),
        capacity_bytes: 1000,
        slots: 8,
        stf_bytes_max,
        weight_milli: 1000,
        is_durable: false,
        ..Hello::default()
    }
}

fn reason(name: &str) -> DropReason {
    let found = DropReason::ALL
        .into_iter()
        .find(|reason| reason.name() == name);
    found.unwrap_or_else(|| panic!("no reason is called {name}"))
}

impl Bench {
    /// Runs the events, and returns the actions of the scheduler after them.
    fn after(&mut self, script: &str) -> String {
        for sentence in sentences(script) {
            self.event(sentence);
        }
        std::mem::take(&mut self.words).join(", ")
    }

    /// Checks the messages of the scheduler after each line, written as `events => words`.
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

    fn event(&mut self, sentence: &str) {
        let words: Vec<&str> = sentence.split_whitespace().collect();
        match words[0] {
            "flp" => self.flp_event(source_of(words[1]), &words[2..]),
            "flps" => {
                // All that are there report it.
                let sources: Vec<Source> = self.scheduler.flps.values().map(|n| n.source).collect();
                for source in sources {
                    self.flp_event(source, &words[1..]);
                }
            }
            "epn" => self.epn_event(target_of(words[1]), &words[2..]),
            "wait" => {
                self.now = self.now + Duration::from_millis(number(words[1]));
                self.scheduler.handle_tick(self.now);
            }
            "waits" => {
                let delay = Duration::from_millis(number(words[1]));
                self.scheduler.handle_run_delay(delay);
            }
            "late" => self
                .scheduler
                .handle_late(Duration::from_millis(number(words[1]))),
            "stop" => self.scheduler.handle_stop(self.now),
            "settled" => self.scheduler.handle_settled(self.now),
            other => panic!("{other} is no event"),
        }
        self.settle();
    }

    fn flp_event(&mut self, source: Source, words: &[&str]) {
        let (now, scheduler) = (self.now, &mut self.scheduler);
        let bytes = |at: usize| words.get(at).map_or(STF_BYTES, |word| number(word));
        let control = match words[0] {
            "joins" => {
                let bytes_max = words
                    .get(1)
                    .filter(|word| **word != "mute")
                    .map_or(STF_BYTES_MAX, |word| number(word));
                scheduler.handle_flp_joined(now, source, &flp_hello(bytes_max));
                // A source that begins with any TF, unless its position comes later.
                if words.contains(&"mute") {
                    return;
                }
                Control::Position(Position::default())
            }
            "gone" => return scheduler.handle_flp_gone(now, source),
            "silent" => return scheduler.handle_flp_silent(now, source),
            "expired" => {
                scheduler.handle_flp_expired(now, source);
                return;
            }
            "heard" => return scheduler.handle_flp_heard(now, source),
            "has" | "have" => {
                let bytes = bytes(3);
                let items = tfs(words[1]).into_iter();
                Control::Announce(items.map(|tf| Announced { tf, bytes }).collect())
            }
            "skips" => {
                let reason = reason(words[2]);
                let items = tfs(words[1]).into_iter();
                Control::Skipped(items.map(|tf| Skipped { tf, reason }).collect())
            }
            "begins" => Control::Position(Position {
                first: TfId(number(words[1])),
                ..Position::default()
            }),
            "ahead" => Control::Position(Position {
                first: TfId(number(words[1])),
                counter: Counter::Ahead,
                refused_stfs: 1,
            }),
            "leaves" => Control::Leaving,
            "stopped" => Control::Stopped {
                next: TfId(number(words[1])),
            },
            "ended" => Control::Ended {
                next: TfId(number(words[1])),
            },
            "pulse" => Control::FlpPulse(FlpPulse {
                released_version: words.get(1).map_or(0, |word| number(word)),
                started: true,
                elapsed_ns: words.get(2).map_or(0, |word| number(word)),
                ..FlpPulse::default()
            }),
            "waits" => Control::FlpPulse(FlpPulse {
                started: true,
                run_delay_ns: 1_000_000 * number::<u64>(words[1]),
                ..FlpPulse::default()
            }),
            "unreachable" => Control::Unreachable {
                target: target_of(words[1]),
            },
            "released" => Control::Released(tfs(words[1])),
            other => panic!("an FLP does not say {other}"),
        };
        scheduler.handle_flp(now, source, control);
    }

    fn epn_event(&mut self, target: Target, words: &[&str]) {
        let (now, scheduler) = (self.now, &mut self.scheduler);
        let control = match words[0] {
            "joins" => {
                let hello = Hello {
                    data_address: format!("epn{}:7100", target.epn.0),
                    capacity_bytes: words
                        .get(1)
                        .filter(|w| **w != "keeping")
                        .map_or(CAPACITY.0, |word| number(word)),
                    slots: words.get(2).map_or(CAPACITY.1, |word| number(word)),
                    stf_bytes_max: 0,
                    weight_milli: 1000,
                    is_durable: words.contains(&"keeping"),
                    ..Hello::default()
                };
                // A new stream, perhaps a new process: it may have forgotten earlier messages.
                self.told.remove(&target.epn);
                return scheduler.handle_epn_joined(now, target, &hello);
            }
            "silent" => return scheduler.handle_epn_silent(now, target),
            "cut" => return scheduler.handle_epn_cut(now, target),
            "heard" => return scheduler.handle_epn_heard(now, target),
            "dead" => return scheduler.handle_epn_dead(now, target),
            "leaves" => Control::Leaving,
            "has" => {
                let bytes = words.get(2).map_or(STF_BYTES, |word| number(word));
                let items = tfs(words[1]).into_iter();
                Control::Slots(items.map(|tf| SlotHeld { tf, bytes }).collect())
            }
            "streams" => {
                let sources = words[1..].iter().map(|word| source_of(word));
                Control::Sources(sources.collect())
            }
            "stored" => Control::Stored(tfs(words[1])),
            "returns" => Control::Undelivered(tfs(words[1])),
            "lacks" => Control::NotStored(tfs(words[1])),
            "waits" => Control::EpnPulse(EpnPulse {
                run_delay_ns: 1_000_000 * number::<u64>(words[1]),
                ..EpnPulse::default()
            }),
            "full" => Control::EpnPulse(EpnPulse {
                storage_full: true,
                ..EpnPulse::default()
            }),
            "built" => {
                // `built 5#1 without 0 2`
                let (tf, attempt) = words[1].split_once('#').unwrap_or((words[1], "1"));
                let missing = words[2..].iter().skip(1).map(|word| FlpId(number(word)));
                Control::Built(vec![Built {
                    tf: TfId(number(tf)),
                    attempt: Attempt(number(attempt)),
                    missing: missing.collect(),
                    bytes: STF_BYTES,
                    first_byte_age_ns: 2,
                    last_byte_age_ns: 1,
                }])
            }
            "acks" => Control::CommitAck {
                tfs: tfs(words[1]),
                consumed: Consumed {
                    sink_bytes: words.get(2).map_or(0, |word| number(word)),
                    ..Consumed::default()
                },
            },
            // `frees 10 20`: of all its TFs, 10 bytes in 20 ms; `with 30`: 30 bytes are still with the consumer.
            "frees" => Control::Freed(Consumed {
                sink_bytes: words.get(4).map_or(0, |word| number(word)),
                freed_bytes: number(words[1]),
                busy_ns: 1_000_000 * number::<u64>(words[2]),
            }),
            "corrupt" => Control::Corrupt {
                tf: TfId(number(words[1])),
                flp: FlpId(number(words[2])),
            },
            "pulse" => Control::EpnPulse(EpnPulse {
                released_version: words.get(1).map_or(0, |word| number(word)),
                ..EpnPulse::default()
            }),
            other => panic!("an EPN does not say {other}"),
        };
        scheduler.handle_epn(now, target, control);
    }

    /// Does the driver's work after every event, and checks the laws.
    fn settle(&mut self) {
        self.scheduler.flush();
        while let Some(action) = self.scheduler.poll_action() {
            match action {
                Action::Append(record) => self.append(&record),
                Action::Send(to, control) => self.hear(to, &control),
                Action::NotRedelivered { tf, reason } => {
                    self.words.push(format!("{tf} lost {reason}"));
                }
                Action::Done { tf, target, .. } => {
                    assert_eq!(
                        self.verdicts.get(&tf),
                        Some(&Some(target)),
                        "TF {tf} is done"
                    );
                }
            }
        }
        laws::check(&self.scheduler);
    }

    fn append(&mut self, record: &Record) {
        self.log.push(record.clone());
        let word = match record {
            Record::Verdict { tf, verdict, .. } => {
                let target = match verdict {
                    Verdict::Complete { target } | Verdict::Incomplete { target, .. } => {
                        Some(*target)
                    }
                    Verdict::Dropped { .. } => None,
                };
                let former = self.verdicts.insert(*tf, target);
                assert_eq!(former, None, "TF {tf} has a second verdict: {verdict:?}");
                match verdict {
                    Verdict::Complete { .. } => format!("{tf} complete"),
                    Verdict::Incomplete { missing, .. } => {
                        format!("{tf} incomplete{}", without(missing))
                    }
                    Verdict::Dropped { reason } => format!("{tf} dropped {reason}"),
                }
            }
            Record::Redelivered { tf, verdict, .. } => {
                let (target, missing) = match verdict {
                    Verdict::Complete { target } => (*target, &[][..]),
                    Verdict::Incomplete { target, missing } => (*target, &missing[..]),
                    Verdict::Dropped { .. } => panic!("TF {tf} is amended to {verdict:?}"),
                };
                let former = self.verdicts.insert(*tf, Some(target)).flatten();
                assert!(former.is_some(), "TF {tf} was not built before");
                assert_ne!(former, Some(target), "TF {tf} is built again there");
                assert!(!self.abandoned.contains(tf), "TF {tf} has ended before");
                format!("{tf} again{}", without(missing))
            }
            Record::Abandoned { tf, target } => {
                assert_eq!(
                    self.verdicts.get(tf),
                    Some(&Some(*target)),
                    "TF {tf} was not built there"
                );
                assert!(self.abandoned.insert(*tf), "TF {tf} is abandoned twice");
                format!("{tf} abandoned")
            }
            Record::Undelivered { tf, target } => {
                assert_eq!(
                    self.verdicts.get(tf),
                    Some(&Some(*target)),
                    "TF {tf} was not built there"
                );
                assert!(self.abandoned.insert(*tf), "TF {tf} has ended before");
                format!("{tf} undelivered")
            }
            _ => return,
        };
        self.words.push(word);
    }

    fn hear(&mut self, to: Recipient, control: &Control) {
        let to_epn = match to {
            Recipient::Epn(epn) => Some(epn),
            _ => None,
        };
        match control {
            Control::Roster { id, .. } => {
                let epn = to_epn.expect("a roster is for one EPN");
                self.told.entry(epn).or_default().insert(*id);
            }
            Control::Assign(items) => {
                if let Some(epn) = to_epn {
                    let told = self.told.get(&epn);
                    let knows = |assign: &Assign| told.is_some_and(|t| t.contains(&assign.roster));
                    assert!(
                        items.iter().all(knows),
                        "{epn} knows {told:?}, and gets {items:?}"
                    );
                }
            }
            Control::Commit(items) => {
                for commit in items {
                    let winner = self.verdicts.get(&commit.tf).copied().flatten();
                    assert_eq!(winner.map(|w| w.epn), to_epn, "commit of TF {}", commit.tf);
                }
            }
            _ => {}
        }
        if let Some(word) = self.word(to, control) {
            self.words.push(word);
        }
    }

    /// Returns one message as text; `None` for those that are not shown.
    fn word(&self, to: Recipient, control: &Control) -> Option<String> {
        let whom = match to {
            Recipient::Flp(flp) => flp.to_string(),
            Recipient::Epn(epn) => epn.to_string(),
            Recipient::AllFlps => "flps".to_owned(),
            Recipient::AllEpns => "epns".to_owned(),
        };
        let is_shown = self.shown.contains(&control.name());
        let each = |words: Vec<String>| words.join(" ");
        Some(match control {
            Control::Assign(items) => match to {
                Recipient::AllFlps => {
                    format!("assign {}", each(items.iter().map(assignment).collect()))
                }
                Recipient::Flp(_) => {
                    format!("{whom}: {}", each(items.iter().map(assignment).collect()))
                }
                _ if is_shown => {
                    format!("{whom}: {}", each(items.iter().map(assignment).collect()))
                }
                _ => return None,
            },
            Control::Commit(items) => each(
                items
                    .iter()
                    .map(|c| {
                        let mark = if c.is_redelivered { " marked" } else { "" };
                        format!("commit {} {whom}{mark}{}", c.tf, without(&c.missing))
                    })
                    .collect(),
            ),
            Control::Recover(items) => each(
                items
                    .iter()
                    .map(|c| format!("recover {}.{} {whom}", c.tf, c.incarnation.0))
                    .collect(),
            ),
            Control::Recall(tfs) => {
                format!(
                    "recall {} {whom}",
                    each(tfs.iter().map(TfId::to_string).collect())
                )
            }
            Control::Discard(tfs) => {
                format!(
                    "discard {} {whom}",
                    each(tfs.iter().map(TfId::to_string).collect())
                )
            }
            Control::Absent(items) => each(
                items
                    .iter()
                    .map(|a| format!("{whom}: {}{}", a.tf, without(&a.flps)))
                    .collect(),
            ),
            Control::SourceGone { source, .. } => format!("{whom}: {} gone", source.flp),
            Control::SourceBack { source, .. } => format!("{whom}: {} back", source.flp),
            Control::Start(start) => format!("start {whom} at {}", start.first),
            Control::StopAt { next } => format!("{whom} stop at {next}"),
            Control::Pace(tfs) => {
                format!("pace {}", each(tfs.iter().map(TfId::to_string).collect()))
            }
            Control::Release(release) if is_shown => {
                let ranges = release
                    .ranges
                    .iter()
                    .map(|(first, end)| format!(" {first}..{end}"));
                let ranges: String = ranges.collect();
                format!(
                    "{whom}: release v{} {}{ranges}",
                    release.version, release.floor
                )
            }
            Control::Roster { members, .. } if is_shown => {
                let members = members.iter().map(|member| member.flp.0.to_string());
                format!("{whom}: roster {}", each(members.collect()))
            }
            Control::Release(_) | Control::Roster { .. } | Control::Epns(_) => return None,
            other => format!("{whom}: {}", other.name()),
        })
    }

    fn booked(&self, epn: u16) -> (u64, u32) {
        let load = self
            .scheduler
            .epn_load(EpnId(epn))
            .expect("an EPN that is there");
        (load.booked_bytes, load.booked_slots)
    }

    fn dropped(&self, name: &str) -> u64 {
        self.scheduler.accounting.dropped[reason(name).index()]
    }
}

/// Returns `5#2>1.3`: attempt 2 for TF 5 goes to the third life of EPN 1; the first life is left out.
fn assignment(assign: &Assign) -> String {
    let life = match assign.target.incarnation.0 {
        1 => String::new(),
        life => format!(".{life}"),
    };
    format!(
        "{}#{}>{}{life}",
        assign.tf, assign.attempt.0, assign.target.epn.0
    )
}

fn without(flps: &[FlpId]) -> String {
    if flps.is_empty() {
        return String::new();
    }
    let flps: Vec<String> = flps.iter().map(|flp| flp.0.to_string()).collect();
    format!(" without {}", flps.join(" "))
}
