//! The farm as a state machine: knowledge of the nodes, all messages ever sent, and the steps.
//!
//! Nodes do not refuse former leaders here, and FLPs obey any assignment: that only makes more possible. Properties
//! that hold without these rules do not depend on them.

use stateright::{Model, Property};

const ICNS: usize = 2;
const EPNS: usize = 2;
const FLPS: usize = 2;
/// Number of terms: one to begin with, and one for each fault.
const TERMS: usize = 3;
/// Number of lives of an EPN: likewise.
const LIVES: usize = 3;
/// A slot with the parts of all FLPs.
const WHOLE: u8 = (1 << FLPS) - 1;

/// Rules of the protocol; each can be taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The log accepts no append of a term that is over.
    pub(crate) is_fenced: bool,
    /// A new leader fences the old one first and reads the log then, not the other way round.
    pub(crate) fences_first: bool,
    /// A new leader reads the log at all.
    pub(crate) replays: bool,
    /// A commit waits until its verdict is in the log.
    pub(crate) waits_for_log: bool,
    /// An EPN keeps a tombstone of TFs that it delivered or discarded.
    pub(crate) buries: bool,
    /// A commit or discard names a life of an EPN, and no other takes it for its own.
    pub(crate) knows_lives: bool,
}

impl Rules {
    /// Returns the protocol as it is.
    pub(crate) const ALL: Self = Self {
        is_fenced: true,
        fences_first: true,
        replays: true,
        waits_for_log: true,
        buries: true,
        knows_lives: true,
    };
}

/// Size of the searched farm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelFarm {
    pub(crate) tfs: usize,
    pub(crate) faults: u8,
    /// Whether assignments, discards and releases are steps of their own. Without them, parts may go to any EPN at any
    /// moment, stay there, and are never freed, which only makes more possible, in far fewer states.
    pub(crate) is_whole: bool,
    pub(crate) rules: Rules,
}

/// A verdict: dropped, or complete at this life of this EPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ModelVerdict {
    Dropped,
    Complete { epn: u8, life: u8 },
}

/// Belief of an ICN about a TF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum View {
    Open,
    Asked(ModelVerdict),
    Durable(ModelVerdict),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum IcnRole {
    /// Stands by, or is being started again.
    Standby,
    /// Leads, or believes so.
    Leads { term: u8 },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Icn {
    role: IcnRole,
    views: Vec<View>,
    /// Out of order: the log as it was read before the fence.
    read: Option<Vec<Option<ModelVerdict>>>,
}

/// State of a TF at an EPN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Slot {
    parts: u8,
    is_buried: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Epn {
    life: u8,
    slots: Vec<Slot>,
}

/// Messages ever sent about a TF, and their effects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Mail {
    /// Whether assigned, by EPN.
    assigned: [bool; EPNS],
    /// Whether the part was sent, by FLP and EPN.
    parts: [[bool; EPNS]; FLPS],
    /// Whether the EPN reported the TF as whole, by EPN and life.
    built: [[bool; LIVES]; EPNS],
    /// Appends, by term.
    appends: [Option<ModelVerdict>; TERMS],
    /// Commits, by EPN and life.
    commits: [[bool; LIVES]; EPNS],
    /// Permissions to discard the slot, by EPN and life.
    discards: [[bool; LIVES]; EPNS],
}

/// State of the farm.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    faults: u8,
    icns: [Icn; ICNS],
    epns: [Epn; EPNS],
    mail: Vec<Mail>,
    /// Highest term that the log knows of.
    log_term: u8,
    /// The verdict of each term, by TF.
    log: Vec<[Option<ModelVerdict>; TERMS]>,
    /// Every delivery, by TF.
    delivered: Vec<Vec<ModelVerdict>>,
    /// Whether the FLPs have freed the TF.
    freed: Vec<bool>,
}

