//! One farm on a memory network: makes the nodes, lets time pass, hurts them as planned.

use crate::check::{Books, check};
use crate::plan::{Fault, Plan};
use bytes::Bytes;
use sheaf_acquire::flp::{Flp, FlpConfig, Pace};
use sheaf_acquire::{Generator, GeneratorConfig, HeapSlots, SizeModel};
use sheaf_balance::{Mode, RunPlan, SchedulerConfig};
use sheaf_build::{BuildConfig, TfBuilder};
use sheaf_frame::control::Hello;
use sheaf_frame::{EpnId, FlpId, Incarnation, NodeId, RunId, Source, Target, Timestamp};
use sheaf_ledger::memory::MemoryLedger;
use sheaf_membership::LivenessConfig;
use sheaf_metric::Registry;
use sheaf_node::epn::{EpnNode, EpnParts};
use sheaf_node::event::{Event, EventLog};
use sheaf_node::flp::{FlpNode, FlpParts, Turn};
use sheaf_node::icn::{IcnNode, IcnParts};
use sheaf_node::sink::{Discard, SinkHandle};
use sheaf_node::source::Input;
use sheaf_node::uplink::Uplink;
use sheaf_transport::Transport;
use sheaf_transport::memory::{Death, Faults, Memory, Network};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a farm may take to come to rest after it was asked to stop. It is far beyond all deadlines, so
/// whoever needs it is stuck.
const REST_WITHIN: Duration = Duration::from_secs(20);

enum Node {
    Icn(Box<IcnNode<Memory>>),
    Flp(Box<FlpNode<Memory>>),
    Epn(Box<EpnNode<Memory>>),
}

struct Process {
    node: Node,
    wake_at: Timestamp,
    is_frozen: bool,
}

/// What is to happen to the farm at some moment.
#[derive(Clone, Debug)]
enum Step {
    Hurt(Fault),
    Thaw(String),
    Heal(String, String),
    Start(String),
    Calm,
    Stop,
}

pub(crate) struct Farm<'a> {
    plan: &'a Plan,
    network: Network,
    processes: BTreeMap<String, Process>,
    steps: Vec<(Timestamp, Step)>,
    lives: u64,
    logs: BTreeMap<String, Arc<Mutex<Vec<Event>>>>,
    is_calm: bool,
    hold_bytes: u64,
    capacity_bytes: u64,
}

impl<'a> Farm<'a> {
    pub(crate) fn new(plan: &'a Plan) -> Self {
        let network = Network::new(plan.seed, plan.network);
        let mut steps: Vec<(Timestamp, Step)> = Vec::new();
        for (at, fault) in &plan.faults {
            steps.push((Timestamp(0) + *at, Step::Hurt(fault.clone())));
        }
        steps.push((Timestamp(0) + plan.calm_at, Step::Calm));
        steps.push((Timestamp(0) + plan.stop_at, Step::Stop));
        let mut farm = Self {
            plan,
            network,
            processes: BTreeMap::new(),
            steps,
            lives: 0,
            logs: BTreeMap::new(),
            is_calm: false,
            hold_bytes: u64::from(plan.hold_stfs) * (plan.stf_bytes * 2 + 1),
            capacity_bytes: plan.capacity_stfs * u64::from(plan.flps) * (plan.stf_bytes * 2 + 1),
        };
        farm.start("icn:0");
        // Any order of starting is right; the seed picks one.
        let mut names: Vec<String> = (0..plan.flps).map(|flp| format!("flp:{flp}")).collect();
        names.extend((0..plan.epns).map(|epn| format!("epn:{epn}")));
        let turn = plan.seed as usize % names.len();
        names.rotate_left(turn);
        for name in names {
            farm.start(&name);
        }
        farm
    }

    /// Lets everything happen, then checks the books.
    pub(crate) fn run(mut self) -> Books {
        let end = Timestamp(0) + self.plan.stop_at + REST_WITHIN;
        loop {
            let now = self.network.now();
            self.take_steps(now);
            let wake = self.turn_all(now);
            if !self.processes.contains_key("icn:0") && self.is_calm {
                break;
            }
            assert!(
                now < end,
                "the farm does not come to rest: {:#?}",
                self.icn_state()
            );
            let step = self.steps.iter().map(|(at, _)| *at).min();
            let next = [Some(wake), self.network.next_due(), step]
                .into_iter()
                .flatten()
                .min();
            let next = next.unwrap_or(end).max(Timestamp(now.0 + 1));
            self.network.advance_to(next.min(end));
        }
        let logs = self
            .logs
            .iter()
            .map(|(name, log)| (name.clone(), log.lock().unwrap().clone()));
        check(self.plan, &logs.collect())
    }

    fn icn_state(&self) -> Option<String> {
        let Some(Node::Icn(icn)) = self.processes.get("icn:0").map(|process| &process.node) else {
            return None;
        };
        Some(format!(
            "{:#?} {:#?}",
            icn.scheduler(),
            icn.status(self.network.now())
        ))
    }

