//! State that all threads of a server share.

use crate::config::Limits;
use crate::dav::Dav;
use crate::front::Front;
use crate::metrics::Counts;
use crate::peer::Peers;
use crate::replica::Replicas;
use crate::sums::SumStore;
use crate::tokens::Guard;
use crate::tree::Tree;
use sheaf_metrics::Registry;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// State of a server that its threads share.
pub(crate) struct Site {
    pub(crate) tree: Arc<Tree>,
    pub(crate) dav: Dav,
    pub(crate) sums: SumStore,
    /// Whether files may be uploaded, moved and deleted.
    pub(crate) is_writable: bool,
    /// Whether a change is on the disk before it is answered for.
    pub(crate) is_synced: bool,
    pub(crate) name: Option<String>,
    pub(crate) limits: Limits,
    /// Servers that files are copied from and to; `None`: no such copies.
    pub(crate) peers: Option<Peers>,
    /// Store whose files are served; `None`: those of the folder are.
    pub(crate) front: Option<Front>,
    /// Servers that have copies of files; `None`: what is not here is nowhere.
    pub(crate) replicas: Option<Replicas>,
    pub(crate) guard: Option<Arc<Guard>>,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) counts: Counts,
    pub(crate) stop: Stop,
    /// Open connections, for the bound of their number.
    pub(crate) open: AtomicUsize,
    /// Threads for work that waits for the disk, for each thread that serves.
    pub(crate) blocking_threads: usize,
}

/// Request to stop.
#[derive(Debug)]
pub(crate) struct Stop(watch::Sender<bool>);

impl Default for Stop {
    fn default() -> Self {
        Self(watch::channel(false).0)
    }
}

impl Stop {
    pub(crate) fn set(&self) {
        self.0.send_replace(true);
    }

    /// Waits until the server is to stop.
    pub(crate) async fn wait(&self) {
        // The sender lives in `self`.
        let _ = self.0.subscribe().wait_for(|is_set| *is_set).await;
    }
}
