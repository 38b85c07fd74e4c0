//! Tests of the log in a ZooKeeper in virtual time: leaders come and go, and the log stays one.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_protocol::{Checkpoint, Record, RunId, Term, TfId, Timestamp};
use sheaf_verdict_log::{Ledger, Notice, Position};
use sheaf_zookeeper::keeper::model::{Model, ModelKeeper};
use sheaf_zookeeper::keeper::{Keeper, KeeperError, KeeperEvent, Kind, Request};
use sheaf_zookeeper::ledger::{ZooKeeperLedger, ZooKeeperLedgerOptions};
use std::collections::BTreeMap;
use std::time::Duration;

const SESSION: Duration = Duration::from_millis(400);

/// Returns a record that is like no other.
fn record(id: u64) -> Record {
    Record::Clock { elapsed_ns: id }
}

struct Icn {
    ledger: ZooKeeperLedger<ModelKeeper>,
    is_paused: bool,
    /// Records of this leadership by append; `None` while it does not lead.
    leading: Option<BTreeMap<Position, u64>>,
    /// Content of the log as this leader knows it, with its appends.
    content: Vec<u64>,
    said: Vec<String>,
}

/// Some ICNs and one ZooKeeper.
struct Farm {
    now: Timestamp,
    model: Model,
    icns: Vec<Icn>,
    next_id: u64,
    /// Every record that was reported to a leader as durable.
    durable: Vec<u64>,
    /// The longest replay so far.
    log: Vec<u64>,
    last_term: Term,
    leads: usize,
    /// Records that each checkpoint stands for, by its frontier.
    sums: BTreeMap<u64, Vec<u64>>,
}

impl Farm {
    fn new(seed: u64, icns: u16) -> Self {
        let now = Timestamp(0);
        let model = Model::new(seed, Duration::from_micros(200), Duration::from_millis(2));
        let mut farm = Self {
            now,
            model,
            icns: Vec::new(),
            next_id: 0,
            durable: Vec::new(),
            log: Vec::new(),
            last_term: Term(0),
            leads: 0,
            sums: BTreeMap::new(),
        };
        (0..icns).for_each(|icn| farm.start(icn));
        farm
    }

    fn start(&mut self, icn: u16) {
        let keeper = self.model.client(self.now, SESSION);
        let ledger = ZooKeeperLedger::new(keeper, ZooKeeperLedgerOptions::new("/farm/run", icn));
        self.icns.push(Icn {
            ledger,
            is_paused: false,
            leading: None,
            content: Vec::new(),
            said: Vec::new(),
        });
    }

    fn leader(&self) -> Option<usize> {
        let leads = |icn: &Icn| icn.leading.is_some() && !icn.is_paused;
        self.icns.iter().position(leads)
    }

    fn append(&mut self, icn: usize) {
        let now = self.now;
        let Icn {
            ledger,
            leading,
            content,
            ..
        } = &mut self.icns[icn];
        if let Some(open) = leading {
            self.next_id += 1;
            content.push(self.next_id);
            let position = ledger.append(now, vec![record(self.next_id)]);
            open.insert(position, self.next_id);
        }
    }

    /// Appends a checkpoint of the leader's appends, in more records than fit a segment if `is_large`.
    fn append_checkpoint(&mut self, icn: usize, is_large: bool) {
        let now = self.now;
        let one = &mut self.icns[icn];
        if one.leading.is_none() {
            return;
        }
        let sum = self.sums.len() as u64 + 1;
        self.sums.insert(sum, one.content.clone());
        let head = Checkpoint {
            frontier: TfId(sum),
            ..Checkpoint::default()
        };
        let mut records = vec![Record::Checkpoint(Box::new(head))];
        let ranges = vec![(TfId(1), TfId(2)); Record::RANGES_MAX];
        let released = || Record::Released {
            ranges: ranges.clone(),
        };
        records.extend((0..if is_large { 5 } else { 0 }).map(|_| released()));
        one.ledger.append(now, records);
    }

