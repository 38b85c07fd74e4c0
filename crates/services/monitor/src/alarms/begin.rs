//! Start, reload and end of the threads of alarms.

use super::deliver::{Dispatch, WORKERS, Worker};
use super::desk::Desk;
use super::inbox::Inbox;
use super::orders::{self, FarmOrders};
use super::rules::{Rules, Wider};
use super::saved::{self, Progress, Saved, Saver};
use super::settings::AlarmsSettings;
use super::sources::Reports;
use super::tap::{Tap, Wanted};
use super::turn::{Turn, Work};
use crate::problem::Problem;
use crate::wall;
use sheaf_alarms::Alarms;
use sheaf_metrics::Registry;
use sheaf_sample_store::Store;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::info;

/// Alarms before their threads run.
pub(crate) struct Begin {
    desk: Arc<Desk>,
    reports: Arc<Reports>,
    saved: Saved,
    settings: AlarmsSettings,
    generation: Arc<AtomicU64>,
}

/// Way to give running alarms other rules.
#[derive(Clone)]
pub struct AlarmsHandle {
    desk: Arc<Desk>,
    settings: Arc<Mutex<AlarmsSettings>>,
    generation: Arc<AtomicU64>,
}

/// Alarms that run.
pub(crate) struct Running {
    handle: AlarmsHandle,
    turn: JoinHandle<()>,
    others: Vec<JoinHandle<()>>,
}

impl Begin {
    /// Reads rules, routes and the state of an earlier process in the folder `data`.
    ///
    /// `samples_max` samples may wait for the alarms; `shards` shards report their sources.
    ///
    /// # Errors
    ///
    /// Everything that is wrong in the files.
    pub(crate) fn new(
        settings: &AlarmsSettings,
        data: &Path,
        samples_max: usize,
        shards: usize,
    ) -> Result<Self, Vec<Problem>> {
        let loaded = settings.load()?;
        let mut alarms = Alarms::new(settings.limits.clone(), &loaded.files, loaded.routing);
        let saved = Saved::new(data);
        saved.restore(wall::now_ms(), &mut alarms);
        let wanted = Arc::new(Wanted::default());
        let generation = wanted.set(alarms.selection());
        let inbox = Arc::new(Inbox::new(samples_max));
        Ok(Self {
            desk: Arc::new(Desk::new(alarms, inbox, wanted)),
            reports: Arc::new(Reports::new(shards)),
            saved,
            settings: settings.clone(),
            generation: Arc::new(AtomicU64::new(generation)),
        })
    }

    /// Way of a shard to the alarms.
    pub(crate) fn tap(&self) -> Tap {
        Tap::new(self.desk.wanted.clone(), self.desk.inbox.clone())
    }

    /// Where shards report their sources.
    pub(crate) fn reports(&self) -> Arc<Reports> {
        self.reports.clone()
    }

    /// Alarms, for requests.
    pub(crate) fn desk(&self) -> Arc<Desk> {
        self.desk.clone()
    }

    /// Starts the threads. `wider` makes the source of late rules that see more than `store`.
    ///
    /// # Errors
    ///
    /// If the operating system gives no thread.
    pub(crate) fn start(
        self,
        store: Arc<dyn Store>,
        wider: Wider,
        registry: Arc<Registry>,
        farm: Option<Box<dyn FarmOrders>>,
    ) -> io::Result<Running> {
        let (jobs, jobs_out) = sync_channel(WORKERS);
        let (orders, orders_out) = sync_channel(1);
        let (rounds, rounds_out) = sync_channel(1);
        let (states, states_out) = sync_channel(1);
        let progress = Arc::new(Progress::default());
        let (saved, writing) = (self.saved, progress.clone());
        let patience = Duration::from_millis(self.settings.timeout_ms);
        let over_peers = self.settings.over_peers;
        let settings = Arc::new(Mutex::new(self.settings));
        let is_evaluating = Arc::new(AtomicBool::new(false));
        let mut others = Vec::new();
        let jobs_out = Arc::new(Mutex::new(jobs_out));
        for number in 0..WORKERS {
            let worker = Worker {
                settings: settings.clone(),
                jobs: jobs_out.clone(),
                inbox: self.desk.inbox.clone(),
            };
            others.push(spawn(&format!("notify-{number}"), move || worker.run())?);
        }
        let inbox = self.desk.inbox.clone();
        others.push(spawn("orders", move || {
            orders::run(&orders_out, farm, &inbox);
        })?);
        others.push(spawn("state", move || {
            saved::run(&saved, &states_out, &writing);
        })?);
        let rules = Rules {
            desk: self.desk.clone(),
            store: store.clone(),
            wider: over_peers.then_some(wider),
            generation: self.generation.clone(),
            is_busy: is_evaluating.clone(),
        };
        others.push(spawn("rules", move || rules.run(&rounds_out))?);
        let turn = Turn {
            desk: self.desk.clone(),
            store,
            reports: self.reports,
            registry,
            saver: Saver::new(states, progress),
            dispatch: Dispatch::new(jobs),
            orders,
            rounds,
            generation: self.generation.clone(),
            is_evaluating,
            patience,
            work: Work::default(),
        };
        let turn = spawn("alarms", move || turn.run())?;
        Ok(Running {
            handle: AlarmsHandle {
                desk: self.desk,
                settings,
                generation: self.generation,
            },
            turn,
            others,
        })
    }
}

impl AlarmsHandle {
    /// Takes other rules and routes in place of the present ones, without losing state.
    ///
    /// # Errors
    ///
    /// Everything that is wrong in the files; nothing has changed then.
    pub fn reload(&self, settings: &AlarmsSettings) -> Result<(), Vec<Problem>> {
        let problems = settings.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        let loaded = settings.load()?;
        let mut alarms = self.desk.alarms();
        let limits = settings.limits.clone();
        let reloaded = alarms.reload(wall::now_ms(), limits, &loaded.files, loaded.routing);
        let restored = reloaded.map_err(|error| {
            let expected = "state that can be handed over";
            vec![Problem::of("alarms", &error, expected)]
        })?;
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings.clone();
        let generation = self.desk.wanted.set(alarms.selection());
        self.generation.store(generation, Ordering::Relaxed);
        drop(alarms);
        self.desk.note_change();
        info!(
            alerts = restored.alerts,
            without_rule = restored.alerts_without_rule,
            "Rules of alarms are read again"
        );
        Ok(())
    }
}

impl Running {
    /// Way to give them other rules.
    pub(crate) fn handle(&self) -> AlarmsHandle {
        self.handle.clone()
    }

    /// Ends: what is under way is awaited, and all state is saved. The shards have ended before.
    pub(crate) fn end(self) -> Vec<JoinHandle<()>> {
        self.handle.desk.inbox.close();
        // Its channels end the others.
        let all = [self.turn].into_iter().chain(self.others);
        all.collect()
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
}
