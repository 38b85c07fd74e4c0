//! The one state behind all endpoints of a memory network.

mod route;

use super::faults::{Dice, Faults};
use super::{Death, EndpointId, Settings, Totals};
use crate::transport::{CloseReason, ConnId, Event, Frame, ListenerId, SendError, WhenFull};
use bytes::Bytes;
use sheaf_protocol::{PrefixError, Timestamp, crc32c};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io::ErrorKind;
use std::time::Duration;

/// Endpoints, connections, and what is under way between them.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) faults: Faults,
    pub(crate) totals: Totals,
    settings: Settings,
    dice: Dice,
    endpoints: Vec<Endpoint>,
    /// The latest endpoint of every name.
    names: HashMap<String, usize>,
    /// All names ever used.
    name_ids: HashMap<String, NameId>,
    addresses: HashMap<String, (usize, ListenerId)>,
    ports: u32,
    links: Vec<[End; 2]>,
    /// Parcels under way, by due time and order of sending.
    under_way: BTreeMap<(Timestamp, u64), Parcel>,
    sent: u64,
    /// Pairs of endpoint names, from and to, between which everything vanishes.
    cuts: BTreeSet<(NameId, NameId)>,
    /// Heads of frames with damaged bodies.
    pub(crate) corrupted: Vec<Bytes>,
    /// Endpoints for which something has come since their last poll.
    news: Vec<usize>,
}

/// A name of endpoints, as a number: an endpoint and its restarted successors have the same.
type NameId = usize;

#[derive(Debug)]
struct Endpoint {
    name: String,
    name_id: NameId,
    /// Frames that it may still send.
    frames_left: Option<u32>,
    has_news: bool,
    death: Option<Death>,
    frozen: bool,
    ids: u64,
    ends: HashMap<ConnId, At>,
    /// Parcels that wait for the next poll.
    arrived: VecDeque<Parcel>,
    /// Events without a parcel.
    events: VecDeque<Event>,
}

/// One end of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    link: usize,
    side: usize,
}

impl At {
    fn other(self) -> Self {
        Self {
            link: self.link,
            side: 1 - self.side,
        }
    }
}

#[derive(Debug)]
struct End {
    endpoint: usize,
    /// `None` until the connection is accepted.
    conn: Option<ConnId>,
    open: bool,
    stands: bool,
    finishing: bool,
    when_full: WhenFull,
    /// Bytes that were sent from here and not delivered to the other end yet.
    queued_bytes: u64,
    refused: Option<u64>,
    /// When the last thing sent from here in order is due.
    last_due: Timestamp,
}

#[derive(Debug)]
struct Parcel {
    to: At,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// A connection is asked for at this listener.
    Open(ListenerId),
    /// The connection stands.
    Stands,
    /// A frame, and how many queued bytes of its sender it stands for: none for the second of two.
    Frame(Frame, u64),
    /// A frame whose prefix or head was damaged.
    Damaged,
    /// The sender's side ends.
    End,
    /// The connection is gone.
    Gone(CloseReason),
    /// Deadline of a connection without an answer.
    TimedOut,
}

impl World {
    pub(crate) fn new(seed: u64, faults: Faults, settings: Settings) -> Self {
        Self {
            now: Timestamp::default(),
            faults,
            totals: Totals::default(),
            settings,
            dice: Dice::new(seed),
            endpoints: Vec::new(),
            names: HashMap::new(),
            name_ids: HashMap::new(),
            addresses: HashMap::new(),
            ports: 0,
            links: Vec::new(),
            under_way: BTreeMap::new(),
            sent: 0,
            cuts: BTreeSet::new(),
            corrupted: Vec::new(),
            news: Vec::new(),
        }
    }

    fn name_id(&mut self, name: &str) -> NameId {
        if let Some(id) = self.name_ids.get(name) {
            return *id;
        }
        let id = self.name_ids.len();
        self.name_ids.insert(name.to_owned(), id);
        id
    }