    fn poll(&mut self, icn: usize) {
        while let Some(notice) = self.icns[icn].ledger.poll(self.now) {
            let one = &mut self.icns[icn];
            match notice {
                Notice::Lead { term, replay } => {
                    assert!(
                        term > self.last_term,
                        "term {term:?} after {:?}",
                        self.last_term
                    );
                    self.last_term = term;
                    self.leads += 1;
                    let mut log = Vec::new();
                    for (at, record) in replay.enumerate() {
                        match record {
                            Record::Clock { elapsed_ns } => log.push(elapsed_ns),
                            Record::Checkpoint(head) => {
                                assert_eq!(at, 0, "a replay begins at its last checkpoint");
                                log.clone_from(&self.sums[&head.frontier.0]);
                            }
                            _ => {}
                        }
                    }
                    assert!(
                        log.starts_with(&self.log),
                        "{log:?} does not go on {:?}",
                        self.log
                    );
                    assert!(log.is_sorted_by(|a, b| a < b), "{log:?} is out of order");
                    for id in &self.durable {
                        assert!(log.contains(id), "{id} was durable and is not in {log:?}");
                    }
                    one.content.clone_from(&log);
                    self.log = log;
                    one.leading = Some(BTreeMap::new());
                    one.said.push(format!("lead {}", term.0));
                }
                Notice::Durable(position) => {
                    let open = one.leading.as_mut().expect("only a leader's are durable");
                    let later = open.split_off(&Position(position.0 + 1));
                    self.durable
                        .extend(std::mem::replace(open, later).into_values());
                }
                Notice::Deposed { why, .. } => {
                    one.leading = None;
                    one.said.push(format!("deposed: {why}"));
                }
                Notice::Trouble(what) => one.said.push(format!("trouble: {what}")),
                Notice::Healed => one.said.push("healed".to_owned()),
                Notice::Send { .. } => panic!("nothing is sent to other ICNs"),
            }
        }
        let due = self.icns[icn].ledger.next_due();
        assert!(
            due.is_none_or(|due| due > self.now),
            "an ICN that was polled at {:?} is due at {due:?}: it would never wait",
            self.now
        );
    }

    fn run(&mut self, ms: u64) {
        let end = self.now + Duration::from_millis(ms);
        while self.now < end {
            for icn in 0..self.icns.len() {
                if !self.icns[icn].is_paused {
                    self.poll(icn);
                }
            }
            let awake = self.icns.iter().filter(|icn| !icn.is_paused);
            let due = awake.filter_map(|icn| icn.ledger.next_due()).min();
            let step = self.now + Duration::from_millis(1);
            let next = due.map_or(step, |due| due.min(step));
            self.now = next.max(Timestamp(self.now.0 + 1));
        }
    }

    /// Returns the notices of an ICN since the last call, as text.
    fn said(&mut self, icn: usize) -> String {
        std::mem::take(&mut self.icns[icn].said).join("; ")
    }

    fn id(&self, icn: usize) -> usize {
        self.icns[icn].ledger.keeper().id()
    }

    fn set_paused(&mut self, icn: usize, is_paused: bool) {
        self.icns[icn].is_paused = is_paused;
        self.model.set_paused(self.now, self.id(icn), is_paused);
    }
}

#[test]
fn one_leads_and_the_next_goes_on_with_its_log() {
    let mut farm = Farm::new(1, 2);
    farm.run(100);
    let first = farm.leader().expect("a leader");
    assert_eq!(farm.said(first), "lead 1");
    for _ in 0..10 {
        farm.append(first);
        farm.run(3);
    }
    farm.run(20);
    assert_eq!(farm.durable.len(), 10);
    assert!(farm.icns[first].ledger.has_others());
    let status = farm.icns[first].ledger.status();
    assert_eq!(
        (status.role, status.records, status.trouble),
        ("leader", 10, None)
    );
    farm.icns.remove(first);
    farm.run(1000);
    assert_eq!(farm.said(0), "lead 2");
    assert_eq!(farm.log.len(), 10);
    assert!(!farm.icns[0].ledger.has_others());
}

#[test]
fn a_leader_that_was_paused_is_fenced_and_says_so() {
    let mut farm = Farm::new(2, 2);
    farm.run(100);
    let old = farm.leader().unwrap();
    let new = 1 - old;
    farm.said(old);
    farm.set_paused(old, true);
    // It wakes in the middle of its work: its next appends are fenced.
    farm.append(old);
    farm.run(1000);
    assert_eq!(farm.said(new), "lead 2");
    farm.append(new);
    farm.run(20);
    farm.set_paused(old, false);
    farm.append(old);
    farm.run(1000);
    let said = farm.said(old);
    assert!(said.contains("deposed: "), "{said}");
    assert_eq!(farm.durable, [2]);
    let names = farm.model.list(farm.now, "/farm/run/log");
    assert_eq!(names, ["seg-0000000001"]);
}