/// One step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelStep {
    /// A leader places a TF.
    Assign { tf: usize, epn: usize },
    /// A leader drops a TF.
    Drop { icn: usize, tf: usize },
    /// The part of an FLP that obeys an assignment arrives, for the first time or again.
    Part { tf: usize, flp: usize, epn: usize },
    /// A leader learns that a TF is built, and appends to the log.
    Hear {
        icn: usize,
        tf: usize,
        fate: ModelVerdict,
    },
    /// The log takes an append.
    Append { tf: usize, term: u8 },
    /// A leader learns that its append is durable.
    Durable { icn: usize, tf: usize },
    /// A leader learns that it is deposed.
    Deposed { icn: usize },
    /// A commit arrives.
    Commit { tf: usize, epn: usize, life: u8 },
    /// A leader learns that a TF is built that is decided otherwise, and has it discarded.
    HearInVain { tf: usize, epn: usize, life: usize },
    /// A discard arrives.
    Discard { tf: usize, epn: usize },
    /// A leader knows that a TF is decided and done, and lets the FLPs free it.
    Free { tf: usize },
    /// An ICN reads the log before it fences; only if the rule is taken out.
    Read { icn: usize },
    /// An ICN fences the log, and leads.
    Elect { icn: usize },
    /// A leader dies.
    KillIcn { icn: usize },
    /// An EPN dies, and its next life begins.
    KillEpn { epn: usize },
}

impl State {
    /// Returns the verdicts on `tf`; there should be one.
    fn verdicts(&self, tf: usize) -> impl Iterator<Item = ModelVerdict> {
        self.log[tf].iter().flatten().copied()
    }

    fn term_of(&self, icn: usize) -> Option<u8> {
        match self.icns[icn].role {
            IcnRole::Leads { term } => Some(term),
            IcnRole::Standby => None,
        }
    }

    fn has_leader(&self) -> bool {
        (0..ICNS).any(|icn| self.term_of(icn) == Some(self.log_term))
    }

    fn is_dead(&self, fate: ModelVerdict) -> bool {
        match fate {
            ModelVerdict::Dropped => false,
            ModelVerdict::Complete { epn, life } => self.epns[usize::from(epn)].life != life,
        }
    }

    /// Returns whether nothing is left to do after this verdict on `tf`; an EPN that died with it has abandoned it.
    fn is_done(&self, tf: usize, fate: ModelVerdict) -> bool {
        fate == ModelVerdict::Dropped || !self.delivered[tf].is_empty() || self.is_dead(fate)
    }
}

impl Model for ModelFarm {
    type State = State;
    type Action = ModelStep;

