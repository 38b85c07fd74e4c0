//! All that knows ZooKeeper.
//!
//! [`registry`] and [`ledger`] are state machines which decide the requests to make, over any [`keeper::Keeper`]. The
//! simulator drives them over [`keeper::model`], a ZooKeeper in virtual time; a node drives them over `Live`, a session
//! with an ensemble, kept up in a thread of its own. [`server`] starts private servers for tests, the demo and the lab.
//!
//! The client and its TLS are the feature `client`. A build without it reads the same farm files and refuses those
//! that name ZooKeeper ([`OptionsError::NotBuilt`]).

pub mod keeper;
pub mod ledger;
#[cfg(feature = "client")]
mod live;
mod options;
#[cfg(feature = "client")]
mod probe;
pub mod registry;
pub mod server;
#[cfg(feature = "client")]
mod tunnel;

#[cfg(feature = "client")]
pub use live::{Live, Thaw};
pub use options::{OptionsError, Tls, ZooKeeperOptions};

use sheaf_membership::Registry;
use sheaf_protocol::Role;
use sheaf_verdict_log::Ledger;

/// Whether this build has a client for ZooKeeper.
pub const HAS_CLIENT: bool = cfg!(feature = "client");

/// Function that wakes the event loop of a node when there is something to poll for. Called from another thread; must
/// not block.
pub type Waker = Box<dyn Fn() + Send + Sync>;

/// Returns the registry of a farm in a ZooKeeper, under `root`, such as `/sheaf`; it reads the nodes of `interest`, of
/// every role if that is empty.
///
/// # Errors
///
/// [`OptionsError`] names the option that cannot be used. Servers that do not answer are no error: the registry reports
/// them, and tries again for ever.
#[cfg(feature = "client")]
pub fn open_registry(
    options: &ZooKeeperOptions,
    root: &str,
    interest: &[Role],
    waker: Waker,
) -> Result<Box<dyn Registry>, OptionsError> {
    use crate::registry::ZooKeeperRegistry;
    let live = Live::start(options, waker)?;
    let registry = ZooKeeperRegistry::new(live, "zookeeper", root, interest);
    Ok(Box::new(registry))
}

/// Refuses: this build has no client.
///
/// # Errors
///
/// [`OptionsError::NotBuilt`].
#[cfg(not(feature = "client"))]
pub fn open_registry(
    _: &ZooKeeperOptions,
    _: &str,
    _: &[Role],
    _: Waker,
) -> Result<Box<dyn Registry>, OptionsError> {
    Err(OptionsError::NotBuilt)
}

/// Returns the verdict log of ICN `icn` in a ZooKeeper, under `root`.
///
/// # Errors
///
/// [`OptionsError`] names the option that cannot be used.
#[cfg(feature = "client")]
pub fn open_ledger(
    options: &ZooKeeperOptions,
    root: &str,
    icn: u16,
    waker: Waker,
) -> Result<Box<dyn Ledger>, OptionsError> {
    use crate::ledger::{ZooKeeperLedger, ZooKeeperLedgerOptions};
    let live = Live::start(options, waker)?;
    let options = ZooKeeperLedgerOptions::new(root, icn);
    Ok(Box::new(ZooKeeperLedger::new(live, options)))
}

/// Refuses: this build has no client.
///
/// # Errors
///
/// [`OptionsError::NotBuilt`].
#[cfg(not(feature = "client"))]
pub fn open_ledger(
    _: &ZooKeeperOptions,
    _: &str,
    _: u16,
    _: Waker,
) -> Result<Box<dyn Ledger>, OptionsError> {
    Err(OptionsError::NotBuilt)
}