#[test]
fn a_leader_whose_term_was_taken_is_deposed_by_its_own_append() {
    let mut farm = Farm::new(3, 1);
    farm.run(100);
    farm.model
        .write(farm.now, "/farm/run/term", b"term 9\nicn 7\nsession ff\n");
    farm.append(0);
    farm.run(100);
    assert_eq!(
        farm.said(0),
        "lead 1; deposed: another ICN has taken the term; lead 10"
    );
    assert!(farm.durable.is_empty());
}

#[test]
fn a_leader_that_hears_nothing_stops_before_its_session_is_over() {
    let mut farm = Farm::new(4, 1);
    farm.run(100);
    farm.model.set_cut(farm.now, farm.id(0), true);
    farm.run(260);
    assert_eq!(farm.said(0), "lead 1; trouble: no server answers");
    farm.run(10);
    let said = farm.said(0);
    assert_eq!(
        said,
        "deposed: no ZooKeeper server answered for two thirds of the session"
    );
    // Within its session it comes back and leads again.
    farm.model.set_cut(farm.now, farm.id(0), false);
    farm.run(100);
    assert_eq!(farm.said(0), "healed; lead 2");
}

#[test]
fn a_takeover_reads_from_the_last_checkpoint_on_and_what_is_before_the_last_but_one_is_gone() {
    let mut farm = Farm::new(8, 2);
    farm.run(100);
    let first = farm.leader().unwrap();
    let mut checkpoints = 0;
    for at in 0..500 {
        farm.append(first);
        if farm.icns[first].ledger.wants_checkpoint() {
            checkpoints += 1;
            farm.append_checkpoint(first, at % 2 == 0);
        }
        farm.run(8);
    }
    farm.run(50);
    assert!(checkpoints >= 4, "{checkpoints}");
    let kept = farm.model.list(farm.now, "/farm/run/log").len() as u64;
    assert_eq!(kept, farm.icns[first].ledger.segments_kept());
    assert!(kept < 250, "{kept} segments");
    assert_eq!(farm.durable.len(), 500);
    farm.icns.remove(first);
    farm.run(1000);
    assert_eq!(farm.log.len(), 500);
    let read = farm.icns[0].ledger.segments_read();
    assert!(read < 130, "{read} of {kept} segments");
    // Records before the first segment that is there are counted, too.
    assert!(farm.icns[0].ledger.status().records > 500);
}

#[test]
fn a_checkpoint_whose_leader_died_in_the_middle_counts_for_nothing() {
    let mut farm = Farm::new(9, 2);
    farm.run(100);
    let first = farm.leader().unwrap();
    for _ in 0..20 {
        farm.append(first);
        farm.run(8);
    }
    farm.append_checkpoint(first, false);
    farm.append(first);
    farm.run(20);
    // A large one goes in pieces, and the first of them is all that arrives.
    farm.append_checkpoint(first, true);
    let before = farm.model.list(farm.now, "/farm/run/log").len();
    while farm.model.list(farm.now, "/farm/run/log").len() == before {
        let now = farm.now;
        farm.run(0);
        farm.poll(first);
        farm.now = Timestamp(now.0 + 10_000);
    }
    farm.icns.remove(first);
    farm.run(1000);
    assert_eq!(farm.leads, 2);
    assert_eq!(farm.log.len(), 21);
}

#[test]
fn one_who_resigns_makes_room_at_once() {
    let mut farm = Farm::new(5, 3);
    farm.run(100);
    let first = farm.leader().unwrap();
    let now = farm.now;
    farm.icns[first].ledger.resign(now);
    farm.run(60);
    assert!(farm.said(first).ends_with("deposed: it has resigned"));
    let second = farm.leader().expect("another leader");
    assert_ne!(first, second);
    farm.run(1000);
    assert_eq!(farm.leader(), Some(second));
}

#[test]
fn one_who_resigns_while_it_enlists_blocks_nobody() {
    for seed in 0..50 {
        for wait in 0..20 {
            let mut farm = Farm::new(seed, 1);
            farm.run(wait);
            let now = farm.now;
            farm.icns[0].ledger.resign(now);
            farm.start(1);
            farm.run(60);
            assert_eq!(
                farm.leader(),
                Some(1),
                "seed {seed}, resigned after {wait} ms"
            );
        }
    }
}