    fn init_states(&self) -> Vec<State> {
        let tfs = self.tfs;
        let icn = |role| Icn {
            role,
            views: vec![View::Open; tfs],
            read: None,
        };
        let epn = || Epn {
            life: 0,
            slots: vec![Slot::default(); tfs],
        };
        vec![State {
            faults: self.faults,
            icns: [icn(IcnRole::Leads { term: 1 }), icn(IcnRole::Standby)],
            epns: [epn(), epn()],
            mail: vec![Mail::default(); tfs],
            log_term: 1,
            log: vec![[None; TERMS]; tfs],
            delivered: vec![Vec::new(); tfs],
            freed: vec![false; tfs],
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<ModelStep>) {
        self.progress(state, steps);
        self.add_faults(state, steps);
    }

    fn next_state(&self, last: &State, step: ModelStep) -> Option<State> {
        let mut state = last.clone();
        self.apply(&mut state, step);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one verdict", |farm: &ModelFarm, state: &State| {
                (0..farm.tfs).all(|tf| state.verdicts(tf).count() <= 1)
            }),
            Property::always("one delivery", |farm: &ModelFarm, state: &State| {
                (0..farm.tfs).all(|tf| state.delivered[tf].len() <= 1)
            }),
            Property::always(
                "a delivery has its verdict",
                |farm: &ModelFarm, state: &State| {
                    let has =
                        |tf: usize, at: ModelVerdict| state.verdicts(tf).any(|fate| fate == at);
                    (0..farm.tfs).all(|tf| state.delivered[tf].iter().all(|at| has(tf, *at)))
                },
            ),
            Property::always(
                "never lost and delivered",
                |farm: &ModelFarm, state: &State| {
                    let is_lost =
                        |tf: usize| state.verdicts(tf).any(|fate| fate == ModelVerdict::Dropped);
                    (0..farm.tfs).all(|tf| state.delivered[tf].is_empty() || !is_lost(tf))
                },
            ),
            Property::always(
                "nothing is freed without a verdict",
                |farm: &ModelFarm, state: &State| {
                    (0..farm.tfs).all(|tf| !state.freed[tf] || state.verdicts(tf).next().is_some())
                },
            ),
            Property::always("no farm is stuck", |farm: &ModelFarm, state: &State| {
                let mut steps = Vec::new();
                farm.progress(state, &mut steps);
                !steps.is_empty()
                    || (0..farm.tfs)
                        .all(|tf| state.verdicts(tf).any(|fate| state.is_done(tf, fate)))
            }),
            Property::sometimes("all is delivered", |farm: &ModelFarm, state: &State| {
                (0..farm.tfs).all(|tf| state.delivered[tf].len() == 1)
            }),
            Property::sometimes(
                "a later leader completes",
                |farm: &ModelFarm, state: &State| {
                    (0..farm.tfs)
                        .any(|tf| state.log[tf][0].is_none() && state.delivered[tf].len() == 1)
                },
            ),
            Property::sometimes(
                "an EPN dies with a TF that is decided",
                |farm: &ModelFarm, state: &State| {
                    (0..farm.tfs).any(|tf| {
                        state.delivered[tf].is_empty()
                            && state.verdicts(tf).any(|fate| state.is_dead(fate))
                    })
                },
            ),
        ]
    }
}

impl ModelFarm {
    /// Adds the steps that need no fault. Each changes something.
    fn progress(&self, state: &State, steps: &mut Vec<ModelStep>) {
        for tf in 0..self.tfs {
            self.place(state, tf, steps);
            self.decide(state, tf, steps);
            self.deliver(state, tf, steps);
        }
        for icn in 0..ICNS {
            // It learns of the next one, from the log or from an ICN that knows.
            let is_over = state.term_of(icn).is_some_and(|term| term < state.log_term);
            if self.rules.is_fenced && is_over {
                steps.push(ModelStep::Deposed { icn });
            }
            if !state.has_leader() {
                self.elect(state, icn, steps);
            }
        }
    }

    fn place(&self, state: &State, tf: usize, steps: &mut Vec<ModelStep>) {
        let mail = &state.mail[tf];
        let is_open = |icn| state.term_of(icn).is_some() && state.icns[icn].views[tf] == View::Open;
        for epn in 0..EPNS {
            if self.is_whole && !mail.assigned[epn] && (0..ICNS).any(is_open) {
                steps.push(ModelStep::Assign { tf, epn });
            }
            let slot = &state.epns[epn].slots[tf];
            for flp in 0..FLPS {
                // A message that was sent once may come again; one that was not can be sent until it is freed. FLPs are
                // alike, so without assignments their parts may as well come in their order.
                let can_come = match self.is_whole {
                    true => mail.parts[flp][epn] || mail.assigned[epn] && !state.freed[tf],
                    false => slot.parts.count_ones() as usize == flp,
                };
                if can_come && !slot.is_buried && slot.parts & (1 << flp) == 0 {
                    steps.push(ModelStep::Part { tf, flp, epn });
                }
            }
        }
    }