    /// Makes an endpoint, unless one of that name lives.
    pub(crate) fn endpoint(&mut self, name: &str) -> Option<usize> {
        if self
            .names
            .get(name)
            .is_some_and(|index| self.endpoints[*index].death.is_none())
        {
            return None;
        }
        let name_id = self.name_id(name);
        self.endpoints.push(Endpoint {
            name: name.to_owned(),
            name_id,
            frames_left: None,
            has_news: false,
            death: None,
            frozen: false,
            ids: 0,
            ends: HashMap::new(),
            arrived: VecDeque::new(),
            events: VecDeque::new(),
        });
        self.names.insert(name.to_owned(), self.endpoints.len() - 1);
        Some(self.endpoints.len() - 1)
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.under_way.first_key_value().map(|((due, _), _)| *due)
    }

    pub(crate) fn cut(&mut self, from: &str, to: &str) {
        let pair = (self.name_id(from), self.name_id(to));
        self.cuts.insert(pair);
    }

    pub(crate) fn heal(&mut self, from: &str, to: &str) {
        let pair = (self.name_id(from), self.name_id(to));
        self.cuts.remove(&pair);
    }

    pub(crate) fn power_up(&mut self, name: &str) {
        if let Some(index) = self.names.get(name)
            && let Some(death) = &mut self.endpoints[*index].death
        {
            *death = Death::Seen;
        }
    }

    pub(crate) fn limit_frames(&mut self, name: &str, frames: u32) {
        if let Some(index) = self.names.get(name) {
            self.endpoints[*index].frames_left = Some(frames);
        }
    }

    pub(crate) fn frames_left(&self, name: &str) -> Option<u32> {
        self.endpoints[*self.names.get(name)?].frames_left
    }

    pub(crate) fn open_connections(&self) -> usize {
        let lives = |end: &End| end.open && self.endpoints[end.endpoint].death.is_none();
        let is_open = |link: &&[End; 2]| link.iter().any(|end| end.conn.is_some() && lives(end));
        self.links.iter().filter(is_open).count()
    }

    /// Notes that something has come for `endpoint`.
    fn notify(&mut self, endpoint: usize) {
        let here = &mut self.endpoints[endpoint];
        if !here.has_news {
            here.has_news = true;
            self.news.push(endpoint);
        }
    }

    pub(crate) fn news(&mut self, news: &mut Vec<EndpointId>) {
        news.clear();
        let endpoints = &mut self.endpoints;
        self.news.retain(|index| {
            let here = &mut endpoints[*index];
            if here.death.is_some() {
                return false;
            }
            if here.has_news && !here.frozen {
                news.push(EndpointId(*index));
            }
            here.has_news
        });
        news.sort_unstable();
    }

    pub(crate) fn freeze(&mut self, name: &str, frozen: bool) {
        if let Some(index) = self.names.get(name) {
            self.endpoints[*index].frozen = frozen;
        }
    }

