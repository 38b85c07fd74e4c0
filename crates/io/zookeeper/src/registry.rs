//! Registry in a ZooKeeper: one ephemeral node for each node of the farm.
//!
//! `<root>/nodes/epn-0003` holds the incarnation and the address of EPN 3 and vanishes with its session. An observer
//! lists `<root>/nodes` and reads the nodes of interest, with watches on both. The logic is here, over any
//! [`Keeper`]: with the live one this is the backend `zookeeper`, with the model the backend `memory`.

use crate::keeper::{
    Answer, Keeper, KeeperError, KeeperEvent, Kind, Request, Step, Ticket, make_path,
};
use sheaf_membership::{Member, Registry, RegistryEvent};
use sheaf_protocol::{Role, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Pause before a refused request is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Upper bound of problems that wait to be polled; further ones are not reported.
const EVENTS_MAX: usize = 64;

/// The registry as one node sees it.
#[derive(Debug)]
pub struct ZooKeeperRegistry<K> {
    keeper: K,
    name: &'static str,
    /// Path of the folder, `<root>/nodes`.
    folder: String,
    /// Roles that are read; empty: all.
    interest: Vec<Role>,
    me: Option<Member>,
    /// Number of the session; 0 while there is none.
    session: i64,
    is_connected: bool,
    /// Whether `Away` was reported and `Back` was not.
    is_away: bool,
    /// Whether the folder is there, as far as is known.
    is_prepared: bool,
    /// Error of a part of the folder that could not be created. That is no problem if it is there all the same.
    unmade: Option<String>,
    /// Purpose of each open request.
    asked: BTreeMap<Ticket, Purpose>,
    /// Whether the list has to be read again.
    is_list_dirty: bool,
    /// Nodes that have to be read again.
    dirty: BTreeSet<String>,
    /// Whether the own place has to be read again.
    is_own_dirty: bool,
    /// All listed nodes of interest, each as last read.
    known: BTreeMap<String, Option<Member>>,
    /// Problems by place. Reported when they are new.
    problems: BTreeMap<String, String>,
    retry_at: Option<Timestamp>,
    own_retry_at: Option<Timestamp>,
    view: Arc<[Member]>,
    events: VecDeque<RegistryEvent>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Purpose {
    Prepare,
    List,
    Read(String),
    Own,
    /// The own node was created, replaced or changed; the result shows when it is read.
    Write,
    Leave,
}

impl<K: Keeper> ZooKeeperRegistry<K> {
    /// Returns a registry under `root`, such as `/sheaf`, that reads the nodes of the roles in `interest`; of all if
    /// empty. `name` is that of [`Registry::name`].
    pub fn new(keeper: K, name: &'static str, root: &str, interest: &[Role]) -> Self {
        Self {
            keeper,
            name,
            folder: format!("{}/nodes", root.trim_end_matches('/')),
            interest: interest.to_vec(),
            me: None,
            session: 0,
            is_connected: false,
            is_away: false,
            is_prepared: false,
            unmade: None,
            asked: BTreeMap::new(),
            is_list_dirty: true,
            dirty: BTreeSet::new(),
            is_own_dirty: false,
            known: BTreeMap::new(),
            problems: BTreeMap::new(),
            retry_at: None,
            own_retry_at: None,
            view: Arc::new([]),
            events: VecDeque::new(),
        }
    }

    /// Returns the keeper beneath the registry.
    pub fn keeper(&self) -> &K {
        &self.keeper
    }

    /// Ends the registry and returns the keeper beneath it.
    pub fn into_keeper(self) -> K {
        self.keeper
    }

    fn ask(&mut self, now: Timestamp, purpose: Purpose, request: Request) {
        let ticket = self.keeper.submit(now, request);
        self.asked.insert(ticket, purpose);
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    fn own_path(&self) -> Option<String> {
        let me = self.me.as_ref()?;
        Some(self.path(&Member::name_of(me.node)))
    }

    fn has_asked(&self, purpose: &Purpose) -> bool {
        self.asked.values().any(|asked| asked == purpose)
    }

    fn is_interesting(&self, role: Role) -> bool {
        self.interest.is_empty() || self.interest.contains(&role)
    }

    fn handle(&mut self, now: Timestamp, event: KeeperEvent) {
        match event {
            KeeperEvent::Connected { session, .. } => {
                self.is_connected = true;
                if self.session != session {
                    self.session = session;
                    // Watches went with the old session.
                    self.dirty.extend(self.known.keys().cloned());
                    self.is_prepared = false;
                }
                self.is_list_dirty = true;
                self.is_own_dirty = true;
            }
            KeeperEvent::Away { why } => {
                self.is_connected = false;
                if !self.is_away {
                    self.is_away = true;
                    self.events.push_back(RegistryEvent::Away { why });
                }
            }
            KeeperEvent::Expired => self.session = 0,
            KeeperEvent::Changed { path } => self.handle_changed(&path),
            KeeperEvent::Answer(ticket, answer) => {
                if let Some(purpose) = self.asked.remove(&ticket) {
                    self.handle_answer(now, purpose, answer);
                }
            }
        }
    }

    fn handle_changed(&mut self, path: &str) {
        if path == self.folder {
            self.is_list_dirty = true;
        }
        if self.own_path().as_deref() == Some(path) {
            self.is_own_dirty = true;
        }
        let name = path
            .strip_prefix(&self.folder)
            .and_then(|rest| rest.strip_prefix('/'));
        if let Some(name) = name
            && self.known.contains_key(name)
        {
            self.dirty.insert(name.to_owned());
        }
    }

    fn handle_answer(
        &mut self,
        now: Timestamp,
        purpose: Purpose,
        answer: Result<Answer, KeeperError>,
    ) {
        match (purpose, answer) {
            (Purpose::Prepare, Ok(_) | Err(KeeperError::NodeExists)) | (Purpose::Leave, _) => {}
            // Open requests are made again when there is a connection.
            (Purpose::Prepare, Err(KeeperError::Lost | KeeperError::Expired)) => {
                self.is_prepared = false;
                self.is_list_dirty = true;
            }
            (Purpose::List, Err(KeeperError::Lost | KeeperError::Expired)) => {
                self.is_list_dirty = true;
            }
            (Purpose::Read(name), Err(KeeperError::Lost | KeeperError::Expired)) => {
                self.dirty.insert(name);
            }
            (Purpose::Own, Err(KeeperError::Lost | KeeperError::Expired))
            | (Purpose::Write, Ok(_)) => {
                self.is_own_dirty = true;
            }
            (Purpose::Prepare, Err(error)) => self.unmade = Some(error.to_string()),
            (Purpose::List, Ok(Answer::Children(names))) => self.handle_list(&names),
            (Purpose::List, Err(error)) => {
                let place = self.folder.clone();
                self.is_list_dirty = true;
                self.is_prepared = false;
                let why = self.unmade.take().unwrap_or_else(|| error.to_string());
                self.retry_at = Some(now + RETRY);
                self.report_problem(&place, &format!("{place} cannot be read: {why}"));
            }
            (Purpose::Read(name), Ok(Answer::Data { data, .. })) => self.handle_data(&name, &data),
            (Purpose::Read(name), Err(KeeperError::NoNode)) => {
                // The node left between the list and the look at it. The watch on the list has fired.
                self.known.remove(&name);
                self.problems.remove(&name);
            }
            (Purpose::Read(name), Err(error)) => {
                self.retry_at = Some(now + RETRY);
                let what = format!("{} cannot be read: {error}", self.path(&name));
                self.report_problem(&name, &what);
                self.dirty.insert(name);
            }
            (Purpose::Own, answer) => self.handle_own(now, answer),
            (Purpose::Write, Err(error)) => {
                self.is_own_dirty = true;
                match error.root() {
                    // Another node was faster, or it has happened before: the next look shows.
                    KeeperError::NodeExists | KeeperError::BadVersion | KeeperError::NoNode => {}
                    KeeperError::Lost | KeeperError::Expired => {}
                    _ => {
                        let place = self.own_path().unwrap_or_default();
                        self.own_retry_at = Some(now + RETRY);
                        self.report_problem(&place, &format!("{place} cannot be written: {error}"));
                    }
                }
            }
            (Purpose::List | Purpose::Read(_), Ok(other)) => {
                debug_assert!(false, "{other:?} does not answer what was asked");
            }
        }
    }

    fn handle_list(&mut self, names: &[String]) {
        let place = self.folder.clone();
        let names: BTreeSet<_> = names.iter().collect();
        let own = self.own_path();
        self.problems
            .retain(|problem, _| own.as_ref() == Some(problem) || names.contains(problem));
        let mut listed = BTreeSet::new();
        for name in names {
            match Member::node_of(name) {
                Ok(node) if self.is_interesting(node.role) => {
                    listed.insert(name.clone());
                }
                Ok(_) => {}
                Err(error) => self.report_problem(name, &format!("{place}: {error}")),
            }
        }
        self.known.retain(|name, _| listed.contains(name));
        self.dirty.retain(|name| listed.contains(name));
        for name in listed {
            if !self.known.contains_key(&name) {
                self.known.insert(name.clone(), None);
                self.dirty.insert(name);
            }
        }
    }

    fn handle_data(&mut self, name: &str, data: &[u8]) {
        let Ok(node) = Member::node_of(name) else {
            return;
        };
        let last = self.known.get(name).cloned().flatten();
        match Member::decode(node, data) {
            Ok(member)
                if last
                    .as_ref()
                    .is_some_and(|last| last.incarnation > member.incarnation) =>
            {
                let known = last.map_or(0, |last| last.incarnation.0);
                let found = member.incarnation.0;
                let what = format!("found incarnation {found}, expected {known} or later");
                self.report_problem(name, &format!("{}: {what}", self.path(name)));
            }
            Ok(member) => {
                self.problems.remove(name);
                self.known.insert(name.to_owned(), Some(member));
            }
            // The state read before stays.
            Err(error) => self.report_problem(name, &format!("{}: {error}", self.path(name))),
        }
    }

    /// Handles the content of this node's own place, if it wants one.
    fn handle_own(&mut self, now: Timestamp, answer: Result<Answer, KeeperError>) {
        let (Some(me), Some(path)) = (self.me.clone(), self.own_path()) else {
            return;
        };
        let create = Step::Create {
            path: path.clone(),
            data: me.encode(),
            kind: Kind::Ephemeral,
        };
        match answer {
            Err(KeeperError::NoNode) => {
                self.ask(now, Purpose::Write, Request::Multi(vec![create]));
            }
            Ok(Answer::Data {
                data,
                version,
                owner,
            }) => {
                let version = Some(version);
                if owner == self.session && data == me.encode() {
                    self.problems.remove(&path);
                } else if owner == self.session {
                    if let Err(error) = Member::decode(me.node, &data) {
                        self.report_problem(&path, &format!("{path}: {error}"));
                    }
                    let data = me.encode();
                    self.ask(
                        now,
                        Purpose::Write,
                        Request::Set {
                            path,
                            data,
                            version,
                        },
                    );
                } else {
                    match Member::decode(me.node, &data) {
                        Ok(other) if other.incarnation > me.incarnation => {
                            let what = format!(
                                "incarnation {} is registered, but this is {}; is one index given to two processes?",
                                other.incarnation.0, me.incarnation.0
                            );
                            self.report_problem(&path, &format!("{path}: {what}"));
                        }
                        // An earlier life, an earlier session of this one, or garbage: the place is ours.
                        _ => {
                            let delete = Step::Delete { path, version };
                            self.ask(now, Purpose::Write, Request::Multi(vec![delete, create]));
                        }
                    }
                }
            }
            Err(error) => {
                self.is_own_dirty = true;
                self.own_retry_at = Some(now + RETRY);
                self.report_problem(&path, &format!("{path} cannot be read: {error}"));
            }
            Ok(other) => debug_assert!(false, "{other:?} does not answer what was asked"),
        }
    }

    fn report_problem(&mut self, place: &str, what: &str) {
        if self.problems.get(place).is_none_or(|said| said != what) {
            self.problems.insert(place.to_owned(), what.to_owned());
            // A registry full of garbage must not fill our memory.
            if self.events.len() >= EVENTS_MAX {
                return;
            }
            self.events.push_back(RegistryEvent::Problem {
                what: what.to_owned(),
            });
        }
    }

    /// Requests everything that has to be known and is not.
    fn ask_for_missing(&mut self, now: Timestamp) {
        if !self.is_connected || self.session == 0 {
            return;
        }
        if self.retry_at.is_none_or(|at| now >= at) {
            self.retry_at = None;
            self.read_missing(now);
        }
        if self.is_own_dirty
            && self.own_retry_at.is_none_or(|at| now >= at)
            && !self.has_asked(&Purpose::Own)
            && !self.has_asked(&Purpose::Write)
            && let Some(path) = self.own_path()
        {
            self.own_retry_at = None;
            self.is_own_dirty = false;
            self.ask(now, Purpose::Own, Request::Get { path, watch: true });
        }
    }

    fn read_missing(&mut self, now: Timestamp) {
        if !self.is_prepared {
            self.is_prepared = true;
            for request in make_path(&self.folder) {
                self.ask(now, Purpose::Prepare, request);
            }
        }
        if self.is_list_dirty && !self.has_asked(&Purpose::List) {
            self.is_list_dirty = false;
            let path = self.folder.clone();
            self.ask(now, Purpose::List, Request::List { path, watch: true });
        }
        for name in std::mem::take(&mut self.dirty) {
            let path = self.path(&name);
            self.ask(now, Purpose::Read(name), Request::Get { path, watch: true });
        }
    }

    /// Publishes the view, if it is another one and no request is open any more.
    fn settle(&mut self) {
        let is_reading = |purpose: &Purpose| matches!(purpose, Purpose::List | Purpose::Read(_));
        let is_open =
            self.is_list_dirty || !self.dirty.is_empty() || self.asked.values().any(is_reading);
        if !self.is_connected || is_open {
            return;
        }
        if self.is_away {
            self.is_away = false;
            self.events.push_back(RegistryEvent::Back);
        }
        let mut members: Vec<_> = self.known.values().flatten().cloned().collect();
        members.sort();
        if members[..] != self.view[..] {
            self.view = members.into();
            self.events
                .push_back(RegistryEvent::View(self.view.clone()));
        }
    }
}

impl<K: Keeper> Registry for ZooKeeperRegistry<K> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn join(&mut self, _now: Timestamp, me: Member) {
        self.me = Some(me);
        self.is_own_dirty = true;
    }

    fn leave(&mut self, now: Timestamp) {
        if let Some(path) = self.own_path() {
            self.me = None;
            self.is_own_dirty = false;
            let version = None;
            self.ask(now, Purpose::Leave, Request::Delete { path, version });
        }
    }

    fn poll(&mut self, now: Timestamp) -> Option<RegistryEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            self.ask_for_missing(now);
            let Some(event) = self.keeper.poll(now) else {
                self.settle();
                return self.events.pop_front();
            };
            self.handle(now, event);
        }
    }

    fn next_due(&self) -> Option<Timestamp> {
        // Without a connection nothing is tried, however due it is.
        let retries = [self.retry_at, self.own_retry_at].map(|at| at.filter(|_| self.is_connected));
        let due = self.keeper.next_due().into_iter();
        due.chain(retries.into_iter().flatten()).min()
    }

    fn view(&self) -> Arc<[Member]> {
        self.view.clone()
    }

    fn is_away(&self) -> bool {
        self.is_away
    }
}
