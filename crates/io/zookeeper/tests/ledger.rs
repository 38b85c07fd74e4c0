//! The verdict log on real servers: leaders die, stop, are cut off and lose answers, and so do servers.

use sheaf_protocol::{Checkpoint, Record, TfId, Timestamp};
use sheaf_verdict_log::{Ledger, Notice, Position};
use sheaf_zookeeper::keeper::{Answer, Keeper, KeeperError, KeeperEvent, Kind, Request, Ticket};
use sheaf_zookeeper::ledger::{ZooKeeperLedger, ZooKeeperLedgerOptions};
use sheaf_zookeeper::server::{Ensemble, Flow, Home, Relay, ServerOptions};
use sheaf_zookeeper::{Live, Waker, ZooKeeperOptions};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::time::{Duration, Instant};

const SESSION: Duration = Duration::from_millis(600);
/// Time that no step takes, on the busiest machine.
const LONG: Duration = Duration::from_secs(60);

/// One server for most tests of this file. It ends with the process.
static SERVER: LazyLock<Option<Ensemble>> = LazyLock::new(|| {
    let home = Home::for_tests()?;
    let server = Ensemble::start(&home, &ServerOptions::standalone());
    Some(server.unwrap_or_else(|error| panic!("{error}")))
});

fn root() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("/ledger-test/{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

fn record(id: u64) -> Record {
    Record::Clock { elapsed_ns: id }
}

/// Woken by every session.
#[derive(Default)]
struct Rings {
    count: Mutex<u64>,
    rung: Condvar,
}

impl Rings {
    fn waker(self: &Arc<Self>) -> Waker {
        let rings = self.clone();
        Box::new(move || {
            *rings.count.lock().unwrap() += 1;
            rings.rung.notify_all();
        })
    }

    fn seen(&self) -> u64 {
        *self.count.lock().unwrap()
    }

    fn wait(&self, seen: u64, most: Duration) {
        let count = self.count.lock().unwrap();
        drop(
            self.rung
                .wait_timeout_while(count, most, |count| *count <= seen)
                .unwrap(),
        );
    }
}

/// One ICN of a test.
struct Icn {
    ledger: ZooKeeperLedger<Live>,
    /// Notices that have not been polled yet.
    said: VecDeque<Notice>,
}

struct Farm {
    start: Instant,
    rings: Arc<Rings>,
    root: String,
    icns: Vec<Icn>,
}

impl Farm {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            rings: Arc::default(),
            root: root(),
            icns: Vec::new(),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp(0) + self.start.elapsed()
    }

    /// An ICN that reaches ZooKeeper by these addresses; gives its index.
    fn start(&mut self, servers: Vec<String>) -> usize {
        let icn = self.icns.len();
        let options = ZooKeeperOptions::new(servers, SESSION);
        let live = Live::start(&options, self.rings.waker()).unwrap();
        let index = u16::try_from(icn).unwrap();
        let ledger = ZooKeeperLedger::new(live, ZooKeeperLedgerOptions::new(&self.root, index));
        let said = VecDeque::new();
        self.icns.push(Icn { ledger, said });
        icn
    }

    fn poll(&mut self) {
        let now = self.now();
        for icn in &mut self.icns {
            while let Some(notice) = icn.ledger.poll(now) {
                icn.said.push_back(notice);
            }
        }
    }

    /// Waits until one has said what `is_it` picks out, and takes it out with all before it.
    #[track_caller]
    fn await_notice<T>(
        &mut self,
        icn: usize,
        what: &str,
        is_it: impl Fn(Notice) -> Option<T>,
    ) -> T {
        let end = Instant::now() + LONG;
        let mut before = Vec::new();
        loop {
            let seen = self.rings.seen();
            self.poll();
            while let Some(notice) = self.icns[icn].said.pop_front() {
                let text = format!("{notice:?}");
                if let Some(found) = is_it(notice) {
                    return found;
                }
                before.push(text);
            }
            assert!(
                Instant::now() < end,
                "icn {icn} has not said {what}, but {before:?}"
            );
            let now = self.now();
            let due = self
                .icns
                .iter()
                .filter_map(|icn| icn.ledger.next_due())
                .min();
            let most = due.map_or(LONG, |due| due.since(now));
            self.rings.wait(seen, most.min(Duration::from_secs(1)));
        }
    }

    /// Waits until one leads; gives its term and the log that it has read.
    #[track_caller]
    fn await_lead(&mut self, icn: usize) -> (u64, Vec<u64>) {
        let (term, replay) = self.await_notice(icn, "Lead", |notice| match notice {
            Notice::Lead { term, replay } => Some((term.0, replay)),
            _ => None,
        });
        let ids = replay.filter_map(|record| match record {
            Record::Clock { elapsed_ns } => Some(elapsed_ns),
            _ => None,
        });
        (term, ids.collect())
    }

    #[track_caller]
    fn await_durable(&mut self, icn: usize, position: Position) {
        self.await_notice(icn, "Durable", |notice| match notice {
            Notice::Durable(durable) => (durable >= position).then_some(()),
            _ => None,
        });
    }

    /// Waits until `position` is durable, or its leader is deposed without knowing so.
    #[track_caller]
    fn is_durable_before_deposed(&mut self, icn: usize, position: Position) -> bool {
        self.await_notice(icn, "Durable or Deposed", |notice| match notice {
            Notice::Durable(durable) => (durable >= position).then_some(true),
            Notice::Deposed { .. } => Some(false),
            _ => None,
        })
    }

    #[track_caller]
    fn await_deposed(&mut self, icn: usize) -> String {
        self.await_notice(icn, "Deposed", |notice| match notice {
            Notice::Deposed { why, .. } => Some(why),
            _ => None,
        })
    }

    fn append(&mut self, icn: usize, id: u64) -> Position {
        let now = self.now();
        self.icns[icn].ledger.append(now, vec![record(id)])
    }

    /// Asks the servers for something beside all ICNs, until it is answered.
    fn ask(&self, servers: Vec<String>, request: &Request) -> Result<Answer, KeeperError> {
        let mut live =
            Live::start(&ZooKeeperOptions::new(servers, SESSION), self.rings.waker()).unwrap();
        let end = Instant::now() + LONG;
        loop {
            let seen = self.rings.seen();
            match live.poll(self.now()) {
                Some(KeeperEvent::Connected { .. }) => {
                    live.submit(self.now(), request.clone());
                }
                Some(KeeperEvent::Answer(_, Err(KeeperError::Lost))) => {
                    live.submit(self.now(), request.clone());
                }
                Some(KeeperEvent::Answer(_, answer)) => return answer,
                Some(_) => {}
                None => self.rings.wait(seen, Duration::from_secs(1)),
            }
            assert!(Instant::now() < end, "no answer to {request:?}");
        }
    }

    fn await_answer(&self, live: &mut Live, wanted: Ticket) -> Result<Answer, KeeperError> {
        let end = Instant::now() + LONG;
        loop {
            let seen = self.rings.seen();
            match live.poll(self.now()) {
                Some(KeeperEvent::Answer(found, answer)) if found == wanted => return answer,
                Some(_) => {}
                None => self.rings.wait(seen, Duration::from_secs(1)),
            }
            assert!(Instant::now() < end, "no answer to {wanted:?}");
        }
    }

    fn write(&self, path: &str, data: &[u8]) {
        let servers = SERVER.as_ref().unwrap().addresses();
        let (path, data, version) = (format!("{}/{path}", self.root), data.to_vec(), None);
        let kind = Kind::Persistent;
        let set = Request::Set {
            path: path.clone(),
            data: data.clone(),
            version,
        };
        let answer = match self.ask(servers.clone(), &set) {
            Err(KeeperError::NoNode) => self.ask(servers, &Request::Create { path, data, kind }),
            answer => answer,
        };
        answer.unwrap();
    }

    fn segments(&self) -> Vec<String> {
        let (path, watch) = (format!("{}/log", self.root), false);
        let servers = SERVER.as_ref().unwrap().addresses();
        match self.ask(servers, &Request::List { path, watch }) {
            Ok(Answer::Children(mut names)) => {
                names.sort();
                names
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_next_leader_goes_on_with_the_log_of_one_that_was_killed() {
    let Some(server) = &*SERVER else { return };
    let mut farm = Farm::new();
    let (first, second) = (farm.start(server.addresses()), 1);
    assert_eq!(farm.await_lead(first), (1, vec![]));
    farm.start(server.addresses());
    let mut last = Position(0);
    for id in 1..=100 {
        last = farm.append(first, id);
        farm.poll();
    }
    farm.await_durable(first, last);
    let other = ledger_that_waits(&farm);
    let killed = std::mem::replace(&mut farm.icns[first].ledger, other);
    killed.into_keeper().vanish();
    assert_eq!(farm.await_lead(second), (2, (1..=100).collect()));
    let position = farm.append(second, 101);
    farm.await_durable(second, position);
}

#[test]
fn after_thousands_of_segments_a_takeover_reads_few_of_them() {
    let Some(server) = &*SERVER else { return };
    let mut farm = Farm::new();
    let (first, second) = (farm.start(server.addresses()), 1);
    farm.await_lead(first);
    farm.start(server.addresses());
    let (segments, mut summed) = (2000, 0);
    for id in 1..=segments {
        let mut last = farm.append(first, id);
        if farm.icns[first].ledger.wants_checkpoint() {
            let head = Checkpoint {
                frontier: TfId(id),
                ..Checkpoint::default()
            };
            let now = farm.now();
            let records = vec![Record::Checkpoint(Box::new(head))];
            last = farm.icns[first].ledger.append(now, records);
            summed = id;
        }
        farm.await_durable(first, last);
    }
    // The last removal is on its way.
    let end = Instant::now() + LONG;
    while farm.icns[first].ledger.segments_kept() > 300 {
        farm.poll();
        assert!(Instant::now() < end, "nothing is removed");
    }
    assert!(farm.segments().len() <= 300);
    let other = ledger_that_waits(&farm);
    let killed = std::mem::replace(&mut farm.icns[first].ledger, other);
    killed.into_keeper().vanish();
    let (term, log) = farm.await_lead(second);
    assert_eq!((term, log), (2, (summed + 1..=segments).collect()));
    let read = farm.icns[second].ledger.segments_read();
    println!("{read} of {segments} segments read");
    assert!(read <= 120, "{read} of {segments} segments read");
}

/// A ledger in the place of one that is gone: it reaches no server.
fn ledger_that_waits(farm: &Farm) -> ZooKeeperLedger<Live> {
    let options = ZooKeeperOptions::new(vec!["127.0.0.1:1".to_owned()], SESSION);
    let live = Live::start(&options, farm.rings.waker()).unwrap();
    ZooKeeperLedger::new(live, ZooKeeperLedgerOptions::new(&farm.root, 99))
}

#[test]
fn a_request_of_a_session_that_the_caller_does_not_know_is_not_carried_out() {
    let Some(server) = &*SERVER else { return };
    let farm = Farm::new();
    let options = ZooKeeperOptions::new(server.addresses(), SESSION);
    let mut live = Live::start(&options, farm.rings.waker()).unwrap();
    // The session is there, and has not been polled.
    farm.rings.wait(0, LONG);
    let path = format!("{}-unknown", farm.root.replace("/ledger-test/", "/"));
    let create = Request::Create {
        path: path.clone(),
        data: Vec::new(),
        kind: Kind::Ephemeral,
    };
    let ticket = live.submit(farm.now(), create.clone());
    assert_eq!(farm.await_answer(&mut live, ticket), Err(KeeperError::Lost));
    let watch = false;
    let there = farm.ask(server.addresses(), &Request::Exists { path, watch });
    assert_eq!(there, Ok(Answer::Exists(false)));
    // Now it is known.
    let ticket = live.submit(farm.now(), create);
    assert!(farm.await_answer(&mut live, ticket).is_ok());
}

#[test]
fn a_leader_that_was_stopped_wakes_up_and_its_append_changes_nothing() {
    let Some(server) = &*SERVER else { return };
    let mut farm = Farm::new();
    let old = farm.start(server.addresses());
    farm.await_lead(old);
    let new = farm.start(server.addresses());
    let position = farm.append(old, 1);
    farm.await_durable(old, position);
    // It is stopped in the middle of a sentence.
    let thaw = farm.icns[old].ledger.keeper().freeze();
    farm.append(old, 2);
    let (term, log) = farm.await_lead(new);
    assert_eq!((term, log), (2, vec![1]));
    let position = farm.append(new, 3);
    farm.await_durable(new, position);
    drop(thaw);
    let why = farm.await_deposed(old);
    println!("deposed: {why}");
    assert_eq!(farm.segments().len(), 2);
}

#[test]
fn a_stale_append_that_reaches_the_server_fails_by_the_version_of_the_term() {
    let Some(server) = &*SERVER else { return };
    let mut farm = Farm::new();
    let icn = farm.start(server.addresses());
    farm.await_lead(icn);
    // Another one takes the term, and this one does not know it yet.
    farm.write("term", b"term 41\nicn 7\nsession ff\n");
    farm.append(icn, 1);
    assert_eq!(farm.await_deposed(icn), "another ICN has taken the term");
    assert_eq!(farm.segments(), [""; 0]);
    assert_eq!(farm.await_lead(icn), (42, vec![]));
}

#[test]
fn an_append_whose_answer_is_lost_is_read_back_and_is_there_once() {
    let Some(server) = &*SERVER else { return };
    let mut farm = Farm::new();
    let relay = Relay::start(&server.addresses()[0]).unwrap();
    let icn = farm.start(vec![relay.address()]);
    farm.await_lead(icn);
    for id in 1..=5 {
        let before = farm.segments().len();
        relay.set(Flow::Deaf);
        let position = farm.append(icn, id);
        // The server has the entry, and its answer is lost.
        let end = Instant::now() + LONG;
        while farm.segments().len() == before {
            farm.poll();
            assert!(Instant::now() < end, "the append does not arrive");
        }
        relay.set(Flow::Closed);
        relay.set(Flow::Open);
        // On a machine that is slow to look, the leader has given up first: then its next term finds the entry.
        if !farm.is_durable_before_deposed(icn, position) {
            let (_, log) = farm.await_lead(icn);
            assert_eq!(log, (1..=id).collect::<Vec<u64>>());
        }
    }
    assert_eq!(farm.segments().len(), 5);
    let next = farm.start(server.addresses());
    let now = farm.now();
    farm.icns[icn].ledger.resign(now);
    let (_, log) = farm.await_lead(next);
    assert_eq!(log, [1, 2, 3, 4, 5]);
}

#[test]
fn a_leader_that_is_cut_off_stops_by_itself_and_another_one_leads() {
    let Some(server) = &*SERVER else { return };
    let mut farm = Farm::new();
    let relay = Relay::start(&server.addresses()[0]).unwrap();
    let old = farm.start(vec![relay.address()]);
    farm.await_lead(old);
    let new = farm.start(server.addresses());
    let position = farm.append(old, 1);
    farm.await_durable(old, position);
    relay.set(Flow::Held);
    farm.append(old, 2);
    let why = farm.await_deposed(old);
    assert_eq!(
        why,
        "no ZooKeeper server answered for two thirds of the session"
    );
    let (_, log) = farm.await_lead(new);
    relay.set(Flow::Open);
    // What was on the way may have arrived before the end of the session, never after it.
    assert!(log == [1] || log == [1, 2], "{log:?}");
    farm.await_notice(old, "Healed", |notice| {
        matches!(notice, Notice::Healed).then_some(())
    });
    let now = farm.now();
    farm.icns[new].ledger.resign(now);
    let (term, again) = farm.await_lead(old);
    assert_eq!((term, again), (3, log));
}

#[test]
fn garbage_in_term_and_log_is_named_and_led_over_by_nobody() {
    let Some(server) = &*SERVER else { return };
    let mut farm = Farm::new();
    let icn = farm.start(server.addresses());
    farm.await_lead(icn);
    let position = farm.append(icn, 1);
    farm.await_durable(icn, position);
    farm.write("term", b"\x00garbage");
    farm.append(icn, 2);
    farm.await_deposed(icn);
    let trouble = |notice| match notice {
        Notice::Trouble(what) => Some(what),
        _ => None,
    };
    let what = farm.await_notice(icn, "Trouble", trouble);
    assert!(
        what.starts_with(&format!("{}/term: found \"\\0garbage\"", farm.root)),
        "{what}"
    );
    farm.write("term", b"term 7\nicn 0\nsession 0\n");
    assert_eq!(farm.await_lead(icn), (8, vec![1]));
    farm.write(
        "log/seg-0000000002",
        b"SLZ1 and nonsense behind, longer than any head of a segment",
    );
    farm.append(icn, 3);
    farm.await_deposed(icn);
    let place = format!("{}/log/seg-0000000002", farm.root);
    let what = farm.await_notice(icn, "Trouble", trouble);
    assert_eq!(
        what,
        format!("{place} holds what this leader has not written")
    );
    let what = farm.await_notice(icn, "Trouble", trouble);
    assert!(what.starts_with(&format!("{place}: found")), "{what}");
    let request = Request::Delete {
        path: place,
        version: None,
    };
    farm.ask(server.addresses(), &request).unwrap();
    let (_, log) = farm.await_lead(icn);
    assert_eq!(log, [1]);
}

#[test]
fn the_log_outlives_a_leader_of_the_ensemble_that_is_killed_or_stopped() {
    let Some(home) = Home::for_tests() else {
        return;
    };
    let mut servers = Ensemble::start(&home, &ServerOptions::ensemble()).unwrap();
    let mut farm = Farm::new();
    let (first, second) = (farm.start(servers.addresses()), 1);
    farm.await_lead(first);
    farm.start(servers.addresses());
    let mut id = 0;
    for fault in ["kill", "stop"] {
        let leader = await_leader(&servers);
        match fault {
            "kill" => servers.kill(leader),
            _ => servers.pause(leader),
        }
        // Whichever ICN leads then appends one record more. An attempt whose leader is deposed is another's next.
        id += 1;
        append_somewhere(&mut farm, [first, second], id);
        match fault {
            "kill" => servers.restart(leader).unwrap(),
            _ => servers.resume(leader),
        }
        servers.wait_ready().unwrap();
    }
    let third = farm.start(servers.addresses());
    for icn in [first, second] {
        let now = farm.now();
        farm.icns[icn].ledger.resign(now);
    }
    let (_, mut log) = farm.await_lead(third);
    // An append may have been tried twice, when its leader was deposed before it knew.
    log.dedup();
    assert_eq!(log, [1, 2]);
}

fn await_leader(servers: &Ensemble) -> usize {
    let end = Instant::now() + LONG;
    loop {
        if let Some(leader) = servers.leader() {
            return leader;
        }
        assert!(Instant::now() < end, "no leader of the ensemble");
    }
}

/// Appends a record on whichever of two ICNs leads, until one of them says that it is durable.
fn append_somewhere(farm: &mut Farm, icns: [usize; 2], id: u64) {
    let end = Instant::now() + LONG;
    let mut tried: [Option<Position>; 2] = [None, None];
    loop {
        let seen = farm.rings.seen();
        farm.poll();
        for (icn, tried) in icns.into_iter().zip(&mut tried) {
            while let Some(notice) = farm.icns[icn].said.pop_front() {
                match (notice, *tried) {
                    (Notice::Durable(durable), Some(position)) if durable >= position => return,
                    (Notice::Deposed { .. }, _) => *tried = None,
                    _ => {}
                }
            }
            if tried.is_none() && farm.icns[icn].ledger.status().role == "leader" {
                *tried = Some(farm.append(icn, id));
            }
        }
        assert!(Instant::now() < end, "{id} does not get durable");
        let now = farm.now();
        let due = farm
            .icns
            .iter()
            .filter_map(|icn| icn.ledger.next_due())
            .min();
        let most = due.map_or(Duration::from_secs(1), |due| due.since(now));
        farm.rings.wait(seen, most.min(Duration::from_secs(1)));
    }
}