    /// Returns the latest endpoint of that name.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    pub(crate) fn kill(&mut self, index: usize, death: Death) {
        if self.endpoints[index].death.is_some() {
            return;
        }
        let mut ends: Vec<At> = self.endpoints[index].ends.values().copied().collect();
        ends.sort_unstable_by_key(|at| at.link);
        for at in ends {
            if self.end(at).open && death == Death::Seen {
                self.transmit(at.other(), What::Gone(CloseReason::Reset));
            }
            self.end_mut(at).open = false;
        }
        let endpoint = &mut self.endpoints[index];
        endpoint.death = Some(death);
        endpoint.events.clear();
        endpoint.ends.clear();
        for parcel in std::mem::take(&mut self.endpoints[index].arrived) {
            self.answer_for_the_dead(&parcel, death);
            self.vanish(&parcel);
        }
    }

    pub(crate) fn listen(
        &mut self,
        endpoint: usize,
        address: &str,
    ) -> Option<(ListenerId, String)> {
        let address = match address.strip_suffix(":0") {
            Some(host) => {
                self.ports += 1;
                format!("{host}:{}", self.ports)
            }
            None => address.to_owned(),
        };
        let taken = self
            .addresses
            .get(&address)
            .is_some_and(|(owner, _)| self.endpoints[*owner].death.is_none());
        if taken || self.endpoints[endpoint].death.is_some() {
            return None;
        }
        let listener = ListenerId(self.id(endpoint));
        self.addresses.insert(address.clone(), (endpoint, listener));
        Some((listener, address))
    }

    pub(crate) fn connect(&mut self, endpoint: usize, address: &str) -> ConnId {
        let conn = ConnId(self.id(endpoint));
        let Some(&(owner, listener)) = self.addresses.get(address) else {
            let reason = CloseReason::Unreachable(ErrorKind::ConnectionRefused);
            self.add_event(endpoint, Event::Closed { conn, reason });
            return conn;
        };
        let link = self.links.len();
        self.links.push([
            self.new_end(endpoint, Some(conn)),
            self.new_end(owner, None),
        ]);
        let at = At { link, side: 0 };
        self.endpoints[endpoint].ends.insert(conn, at);
        self.transmit(at.other(), What::Open(listener));
        let due = self.now + self.settings.connect_limit;
        self.schedule(
            due,
            Parcel {
                to: at,
                what: What::TimedOut,
            },
        );
        conn
    }

    /// Something came up at `endpoint` without a parcel.
    fn add_event(&mut self, endpoint: usize, event: Event) {
        self.endpoints[endpoint].events.push_back(event);
        self.notify(endpoint);
    }

    fn new_end(&self, endpoint: usize, conn: Option<ConnId>) -> End {
        End {
            endpoint,
            conn,
            open: true,
            stands: false,
            finishing: false,
            when_full: self.settings.when_full,
            queued_bytes: 0,
            refused: None,
            last_due: Timestamp::default(),
        }
    }

    pub(crate) fn send(
        &mut self,
        endpoint: usize,
        conn: ConnId,
        frame: Frame,
    ) -> Result<(), SendError> {
        frame
            .check(&self.settings.limits)
            .map_err(SendError::TooLarge)?;
        let Some(at) = self
            .at(endpoint, conn)
            .filter(|at| !self.end(*at).finishing)
        else {
            return Err(SendError::Closed);
        };
        let bytes = frame.wire_bytes();
        if !self.has_room(at, bytes) {
            match self.end(at).when_full {
                WhenFull::Block => {
                    self.end_mut(at).refused = Some(bytes);
                    return Err(SendError::Full(frame));
                }
                WhenFull::DropNewest => {}
                WhenFull::DropOldest => self.drop_oldest(at, bytes),
            }
            if !self.has_room(at, bytes) {
                self.totals.dropped += 1;
                return Ok(());
            }
        }
        if let Some(left) = &mut self.endpoints[endpoint].frames_left {
            if *left == 0 {
                self.totals.vanished += 1;
                return Ok(());
            }
            *left -= 1;
        }
        self.end_mut(at).queued_bytes += bytes;
        self.totals.sent += 1;
        self.transmit_frame(at.other(), frame, bytes);
        Ok(())
    }

    fn has_room(&self, at: At, bytes: u64) -> bool {
        let queued = self.end(at).queued_bytes;
        queued == 0 || queued.saturating_add(bytes) <= self.settings.queue_bytes_max
    }

    /// Drops what is under way from `at`, oldest first, until `bytes` have room.
    fn drop_oldest(&mut self, at: At, bytes: u64) {
        while !self.has_room(at, bytes) {
            let oldest = self.under_way.iter().find_map(|(key, parcel)| {
                let frame = matches!(parcel.what, What::Frame(_, queued) if queued > 0);
                (frame && parcel.to == at.other()).then_some(*key)
            });
            let Some(parcel) = oldest.and_then(|key| self.under_way.remove(&key)) else {
                return;
            };
            self.totals.dropped += 1;
            self.release(&parcel);
        }
    }

    pub(crate) fn set_when_full(&mut self, endpoint: usize, conn: ConnId, when_full: WhenFull) {
        if let Some(at) = self.at(endpoint, conn) {
            self.end_mut(at).when_full = when_full;
        }
    }

    pub(crate) fn queued_bytes(&self, endpoint: usize, conn: ConnId) -> u64 {
        self.at(endpoint, conn)
            .map_or(0, |at| self.end(at).queued_bytes)
    }

    pub(crate) fn finish(&mut self, endpoint: usize, conn: ConnId) {
        if let Some(at) = self.at(endpoint, conn)
            && !self.end(at).finishing
        {
            self.end_mut(at).finishing = true;
            self.transmit(at.other(), What::End);
        }
    }

    pub(crate) fn close(&mut self, endpoint: usize, conn: ConnId) {
        let Some(at) = self.at(endpoint, conn) else {
            return;
        };
        self.transmit(at.other(), What::Gone(CloseReason::ByPeer));
        let closed = self.closed(at, conn, CloseReason::ByUs);
        self.add_event(endpoint, closed);
    }

    /// Events at `endpoint` since the last call.
    pub(crate) fn poll(&mut self, endpoint: usize, events: &mut Vec<Event>) {
        self.deliver();
        let here = &self.endpoints[endpoint];
        if here.frozen || here.death.is_some() {
            return;
        }
        self.endpoints[endpoint].has_news = false;
        // What this poll causes, even at this endpoint, is for the next one.
        let arrived = std::mem::take(&mut self.endpoints[endpoint].arrived);
        events.extend(self.endpoints[endpoint].events.drain(..));
        for parcel in arrived {
            self.release(&parcel);
            if self.end(parcel.to).open {
                events.extend(self.receive(parcel));
            } else if matches!(parcel.what, What::Stands | What::Frame(..) | What::Damaged) {
                self.transmit(parcel.to.other(), What::Gone(CloseReason::Reset));
            }
        }
    }

    fn receive(&mut self, Parcel { to, what }: Parcel) -> Option<Event> {
        if let What::Open(listener) = what {
            return Some(self.accept(to, listener));
        }
        // The opening vanished, so the connection is unknown here.
        let conn = self.end(to).conn?;
        match what {
            What::Open(_) => None,
            What::Stands => {
                self.end_mut(to).stands = true;
                Some(Event::Connected { conn })
            }
            What::Frame(frame, _) => {
                self.totals.delivered += 1;
                let body_digest = Some(crc32c(&frame.body));
                Some(Event::Received {
                    conn,
                    frame,
                    body_digest,
                    spent: Duration::ZERO,
                })
            }
            What::End if self.end(to).finishing => Some(self.closed(to, conn, CloseReason::ByUs)),
            What::End => {
                self.transmit(to.other(), What::End);
                Some(self.closed(to, conn, CloseReason::ByPeer))
            }
            What::Gone(reason) => Some(self.closed(to, conn, reason)),
            What::Damaged => {
                self.transmit(to.other(), What::Gone(CloseReason::Reset));
                let error = PrefixError::Digest {
                    computed: 0,
                    stated: 1,
                };
                Some(self.closed(to, conn, CloseReason::Refused(error)))
            }
            What::TimedOut if self.end(to).stands => None,
            What::TimedOut => {
                let reason = CloseReason::Unreachable(ErrorKind::TimedOut);
                Some(self.closed(to, conn, reason))
            }
        }
    }

    fn accept(&mut self, at: At, listener: ListenerId) -> Event {
        let peer = self.endpoints[self.end(at.other()).endpoint].name.clone();
        let endpoint = self.end(at).endpoint;
        let conn = ConnId(self.id(endpoint));
        self.endpoints[endpoint].ends.insert(conn, at);
        let end = self.end_mut(at);
        end.conn = Some(conn);
        end.stands = true;
        self.transmit(at.other(), What::Stands);
        Event::Accepted {
            conn,
            listener,
            peer,
        }
    }

    fn closed(&mut self, at: At, conn: ConnId, reason: CloseReason) -> Event {
        let end = self.end_mut(at);
        end.open = false;
        let endpoint = end.endpoint;
        self.endpoints[endpoint].ends.remove(&conn);
        Event::Closed { conn, reason }
    }

    fn at(&self, endpoint: usize, conn: ConnId) -> Option<At> {
        self.endpoints[endpoint]
            .ends
            .get(&conn)
            .copied()
            .filter(|at| self.end(*at).open)
    }

    fn end(&self, at: At) -> &End {
        &self.links[at.link][at.side]
    }

    fn end_mut(&mut self, at: At) -> &mut End {
        &mut self.links[at.link][at.side]
    }

    fn id(&mut self, endpoint: usize) -> u64 {
        let ids = &mut self.endpoints[endpoint].ids;
        *ids += 1;
        *ids - 1
    }
}
