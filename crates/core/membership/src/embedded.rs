//! The registry of a farm without ZooKeeper: its ICN.
//!
//! Nodes find the ICN by its address in the farm file, so that address is all that an FLP or EPN has to look up. The
//! ICN receives the messages of all nodes, and its driver reports them here; the table of silence decides which nodes
//! are dead. There is no session and no third party: the registry is away exactly when no stream to an ICN is open.

use crate::registry::{Member, Registry, RegistryEvent};
use crate::{Change, JoinError, LivenessConfig, MemberEvent, Members};
use sheaf_protocol::{Incarnation, NodeId, Timestamp};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The registry of a process of a farm without ZooKeeper.
#[derive(Debug)]
pub struct EmbeddedRegistry {
    members: Members,
    /// The ICNs of the farm file, and all that have joined.
    known: BTreeMap<NodeId, Member>,
    me: Option<Member>,
    is_away: bool,
    view: Arc<[Member]>,
    events: VecDeque<RegistryEvent>,
}

impl EmbeddedRegistry {
    /// Returns a registry that knows the ICNs of the farm file, by index, from the start.
    #[must_use]
    pub fn new(liveness: LivenessConfig, icns: &[Member]) -> Self {
        let known = icns.iter().map(|icn| (icn.node, icn.clone()));
        let mut registry = Self {
            members: Members::new(liveness),
            known: known.collect(),
            me: None,
            is_away: false,
            view: Arc::new([]),
            events: VecDeque::new(),
        };
        registry.settle();
        registry
    }

    /// Returns the table of silence.
    #[must_use]
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Handles the hello of a node to this ICN. As [`Members::handle_hello`].
    ///
    /// # Errors
    ///
    /// [`JoinError::Earlier`] if a later life of the node has joined; the caller refuses the node.
    pub fn handle_hello(
        &mut self,
        now: Timestamp,
        member: Member,
    ) -> Result<Vec<MemberEvent>, JoinError> {
        let (node, incarnation) = (member.node, member.incarnation);
        let events = self.members.handle_hello(now, node, incarnation);
        match &events {
            Ok(_) => {
                self.known.insert(node, member);
                self.settle();
            }
            Err(error) => {
                let what = error.to_string();
                self.events.push_back(RegistryEvent::Problem { what });
            }
        }
        events
    }

    /// Notes a message of a node. As [`Members::handle_heard`].
    pub fn handle_heard(
        &mut self,
        now: Timestamp,
        node: NodeId,
        incarnation: Incarnation,
    ) -> Option<MemberEvent> {
        self.members.handle_heard(now, node, incarnation)
    }

    /// Handles a closed stream of a node. As [`Members::handle_closed`].
    pub fn handle_closed(
        &mut self,
        now: Timestamp,
        node: NodeId,
        incarnation: Incarnation,
    ) -> Option<MemberEvent> {
        self.members.handle_closed(now, node, incarnation)
    }

    /// Handles a node that has left as agreed. As [`Members::handle_left`].
    pub fn handle_left(&mut self, node: NodeId, incarnation: Incarnation) -> Option<MemberEvent> {
        let event = self.members.handle_left(node, incarnation)?;
        self.forget(event);
        Some(event)
    }

    /// Returns the changes that silence and grace have brought. As [`Members::handle_tick`].
    pub fn handle_tick(&mut self, now: Timestamp) -> Vec<MemberEvent> {
        let events = self.members.handle_tick(now);
        for event in &events {
            self.forget(*event);
        }
        events
    }

    /// Notes whether a stream to any ICN is open; for nodes that are no ICN.
    pub fn handle_icn(&mut self, is_connected: bool) {
        if self.is_away != is_connected {
            return;
        }
        self.is_away = !is_connected;
        self.events.push_back(if is_connected {
            RegistryEvent::Back
        } else {
            let why = "no stream to an ICN is open".to_owned();
            RegistryEvent::Away { why }
        });
    }

    fn forget(&mut self, event: MemberEvent) {
        if matches!(event.change, Change::Dead | Change::Expired) {
            self.known.remove(&event.node);
            self.settle();
        }
    }

    fn settle(&mut self) {
        let mut members = self.known.clone();
        members.extend(self.me.clone().map(|me| (me.node, me)));
        let members: Vec<_> = members.into_values().collect();
        if members[..] != self.view[..] {
            self.view = members.into();
            // A view that was not polled is replaced by the next.
            self.events
                .retain(|event| !matches!(event, RegistryEvent::View(_)));
            self.events
                .push_back(RegistryEvent::View(self.view.clone()));
        }
    }
}

impl Registry for EmbeddedRegistry {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn join(&mut self, _now: Timestamp, me: Member) {
        self.me = Some(me);
        self.settle();
    }

    fn leave(&mut self, _now: Timestamp) {
        self.me = None;
        self.settle();
    }

    fn poll(&mut self, _now: Timestamp) -> Option<RegistryEvent> {
        self.events.pop_front()
    }

    fn view(&self) -> Arc<[Member]> {
        self.view.clone()
    }

    fn is_away(&self) -> bool {
        self.is_away
    }
}
