//! ZMTP 3.1, the protocol of ZeroMQ, for the four socket types of a data path: PUSH, PULL, PUB and SUB.
//!
//! This crate answers one question: *how do messages get to and from programs that speak ZeroMQ* (a FairMQ device, any
//! libzmq or pyzmq program), without libzmq? It knows no STF and no TF; what a message means is the business of who
//! opens the socket. The protocol is RFC 37/ZMTP 3.1 (<https://rfc.zeromq.org/spec/37/>), with peers of 3.0 (RFC 23)
//! understood; mechanism NULL only.
//!
//! - [`Greeting`], [`FrameHead`], [`Command`] are the messages of the protocol and their bytes;
//! - [`Session`] is one connection without its socket: bytes in, messages out, and the other way round;
//! - [`Socket`] is a ZeroMQ socket: any number of peers, bound or connected, on one epoll.
//!
//! Why own code and no binding of libzmq, and why this is no `Transport`: `docs/adr/2026-11-22-own-zmtp.md`.
//! How to use it from the outside: `docs/how-to/zmq.md`.
//!
//! Nothing here allocates what a peer only announced: lengths are held against [`Limits`] first, and queues count
//! bytes and messages.

mod command;
mod endpoint;
mod error;
mod frame;
mod greeting;
mod input;
mod message;
mod outbox;
mod session;
mod socket;
mod socket_type;
mod stream;
mod subscriptions;

pub use command::{Command, CommandError};
pub use endpoint::{BindError, Endpoint, EndpointError};
pub use error::PeerError;
pub use frame::{FrameError, FrameHead, FrameKind};
pub use greeting::{Greeting, GreetingError};
pub use input::Limits;
pub use message::Message;
pub use outbox::HighWater;
pub use session::{Heartbeat, Incoming, PeerHello, Session, SessionConfig};
pub use socket::{Event, PeerId, SendError, Socket, SocketConfig, Stats};
pub use socket_type::SocketType;