#[test]
fn garbage_is_named_and_nobody_leads_until_it_is_gone() {
    let mut farm = Farm::new(6, 1);
    farm.run(100);
    farm.append(0);
    farm.run(100);
    let segment = "/farm/run/log/seg-0000000001";
    let good = farm.model.read(farm.now, segment).unwrap();
    let cases: [(&str, &[u8], &str); 5] = [
        (
            "/farm/run/term",
            b"1",
            "found \"1\", expected `term`, `icn` and `session`, a number each",
        ),
        (
            "/farm/run/term",
            b"term 18446744073709551615\nicn 0\nsession 0\n",
            "found the last of all terms, expected an earlier one",
        ),
        (segment, b"garbage", "found 7 bytes, expected at least 41"),
        (
            "/farm/run/log/seg-0000000003",
            &good,
            "found segment 3 after 1, expected no gap",
        ),
        (
            "/farm/run/log/notes",
            b"",
            "found \"notes\", expected seg- and ten digits",
        ),
    ];
    for (path, garbage, what) in cases {
        println!("{path} {what}");
        let before = farm.model.read(farm.now, path);
        farm.icns.clear();
        farm.run(1000);
        farm.model.write(farm.now, path, garbage);
        farm.start(0);
        farm.run(2500);
        assert_eq!(farm.leader(), None, "{path}");
        let place = if what.starts_with("found segment") || path.ends_with("notes") {
            "/farm/run/log"
        } else {
            path
        };
        assert_eq!(farm.said(0), format!("trouble: {place}: {what}"));
        match before {
            Some(good) => farm.model.write(farm.now, path, &good),
            None => farm.model.remove(farm.now, path),
        }
        farm.run(1500);
        let said = farm.said(0);
        assert!(said.starts_with("healed; lead "), "{said}");
        assert_eq!(farm.log, [1]);
    }
}

#[test]
fn an_append_larger_than_a_message_is_whole_or_not_there() {
    let mut farm = Farm::new(7, 1);
    farm.run(100);
    let big: Vec<_> = (0..60_000).map(record).collect();
    let now = farm.now;
    farm.icns[0].ledger.append(now, big);
    // The leader is gone when a part of it is there.
    while farm.model.list(farm.now, "/farm/run/log").is_empty() {
        farm.run(1);
    }
    let parts = farm.model.list(farm.now, "/farm/run/log").len();
    farm.icns.clear();
    farm.run(1000);
    farm.start(1);
    farm.run(100);
    let whole = farm.model.list(farm.now, "/farm/run/log").len() == 3;
    println!("{parts} parts when it ended");
    assert_eq!(farm.log.len(), if whole { 60_000 } else { 0 });
    farm.append(0);
    farm.run(100);
    assert_eq!(farm.durable, [1]);
}

#[test]
fn the_segments_of_runs_before_the_last_are_removed() {
    let mut farm = Farm::new(8, 1);
    farm.run(100);
    let mut firsts = Vec::new();
    for run in 0..4 {
        let now = farm.now;
        let opened = Record::Opened { run: RunId(run) };
        farm.icns[0].ledger.append(now, vec![opened]);
        farm.icns[0]
            .leading
            .as_mut()
            .unwrap()
            .insert(Position(run * 101 + 1), 0);
        farm.run(20);
        for _ in 0..100 {
            farm.append(0);
            farm.run(4);
        }
        farm.run(100);
        firsts.push(farm.model.list(farm.now, "/farm/run/log")[0].clone());
    }
    assert_eq!(firsts[0], firsts[1]);
    assert!(firsts[1] < firsts[2] && firsts[2] < firsts[3], "{firsts:?}");
    // The next leader begins with the first that is there.
    farm.icns.clear();
    farm.run(1000);
    (farm.log, farm.durable) = (Vec::new(), Vec::new());
    farm.start(0);
    farm.run(100);
    assert_eq!(farm.log.len(), 200);
}

