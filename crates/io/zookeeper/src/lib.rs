//! The one place that speaks to ZooKeeper.
//!
//! [`Live`] is a [`Keeper`](sheaf_membership::keeper::Keeper): a session with an ensemble, kept up in a thread of its
//! own. What is asked of it is decided by the registry in `sheaf_membership::zookeeper` and by the verdict log in
//! `sheaf_verdict_log`, which the simulator drives over a model of ZooKeeper. [`server`] starts private servers for
//! tests, the demo and the lab.

mod live;
mod options;
pub mod server;

pub use live::{Live, Thaw, Waker};
pub use options::{OptionsError, Tls, ZooKeeperOptions};

use sheaf_membership::zookeeper::ZooKeeperRegistry;
use sheaf_protocol::Role;

/// The registry of a farm in a ZooKeeper, under `root`, such as `/sheaf`; it reads the nodes of `interest`, of every
/// role if that is empty. `waker` is rung whenever there is something to poll for.
///
/// # Errors
///
/// [`OptionsError`] names the option that cannot be used. That no server answers is no error: it is said by the
/// registry, and tried for ever.
pub fn registry(
    options: &ZooKeeperOptions,
    root: &str,
    interest: &[Role],
    waker: Waker,
) -> Result<ZooKeeperRegistry<Live>, OptionsError> {
    let live = Live::start(options, waker)?;
    Ok(ZooKeeperRegistry::new(live, "zookeeper", root, interest))
}
