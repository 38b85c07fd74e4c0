//! A session with a ZooKeeper, as those see it who decide what to ask of it.
//!
//! The registry and the verdict log on ZooKeeper are state machines over a [`Keeper`]. The live one has a thread with
//! sockets and is in another crate; [`model`] has one in virtual time, so that the simulator drives the very code
//! that runs in a farm. The words are ZooKeeper's: a tree of nodes with small data and versions, *ephemeral* nodes
//! that vanish with the session that made them, *watches* that fire once.

pub mod model;

use sheaf_protocol::Timestamp;
use std::time::Duration;
use thiserror::Error;

/// Most bytes of data that are read from or written to one node; a server's own limit is 1 MiB for a whole message.
pub const DATA_BYTES_MAX: usize = 512 << 10;

/// Names one request. Counts up within a keeper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// How long a node lasts and what it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Until it is deleted.
    Persistent,
    /// As long as the session.
    Ephemeral,
    /// As long as the session; ten digits that count up are put behind its name.
    EphemeralSequential,
}

/// What can be asked of a ZooKeeper. Paths begin with `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Makes a node. Answered by [`Answer::Created`].
    Create {
        /// Its path.
        path: String,
        /// Its data.
        data: Vec<u8>,
        /// How long it lasts.
        kind: Kind,
    },
    /// Reads a node. Answered by [`Answer::Data`].
    Get {
        /// Its path.
        path: String,
        /// Whether to say once when it changes or goes.
        watch: bool,
    },
    /// Asks whether a node is there. Answered by [`Answer::Exists`].
    Exists {
        /// Its path.
        path: String,
        /// Whether to say once when it comes, changes or goes.
        watch: bool,
    },
    /// The names of a node's children. Answered by [`Answer::Children`].
    List {
        /// Its path.
        path: String,
        /// Whether to say once when a child comes or goes.
        watch: bool,
    },
    /// Replaces the data of a node. Answered by [`Answer::Version`].
    Set {
        /// Its path.
        path: String,
        /// The new data.
        data: Vec<u8>,
        /// The version that it must have.
        version: Option<i32>,
    },
    /// Removes a node without children. Answered by [`Answer::Done`].
    Delete {
        /// Its path.
        path: String,
        /// The version that it must have.
        version: Option<i32>,
    },
    /// All of it or nothing. Answered by [`Answer::Done`].
    Multi(Vec<Step>),
}

/// One part of a [`Request::Multi`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Fails if the node is not there, or has another version.
    Check {
        /// Its path.
        path: String,
        /// The version that it must have; any if `None`.
        version: Option<i32>,
    },
    /// As [`Request::Create`].
    Create {
        /// Its path.
        path: String,
        /// Its data.
        data: Vec<u8>,
        /// How long it lasts.
        kind: Kind,
    },
    /// As [`Request::Delete`].
    Delete {
        /// Its path.
        path: String,
        /// The version that it must have.
        version: Option<i32>,
    },
}

/// What a request gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The path of the new node, digits included.
    Created {
        /// Its path.
        path: String,
    },
    /// What a node holds.
    Data {
        /// The data. May hold anything.
        data: Vec<u8>,
        /// Its version.
        version: i32,
        /// The session that it vanishes with; 0 if it lasts.
        owner: i64,
    },
    /// Whether a node is there.
    Exists(bool),
    /// The names of the children, in no order. May hold anything.
    Children(Vec<String>),
    /// The version after a change.
    Version(i32),
    /// It is done.
    Done,
}

/// Why a request has no answer.
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
    /// This user may not do that.
    #[error("no permission")]
    NoAuth,
    /// The connection broke. It may have happened or not, and may still happen.
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
    /// Why a multi failed; of anything else, itself.
    #[must_use]
    pub fn root(&self) -> &Self {
        match self {
            Self::Step(_, why) => why.root(),
            other => other,
        }
    }
}

/// What a keeper tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeeperEvent {
    /// The session stands, for the first time or again.
    Connected {
        /// Its number. Another one than before: everything ephemeral of the old one is gone, and so are all watches.
        session: i64,
        /// How long it outlives a break, as the servers have agreed to.
        timeout: Duration,
    },
    /// No server answers. What was asked and has no answer yet is [`Lost`](KeeperError::Lost).
    Away {
        /// For logs and people.
        why: String,
    },
    /// The session is over. Another one is begun by itself.
    Expired,
    /// An answer, in the order of the requests.
    Answer(Ticket, Result<Answer, KeeperError>),
    /// A watch has fired: this node, or its list of children, is not as it was.
    Changed {
        /// Its path.
        path: String,
    },
}

/// A session with a ZooKeeper that is kept up by itself, for ever.
///
/// Requests are carried out in the order in which they are made. What is asked while there is no session waits for
/// one, or is [`Lost`](KeeperError::Lost). Nothing here blocks.
pub trait Keeper {
    /// Asks for something.
    fn submit(&mut self, now: Timestamp, request: Request) -> Ticket;

    /// What is new; `None` when nothing is.
    fn poll(&mut self, now: Timestamp) -> Option<KeeperEvent>;

    /// When to poll again although nobody calls.
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

/// The requests that make `path` and everything above it, as far as that is missing.
pub fn make_path(path: &str) -> Vec<Request> {
    let ends = path.char_indices().filter(|(at, c)| *c == '/' && *at > 0);
    let ends = ends.map(|(at, _)| at).chain([path.len()]);
    let create = |end: usize| Request::Create {
        path: path[..end].to_owned(),
        data: Vec::new(),
        kind: Kind::Persistent,
    };
    ends.filter(|end| *end > 1).map(create).collect()
}