    fn take_steps(&mut self, now: Timestamp) {
        while let Some(index) = self.steps.iter().position(|(at, _)| *at <= now) {
            let (_, step) = self.steps.remove(index);
            match step {
                Step::Hurt(fault) => self.hurt(now, fault),
                Step::Thaw(name) => self.thaw(&name),
                Step::Heal(a, b) => self.network.heal(&a, &b),
                Step::Start(name) => {
                    if !self.processes.contains_key(&name) {
                        self.start(&name);
                    }
                }
                Step::Calm => self.calm(),
                Step::Stop => {
                    if let Some(process) = self.processes.get_mut("icn:0")
                        && let Node::Icn(icn) = &mut process.node
                    {
                        icn.handle_shutdown(now);
                        process.wake_at = now;
                    }
                }
            }
        }
    }

    fn hurt(&mut self, now: Timestamp, fault: Fault) {
        match fault {
            Fault::Crash {
                node,
                silent,
                back_after,
            } => {
                if self.processes.remove(&node).is_some() {
                    let death = if silent { Death::Silent } else { Death::Seen };
                    self.network.kill(&node, death);
                    if let Some(pause) = back_after {
                        self.steps.push((now + pause, Step::Start(node)));
                    }
                }
            }
            Fault::Pause { node, length } => {
                if let Some(process) = self.processes.get_mut(&node) {
                    process.is_frozen = true;
                    self.network.freeze(&node);
                    self.steps.push((now + length, Step::Thaw(node)));
                }
            }
            Fault::Cut { a, b, length } => {
                self.network.cut(&a, &b);
                self.steps.push((now + length, Step::Heal(a, b)));
            }
            Fault::Leave { node, back_after } => {
                match self
                    .processes
                    .get_mut(&node)
                    .map(|process| &mut process.node)
                {
                    Some(Node::Flp(flp)) => flp.handle_shutdown(now),
                    Some(Node::Epn(epn)) => epn.handle_shutdown(now),
                    Some(Node::Icn(_)) | None => return,
                }
                self.steps.push((now + back_after, Step::Start(node)));
            }
        }
    }

    fn thaw(&mut self, name: &str) {
        if let Some(process) = self.processes.get_mut(name) {
            process.is_frozen = false;
            process.wake_at = self.network.now();
            self.network.thaw(name);
        }
    }

    /// The faults end: everything heals, and whoever is dead comes back.
    fn calm(&mut self) {
        self.is_calm = true;
        let calm = Faults {
            delay_max: self.plan.network.delay_max,
            ..Faults::default()
        };
        self.network.set_faults(calm);
        let heals = self
            .steps
            .extract_if(.., |(_, step)| matches!(step, Step::Heal(..)));
        let heals: Vec<(Timestamp, Step)> = heals.collect();
        for (_, step) in heals {
            if let Step::Heal(a, b) = step {
                self.network.heal(&a, &b);
            }
        }
        let names: Vec<String> = self.processes.keys().cloned().collect();
        for name in names {
            self.thaw(&name);
        }
        for epn in 0..self.plan.epns {
            let name = format!("epn:{epn}");
            if !self.processes.contains_key(&name) {
                self.start(&name);
            }
        }
    }

    /// Turns every process that has something to do; gives back when the next one has.
    fn turn_all(&mut self, now: Timestamp) -> Timestamp {
        let mut ended = Vec::new();
        let mut next = Timestamp(u64::MAX);
        for (name, process) in &mut self.processes {
            if process.is_frozen {
                continue;
            }
            match process.turn(now) {
                Turn::WaitUntil(at) => {
                    process.wake_at = at;
                    next = next.min(at);
                }
                Turn::Done => ended.push(name.clone()),
            }
            match &process.node {
                Node::Icn(_) => {}
                Node::Flp(flp) => assert!(flp.brain().held_bytes() <= self.hold_bytes),
                Node::Epn(epn) => {
                    let used = epn.brain().open_bytes() + epn.brain().sink_bytes();
                    assert!(used <= self.capacity_bytes);
                }
            }
        }
        for name in ended {
            self.processes.remove(&name);
            self.network.kill(&name, Death::Seen);
        }
        next
    }

    fn start(&mut self, name: &str) {
        self.lives += 1;
        let incarnation = Incarnation(self.lives);
        let log = self.logs.entry(name.to_owned()).or_default().clone();
        let log = EventLog::to_memory(log);
        let transport = self.network.endpoint(name);
        let (role, index) = name.split_once(':').expect("role:index");
        let index = index.parse().expect("an index");
        let node = match role {
            "icn" => Node::Icn(Box::new(self.icn(transport, incarnation, log))),
            "flp" => Node::Flp(Box::new(self.flp(
                transport,
                FlpId(index),
                incarnation,
                log,
            ))),
            _ => Node::Epn(Box::new(self.epn(
                transport,
                EpnId(index),
                incarnation,
                log,
            ))),
        };
        let process = Process {
            node,
            wake_at: self.network.now(),
            is_frozen: false,
        };
        self.processes.insert(name.to_owned(), process);
    }