    fn decide(&self, state: &State, tf: usize, steps: &mut Vec<ModelStep>) {
        let mail = &state.mail[tf];
        for icn in 0..ICNS {
            let Some(term) = state.term_of(icn) else {
                continue;
            };
            match state.icns[icn].views[tf] {
                View::Open => {
                    let fates = lives().filter(|(epn, life)| mail.built[*epn][*life]);
                    let fates = fates.map(|(epn, life)| complete(epn, life));
                    // The first one wins, whichever EPN was assigned; not if it is known to be dead.
                    let alive = fates.filter(|fate| !state.is_dead(*fate));
                    steps.extend(alive.map(|fate| ModelStep::Hear { icn, tf, fate }));
                }
                View::Asked(fate) if state.log[tf][at(term)] == Some(fate) => {
                    steps.push(ModelStep::Durable { icn, tf });
                }
                View::Durable(fate)
                    if self.is_whole && !state.freed[tf] && state.is_done(tf, fate) =>
                {
                    steps.push(ModelStep::Free { tf });
                }
                View::Asked(_) | View::Durable(_) => {}
            }
            if let View::Durable(fate) = state.icns[icn].views[tf]
                && self.is_whole
            {
                let others = lives().filter(|(epn, life)| complete(*epn, *life) != fate);
                let built = others
                    .filter(|(epn, life)| mail.built[*epn][*life] && !mail.discards[*epn][*life]);
                steps.extend(built.map(|(epn, life)| ModelStep::HearInVain { tf, epn, life }));
            }
        }
        for term in (1..).take(TERMS) {
            let is_taken = !self.rules.is_fenced || term >= state.log_term;
            if mail.appends[at(term)].is_some() && state.log[tf][at(term)].is_none() && is_taken {
                steps.push(ModelStep::Append { tf, term });
            }
        }
    }

    fn deliver(&self, state: &State, tf: usize, steps: &mut Vec<ModelStep>) {
        for (epn, life) in lives().filter(|(epn, life)| state.mail[tf].commits[*epn][*life]) {
            let found = &state.epns[epn];
            let life = life as u8;
            let is_for_it = !self.rules.knows_lives || found.life == life;
            // More than two deliveries show no more than two.
            if is_for_it && found.slots[tf].parts == WHOLE && state.delivered[tf].len() < 2 {
                steps.push(ModelStep::Commit { tf, epn, life });
            }
        }
        for (epn, life) in lives().filter(|(epn, life)| state.mail[tf].discards[*epn][*life]) {
            let found = &state.epns[epn];
            let is_for_it = !self.rules.knows_lives || usize::from(found.life) == life;
            if is_for_it && found.slots[tf] != self.empty() {
                steps.push(ModelStep::Discard { tf, epn });
            }
        }
    }

    /// Returns the rest of a TF that an EPN is done with.
    fn empty(&self) -> Slot {
        Slot {
            parts: 0,
            is_buried: self.rules.buries,
        }
    }

    fn elect(&self, state: &State, icn: usize, steps: &mut Vec<ModelStep>) {
        if usize::from(state.log_term) == TERMS {
        } else if self.rules.fences_first || state.icns[icn].read.is_some() {
            steps.push(ModelStep::Elect { icn });
        } else {
            steps.push(ModelStep::Read { icn });
        }
    }

    /// Adds the steps that need a fault, and drops.
    fn add_faults(&self, state: &State, steps: &mut Vec<ModelStep>) {
        for icn in 0..ICNS {
            // One TF that may be given up at any moment is enough to be mixed up with.
            if state.term_of(icn).is_some() && state.icns[icn].views[0] == View::Open {
                steps.push(ModelStep::Drop { icn, tf: 0 });
            }
        }
        if state.faults == 0 {
            return;
        }
        for icn in 0..ICNS {
            if state.term_of(icn) == Some(state.log_term) {
                steps.push(ModelStep::KillIcn { icn });
            } else if state.has_leader() {
                self.elect(state, icn, steps);
            }
        }
        let mortal = (0..EPNS).filter(|epn| usize::from(state.epns[*epn].life) + 1 < LIVES);
        steps.extend(mortal.map(|epn| ModelStep::KillEpn { epn }));
    }

