//! The director of a service, and the agent on its servers.
//!
//! A [`Director`] drives the [services](sheaf_serve::Service) of one configuration: threads check the servers and ask
//! their agents, a plane carries the tables out, and HTTP takes orders and tells the state. An [`Agent`] on each server
//! lists the connections to the virtual addresses, by the kernel's `sock_diag`, and measures the load of its machine.
//!
//! [`examine`] checks what direct return depends on, on directors and servers. Two directors stand in for each other
//! by keepalived, whose configuration is [rendered](GatewayConfig::keepalived).
//! Servers of several kinds stand behind a director as they are; [`backends`] has what each needs.
//!
//! Nothing here decides where a connection goes; see `sheaf-serve`.

mod agent;
mod agent_client;
mod backend;
mod check;
mod config;
mod connections;
mod director;
mod doctor;
mod error;
mod event;
mod expect;
mod facts;
mod failover;
mod http;
mod keepalived;
mod load;
mod metrics;
mod orders;

pub use agent::{Agent, AgentConfig};
pub use backend::{Backend, Folders, Rendered, RenderedFile, backend, backends};
pub use check::check;
pub use config::{DirectorConfig, GatewayConfig, OnStop};
pub use connections::connections;
pub use director::Director;
pub use doctor::{CHECKS, Check, Finding, Repair, Report, Role, Verdict, examine};
pub use error::GatewayError;
pub use event::{OrderRequest, Status};
pub use expect::{Expect, ExpectCertificate};
pub use facts::{Assigned, Facts, FactsError, Link};
pub use failover::{FailoverConfig, FailoverDirector};
pub use http::Refusal;
pub use metrics::metrics;