#[test]
fn a_removal_whose_answer_was_lost_leaves_no_gap() {
    for seed in 0..100 {
        let mut farm = Farm::new(seed, 1);
        farm.run(100);
        for round in 0..60 {
            farm.append_checkpoint(0, false);
            farm.append(0);
            farm.run(1 + round % 3);
            if round % 4 == 3 {
                farm.model.set_up(farm.now, false);
                farm.run(1);
                farm.model.set_up(farm.now, true);
                farm.run(4);
            }
        }
        farm.run(200);
        let names = farm.model.list(farm.now, "/farm/run/log");
        let numbers: Vec<u64> = names
            .iter()
            .map(|name| name[4..].parse().unwrap())
            .collect();
        let is_next = |pair: &[u64]| pair[1] == pair[0] + 1;
        assert!(numbers.windows(2).all(is_next), "seed {seed}: {numbers:?}");
    }
}

/// Runs cuts, pauses, ends of sessions and of servers in any order, then a calm.
fn torture(seed: u64) {
    println!("seed {seed}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut farm = Farm::new(seed, 3);
    for _ in 0..120 {
        let icn = random.random_range(0..3_usize);
        let (now, id) = (farm.now, farm.id(icn));
        match random.random_range(0..12) {
            0 => farm.model.set_cut(now, id, true),
            1 | 2 => farm.model.set_cut(now, id, false),
            3 => farm.set_paused(icn, true),
            4 | 5 => farm.set_paused(icn, false),
            6 => farm.model.expire(now, id),
            7 => farm.model.set_up(now, false),
            8..10 => farm.model.set_up(now, true),
            _ => {
                // Its process is killed and started again.
                farm.icns.remove(icn);
                farm.start(u16::try_from(icn).unwrap());
            }
        }
        for _ in 0..random.random_range(1..10) {
            for icn in 0..3 {
                if random.random_bool(0.5) && !farm.icns[icn].is_paused {
                    farm.append(icn);
                }
            }
            farm.run(random.random_range(1..60));
        }
    }
    farm.model.set_up(farm.now, true);
    for icn in 0..3 {
        farm.model.set_cut(farm.now, farm.id(icn), false);
        farm.set_paused(icn, false);
    }
    farm.run(3000);
    let leading = farm.icns.iter().filter(|icn| icn.leading.is_some()).count();
    assert_eq!(leading, 1, "leaders in the end");
    let leader = farm.leader().unwrap();
    let before = farm.durable.len();
    farm.append(leader);
    farm.run(100);
    assert_eq!(
        farm.durable.len(),
        before + farm.icns[leader].leading.as_ref().map_or(0, |_| 1)
    );
    assert!(farm.leads >= 1);
    // One more leader reads it all, and checks it against the durable records.
    farm.icns.clear();
    farm.run(1000);
    farm.start(0);
    farm.run(500);
    assert!(farm.leader().is_some());
}

#[test]
fn whatever_happens_the_log_is_one_and_holds_what_was_durable() {
    let seeds = std::env::var("SHEAF_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    match seeds {
        Some(seed) => torture(seed),
        None => (0..150).for_each(torture),
    }
}

#[test]
fn a_request_of_a_session_that_was_replaced_is_not_carried_out_in_the_next() {
    let model = Model::new(5, Duration::from_micros(200), Duration::from_millis(2));
    let at = |ms: u64| Timestamp(ms * 1_000_000);
    let mut keeper = model.client(at(0), SESSION);
    let first = keeper.poll(at(10));
    assert!(
        matches!(first, Some(KeeperEvent::Connected { session: 1, .. })),
        "{first:?}"
    );
    model.write(at(10), "/election", b"");
    model.expire(at(20), keeper.id());
    // The servers have given the client its next session, and the caller has not polled that.
    let ticket = keeper.submit(
        at(30),
        Request::Create {
            path: "/election/icn-0000-1-".to_owned(),
            data: Vec::new(),
            kind: Kind::EphemeralSequential,
        },
    );
    let events: Vec<KeeperEvent> = std::iter::from_fn(|| keeper.poll(at(60))).collect();
    let refused = KeeperEvent::Answer(ticket, Err(KeeperError::Expired));
    assert!(events.contains(&refused), "{events:?}");
    let connected =
        |event: &KeeperEvent| matches!(event, KeeperEvent::Connected { session: 2, .. });
    assert!(events.iter().any(connected), "{events:?}");
    assert_eq!(model.list(at(60), "/election"), [""; 0]);
}
