//! Which receiver gets which alerts, grouped how, and which alerts hide others: the file that Alertmanager calls its
//! configuration, in its simple form.

mod read;

use sheaf_samples::{Labels, Matcher};
use std::collections::BTreeSet;

/// Routes, receivers and inhibitions.
#[derive(Clone, Debug)]
pub struct Routing {
    /// Routes; the first is the root, children come after their parents.
    pub(crate) routes: Vec<Route>,
    pub(crate) receivers: Vec<Receiver>,
    pub(crate) inhibitions: Vec<Inhibition>,
}

/// One route of the tree.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Route {
    /// Path from the root, such as `0.2`: the name of the route in group keys.
    pub(crate) path: String,
    pub(crate) receiver: usize,
    pub(crate) matchers: Vec<Matcher>,
    pub(crate) group_by: GroupBy,
    pub(crate) group_wait_ms: i64,
    pub(crate) group_interval_ms: i64,
    pub(crate) repeat_ms: i64,
    /// Whether later siblings are asked as well.
    pub(crate) goes_on: bool,
    pub(crate) limit: Option<RateLimit>,
    pub(crate) children: Vec<usize>,
}

/// Labels whose values make a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GroupBy {
    /// `...`: every alert by itself.
    All,
    Labels(BTreeSet<String>),
}

impl GroupBy {
    pub(crate) fn of(&self, labels: &Labels) -> Labels {
        match self {
            Self::All => labels.clone(),
            Self::Labels(names) => labels.filter(|name| names.contains(name)),
        }
    }
}

/// Most notifications of a route within a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateLimit {
    pub(crate) notifications: u32,
    pub(crate) in_ms: i64,
}

/// Someone or something that is notified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// Name, by which routes choose it.
    pub name: String,
    /// Ways to notify it; each gets every notification.
    pub channels: Vec<Channel>,
}

/// A way to notify a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Channel {
    /// A line in the log of the process.
    Log,
    /// POST of JSON, as Alertmanager sends it.
    Webhook {
        /// Address.
        url: String,
        /// File with the key of signatures; `None`: unsigned.
        secret_file: Option<String>,
    },
    /// POST to the API of an Alertmanager.
    Alertmanager {
        /// Address without `/api/v2/alerts`.
        url: String,
    },
    /// E-mail.
    Email {
        /// Addresses, separated by commas.
        to: String,
        /// Sender; `None`: that of the configuration.
        from: Option<String>,
    },
}

/// Alerts that hide others while they fire.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Inhibition {
    pub(crate) sources: Vec<Matcher>,
    pub(crate) targets: Vec<Matcher>,
    /// Labels that both have to have alike.
    pub(crate) equal: Vec<String>,
}

impl Inhibition {
    pub(crate) fn is_source(&self, labels: &Labels) -> bool {
        self.sources.iter().all(|one| one.is_match(labels))
    }

    pub(crate) fn is_target(&self, labels: &Labels) -> bool {
        self.targets.iter().all(|one| one.is_match(labels))
    }

    /// Returns whether a firing `source` hides `target`. An alert that is source and target itself is hidden by no
    /// alert that is both, else two of them would hide each other.
    pub(crate) fn hides(&self, source: &Labels, target: &Labels) -> bool {
        self.is_source(source)
            && self.is_target(target)
            && !(self.is_source(target) && self.is_target(source))
            && self
                .equal
                .iter()
                .all(|name| source.get(name) == target.get(name))
    }
}

impl Default for Routing {
    /// One receiver, the log, for all alerts.
    fn default() -> Self {
        let receiver = Receiver {
            name: "log".to_owned(),
            channels: vec![Channel::Log],
        };
        Self {
            routes: vec![Route::root()],
            receivers: vec![receiver],
            inhibitions: Vec::new(),
        }
    }
}

impl Route {
    /// The root with the times that Alertmanager has by default.
    fn root() -> Self {
        Self {
            path: "0".to_owned(),
            receiver: 0,
            matchers: Vec::new(),
            group_by: GroupBy::Labels(BTreeSet::new()),
            group_wait_ms: 30_000,
            group_interval_ms: 300_000,
            repeat_ms: 4 * 3_600_000,
            goes_on: false,
            limit: None,
            children: Vec::new(),
        }
    }
}

impl Routing {
    /// Receivers in the order of the file.
    #[must_use]
    pub fn receivers(&self) -> &[Receiver] {
        &self.receivers
    }

    /// Routes of an alert with `labels`, as places in the table.
    pub(crate) fn routes_of(&self, labels: &Labels) -> Vec<usize> {
        let mut found = Vec::new();
        self.collect(0, labels, &mut found);
        found
    }

    fn collect(&self, at: usize, labels: &Labels, found: &mut Vec<usize>) -> bool {
        let route = &self.routes[at];
        if !route.matchers.iter().all(|one| one.is_match(labels)) {
            return false;
        }
        let before = found.len();
        for child in &route.children {
            if self.collect(*child, labels, found) && !self.routes[*child].goes_on {
                break;
            }
        }
        if found.len() == before {
            found.push(at);
        }
        true
    }
}