    fn apply(&self, state: &mut State, step: ModelStep) {
        match step {
            ModelStep::Assign { tf, epn } => state.mail[tf].assigned[epn] = true,
            ModelStep::Drop { icn, tf } => self.ask(state, icn, tf, ModelVerdict::Dropped),
            ModelStep::Part { tf, flp, epn } => {
                let (mail, found) = (&mut state.mail[tf], &mut state.epns[epn]);
                mail.parts[flp][epn] = self.is_whole;
                found.slots[tf].parts |= 1 << flp;
                if found.slots[tf].parts == WHOLE {
                    mail.built[epn][usize::from(found.life)] = true;
                }
            }
            ModelStep::Hear { icn, tf, fate } => self.ask(state, icn, tf, fate),
            ModelStep::Append { tf, term } => {
                state.log[tf][at(term)] = state.mail[tf].appends[at(term)];
            }
            ModelStep::Durable { icn, tf } => {
                if let View::Asked(fate) = state.icns[icn].views[tf] {
                    know(state, icn, tf, fate);
                }
            }
            ModelStep::Deposed { icn } => stand_by(&mut state.icns[icn]),
            ModelStep::Commit { tf, epn, .. } => {
                let found = &mut state.epns[epn];
                found.slots[tf] = Slot {
                    parts: 0,
                    is_buried: self.rules.buries,
                };
                state.delivered[tf].push(complete(epn, usize::from(found.life)));
            }
            ModelStep::HearInVain { tf, epn, life } => state.mail[tf].discards[epn][life] = true,
            ModelStep::Discard { tf, epn } => state.epns[epn].slots[tf] = self.empty(),
            ModelStep::Free { tf } => state.freed[tf] = true,
            ModelStep::Read { icn } => {
                let read = (0..self.tfs).map(|tf| state.verdicts(tf).next()).collect();
                state.icns[icn].read = Some(read);
            }
            ModelStep::Elect { icn } => self.take_over(state, icn),
            ModelStep::KillIcn { icn } => {
                state.faults -= 1;
                stand_by(&mut state.icns[icn]);
            }
            ModelStep::KillEpn { epn } => {
                state.faults -= 1;
                let found = &mut state.epns[epn];
                found.life += 1;
                found.slots.fill(Slot::default());
            }
        }
    }

    /// Appends a verdict to the log for a leader.
    fn ask(&self, state: &mut State, icn: usize, tf: usize, fate: ModelVerdict) {
        let Some(term) = state.term_of(icn) else {
            return;
        };
        state.icns[icn].views[tf] = View::Asked(fate);
        state.mail[tf].appends[at(term)] = Some(fate);
        if !self.rules.waits_for_log {
            commit(state, tf, fate);
        }
    }

    fn take_over(&self, state: &mut State, icn: usize) {
        state.faults -= u8::from(state.has_leader());
        state.log_term += 1;
        let term = state.log_term;
        let read = state.icns[icn].read.take();
        state.icns[icn].role = IcnRole::Leads { term };
        for tf in 0..self.tfs {
            let known = read
                .as_ref()
                .map_or_else(|| state.verdicts(tf).next(), |read| read[tf]);
            state.icns[icn].views[tf] = View::Open;
            if let Some(fate) = known.filter(|_| self.rules.replays) {
                know(state, icn, tf, fate);
            }
        }
    }
}

fn stand_by(icn: &mut Icn) {
    icn.role = IcnRole::Standby;
    icn.views.fill(View::Open);
    icn.read = None;
}

/// Notes that a leader knows that a verdict is in the log.
fn know(state: &mut State, icn: usize, tf: usize, fate: ModelVerdict) {
    state.icns[icn].views[tf] = View::Durable(fate);
    commit(state, tf, fate);
}

fn commit(state: &mut State, tf: usize, fate: ModelVerdict) {
    if let ModelVerdict::Complete { epn, life } = fate {
        state.mail[tf].commits[usize::from(epn)][usize::from(life)] = true;
    }
}

fn complete(epn: usize, life: usize) -> ModelVerdict {
    ModelVerdict::Complete {
        epn: epn as u8,
        life: life as u8,
    }
}

fn lives() -> impl Iterator<Item = (usize, usize)> {
    (0..EPNS).flat_map(|epn| (0..LIVES).map(move |life| (epn, life)))
}

/// Returns the place of a term in a table.
fn at(term: u8) -> usize {
    usize::from(term) - 1
}
