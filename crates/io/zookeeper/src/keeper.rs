//! Session with a ZooKeeper, as the state machines see it that decide which requests to make.
//!
//! The registry and the verdict log on ZooKeeper are state machines over a [`Keeper`]. The live one has a thread with
//! sockets and is in another crate; [`model`] has one in virtual time, so that the simulator drives the very code that
//! runs in a farm. The terms are ZooKeeper's: a tree of nodes with small data and versions, *ephemeral* nodes that
//! vanish with the session that made them, *watches* that fire once.

pub mod model;

use sheaf_protocol::Timestamp;
use std::time::Duration;
use thiserror::Error;

/// Upper bound of the bytes of data that are read from or written to one node; a server's own limit is 1 MiB for a
/// whole message.
pub const DATA_BYTES_MAX: usize = 512 << 10;

/// Number of one request. Counts up within a keeper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Lifetime and naming of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Until it is deleted.
    Persistent,
    /// Until it is deleted, and open to every user: a folder above that of the farm.
    Shared,
    /// As long as the session.
    Ephemeral,
    /// As long as the session; ten digits that count up are put behind its name.
    EphemeralSequential,
}

/// Request to a ZooKeeper. Paths begin with `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Makes a node. Answered by [`Answer::Created`].
    Create {
        /// Path of the node.
        path: String,
        /// Data of the node.
        data: Vec<u8>,
        /// Lifetime of the node.
        kind: Kind,
    },
    /// Reads a node. Answered by [`Answer::Data`].
    Get {
        /// Path of the node.
        path: String,
        /// Whether to notify once when the node changes or goes.
        watch: bool,
    },
    /// Asks whether a node is there. Answered by [`Answer::Exists`].
    Exists {
        /// Path of the node.
        path: String,
        /// Whether to notify once when the node comes, changes or goes.
        watch: bool,
    },
    /// Lists the names of a node's children. Answered by [`Answer::Children`].
    List {
        /// Path of the node.
        path: String,
        /// Whether to notify once when a child comes or goes.
        watch: bool,
    },
    /// Replaces the data of a node. Answered by [`Answer::Version`].
    Set {
        /// Path of the node.
        path: String,
        /// The new data.
        data: Vec<u8>,
        /// Version that the node must have; any if `None`.
        version: Option<i32>,
    },
    /// Removes a node without children. Answered by [`Answer::Done`].
    Delete {
        /// Path of the node.
        path: String,
        /// Version that the node must have; any if `None`.
        version: Option<i32>,
    },
    /// Carries out all steps or none. Answered by [`Answer::Done`].
    Multi(Vec<Step>),
}

/// One part of a [`Request::Multi`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Fails if the node is not there, or has another version.
    Check {
        /// Path of the node.
        path: String,
        /// Version that the node must have; any if `None`.
        version: Option<i32>,
    },
    /// As [`Request::Create`].
    Create {
        /// Path of the node.
        path: String,
        /// Data of the node.
        data: Vec<u8>,
        /// Lifetime of the node.
        kind: Kind,
    },
    /// As [`Request::Delete`].
    Delete {
        /// Path of the node.
        path: String,
        /// Version that the node must have; any if `None`.
        version: Option<i32>,
    },
}

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The path of the new node, digits included.
    Created {
        /// Path of the node.
        path: String,
    },
    /// Content of a node.
    Data {
        /// The data. May hold anything.
        data: Vec<u8>,
        /// Version of the node.
        version: i32,
        /// The session with which the node vanishes; 0 if it is persistent.
        owner: i64,
    },
    /// Whether a node is there.
    Exists(bool),
    /// The names of the children, in no order. May hold anything.
    Children(Vec<String>),
    /// The version after a change.
    Version(i32),
    /// The request is done.
    Done,
}

/// Reason why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeeperError {
    /// The node, or the one above it, is not there.
    #[error("there is no such node")]
    NoNode,
    /// The node is there already.
    #[error("the node is there already")]
    NodeExists,
    /// The node has another version.
    #[error("the node has another version")]
    BadVersion,
    /// The node has children.
    #[error("the node has children")]
    NotEmpty,
    /// This user lacks the permission: a wrong password is one of another user.
    #[error(
        "no permission: found a user or password that may not read or write there, expected those that made it \
         (membership.user, membership.password_file)"
    )]
    NoAuth,
    /// The connection broke. The request may have been carried out or not, and may still be.
    #[error("the answer is lost")]
    Lost,
    /// The session is over.
    #[error("the session has expired")]
    Expired,
    /// Part of a multi failed, so all of it did: the step, from 0, and why.
    #[error("step {0} failed: {1}")]
    Step(usize, Box<KeeperError>),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl KeeperError {
    /// Returns the reason why a multi failed; of any other error, itself.
    #[must_use]
    pub fn root(&self) -> &Self {
        match self {
            Self::Step(_, why) => why.root(),
            other => other,
        }
    }
}

/// Event of a keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeeperEvent {
    /// The session is established, for the first time or again.
    Connected {
        /// Number of the session. Another one than before: everything ephemeral of the old one is gone, and so are all
        /// watches.
        session: i64,
        /// How long the session outlives a break, as the servers have agreed to.
        timeout: Duration,
    },
    /// No server answers. Requests without an answer are [`Lost`](KeeperError::Lost).
    Away {
        /// For logs and people.
        why: String,
    },
    /// The session is over. Another one is begun automatically.
    Expired,
    /// An answer, in the order of the requests.
    Answer(Ticket, Result<Answer, KeeperError>),
    /// A watch has fired: this node, or its list of children, is not as it was.
    Changed {
        /// Path of the node.
        path: String,
    },
}

/// Session with a ZooKeeper that is kept up automatically, for ever.
///
/// Requests are carried out in the order in which they are made, in the session of the last
/// [`Connected`](KeeperEvent::Connected) that the caller has polled. A request made while there is no session, or after
/// it was replaced by one that the caller has not polled, is not carried out: an ephemeral node that is named after a
/// session must not be owned by the next. Nothing here blocks.
pub trait Keeper {
    /// Submits a request.
    fn submit(&mut self, now: Timestamp, request: Request) -> Ticket;

    /// Returns the next event; `None` when there is none.
    fn poll(&mut self, now: Timestamp) -> Option<KeeperEvent>;

    /// Returns when to poll again without an event.
    fn next_due(&self) -> Option<Timestamp> {
        None
    }
}

impl<K: Keeper + ?Sized> Keeper for Box<K> {
    fn submit(&mut self, now: Timestamp, request: Request) -> Ticket {
        (**self).submit(now, request)
    }

    fn poll(&mut self, now: Timestamp) -> Option<KeeperEvent> {
        (**self).poll(now)
    }

    fn next_due(&self) -> Option<Timestamp> {
        (**self).next_due()
    }
}

/// Returns the requests that create `path`, a folder in the root of a farm, and everything above it, as far as that is
/// missing. What is above the root belongs to no farm: others make theirs beside this one.
pub fn make_path(path: &str) -> Vec<Request> {
    let root = path.rfind('/').unwrap_or(0);
    let ends = path.char_indices().filter(|(at, c)| *c == '/' && *at > 0);
    let ends = ends.map(|(at, _)| at).chain([path.len()]);
    let create = |end: usize| Request::Create {
        path: path[..end].to_owned(),
        data: Vec::new(),
        kind: if end < root {
            Kind::Shared
        } else {
            Kind::Persistent
        },
    };
    ends.filter(|end| *end > 1).map(create).collect()
}