    fn icn(
        &self,
        mut transport: Memory,
        incarnation: Incarnation,
        log: EventLog,
    ) -> IcnNode<Memory> {
        let plan = self.plan;
        let config = SchedulerConfig {
            policy: plan.policy.to_owned(),
            seed: plan.seed,
            mode: plan.mode,
            paced_rate_hz: plan.rate_hz,
            incomplete: plan.incomplete,
            tf_bytes_max: u64::from(plan.flps) * (plan.stf_bytes * 2 + 1),
            ..SchedulerConfig::default()
        };
        let run_plan = RunPlan {
            flps: u32::from(plan.flps),
            epns: u32::from(plan.epns),
            timeframes: plan.timeframes,
        };
        transport.listen("icn").expect("a free address");
        let parts = IcnParts {
            icn: 0,
            peers: Vec::new(),
            ledger: Box::new(MemoryLedger::new()),
            scheduler: config,
            plan: run_plan,
            new_run: RunId(plan.seed),
            liveness: LivenessConfig::default(),
            stf_bytes_max: SchedulerConfig::default().stf_bytes_max,
            duration: None,
            incarnation,
            log,
            registry: Arc::new(Registry::default()),
        };
        IcnNode::new(transport, parts).expect("known policy")
    }

    fn flp(
        &self,
        transport: Memory,
        flp: FlpId,
        incarnation: Incarnation,
        log: EventLog,
    ) -> FlpNode<Memory> {
        let plan = self.plan;
        let source = Source { flp, incarnation };
        let generator = GeneratorConfig {
            sizes: SizeModel::Random,
            bytes_mean: plan.stf_bytes,
            seed: plan.seed,
            pool_bytes: 16 << 10,
            ..GeneratorConfig::default()
        };
        let pace = match (plan.mode, plan.rate_hz) {
            (Mode::Paced, _) => Pace::Icn,
            (Mode::DataDriven, 0.0) => Pace::Max,
            (Mode::DataDriven, rate_hz) => Pace::RateHz(rate_hz),
        };
        let config = FlpConfig {
            pace,
            hold_bytes: self.hold_bytes,
            hold_stfs_max: plan.hold_stfs,
            ..FlpConfig::default()
        };
        let stf_bytes_max = plan.stf_bytes * 2;
        let hello = Hello {
            data_address: String::new(),
            capacity_bytes: self.hold_bytes,
            slots: 0,
            stf_bytes_max,
            weight_milli: 1000,
            keeps: false,
        };
        let parts = FlpParts {
            source,
            brain: Flp::new(config, source, stf_bytes_max),
            input: Input::Made(Box::new(
                Generator::new(generator, flp).expect("sound sizes"),
            )),
            slots: Box::new(HeapSlots),
            uplink: Uplink::new(
                vec!["icn".to_owned()],
                NodeId::from(flp),
                incarnation,
                hello,
            ),
            log,
        };
        FlpNode::new(transport, parts)
    }

    fn epn(
        &self,
        mut transport: Memory,
        epn: EpnId,
        incarnation: Incarnation,
        log: EventLog,
    ) -> EpnNode<Memory> {
        let address = format!("epn-{}-{}", epn.0, incarnation.0);
        transport.listen(&address).expect("a free address");
        let config = BuildConfig {
            capacity_bytes: self.capacity_bytes,
            tfs_in_building_max: self.plan.slots,
            ..BuildConfig::default()
        };
        let hello = Hello {
            data_address: address,
            capacity_bytes: config.capacity_bytes,
            slots: config.tfs_in_building_max,
            stf_bytes_max: 0,
            weight_milli: 1000,
            keeps: false,
        };
        let target = Target { epn, incarnation };
        let parts = EpnParts {
            target,
            brain: TfBuilder::<Bytes>::new(config),
            sink: SinkHandle::inline(Box::new(Discard), 64),
            uplink: Uplink::new(
                vec!["icn".to_owned()],
                NodeId::from(epn),
                incarnation,
                hello,
            ),
            log,
        };
        EpnNode::new(transport, parts)
    }
}

impl Process {
    fn turn(&mut self, now: Timestamp) -> Turn {
        let mut events = Vec::new();
        let transport = match &mut self.node {
            Node::Icn(icn) => icn.transport(),
            Node::Flp(flp) => flp.transport(),
            Node::Epn(epn) => epn.transport(),
        };
        transport
            .poll(&mut events, Some(Duration::ZERO))
            .expect("memory does not fail");
        if events.is_empty() && now < self.wake_at {
            return Turn::WaitUntil(self.wake_at);
        }
        for event in events {
            match &mut self.node {
                Node::Icn(icn) => icn.handle(now, event),
                Node::Flp(flp) => flp.handle(now, event),
                Node::Epn(epn) => epn.handle(now, event),
            }
        }
        match &mut self.node {
            Node::Icn(icn) => icn.turn(now),
            Node::Flp(flp) => flp.turn(now).expect("nobody is refused"),
            Node::Epn(epn) => epn.turn(now).expect("nobody is refused"),
        }
    }
}
