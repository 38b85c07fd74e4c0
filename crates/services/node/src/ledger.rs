//! Which verdict log an ICN has, from its configuration.

use crate::check::path_for;
use crate::clock::new_incarnation;
use crate::config::{FarmConfig, LedgerBackend, MembershipFileError};
use sheaf_protocol::{NodeId, Role};
use sheaf_verdict_files::{FileStorage, Waker};
use sheaf_verdict_log::Ledger;
use sheaf_verdict_log::file::FileLedger;
use sheaf_verdict_log::majority::{MajorityConfig, MajorityLedger};
use sheaf_verdict_log::memory::MemoryLedger;
use sheaf_verdict_log::storage::StorageError;
use sheaf_zookeeper::OptionsError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why the verdict log cannot be opened.
#[derive(Debug, Error)]
pub enum LedgerError {
    /// Folder that cannot be made.
    #[error("cannot make the folder of the verdict log {path}: {source}", path = path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Files that cannot be read, or belong to another log.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A file for `ZooKeeper` cannot be used.
    #[error(transparent)]
    File(#[from] MembershipFileError),
    /// `ZooKeeper` cannot be used as it is configured.
    #[error(transparent)]
    ZooKeeper(#[from] OptionsError),
}

/// Opens the verdict log of ICN `icn`; `waker` wakes its event loop.
///
/// # Errors
///
/// [`LedgerError`] if its files cannot be had.
pub(crate) fn open(
    config: &FarmConfig,
    icn: u16,
    waker: Waker,
) -> Result<Box<dyn Ledger>, LedgerError> {
    match config.icn.ledger.backend {
        LedgerBackend::Memory => Ok(Box::new(MemoryLedger::new())),
        LedgerBackend::File => Ok(Box::new(FileLedger::open(storage(config, icn, waker)?)?)),
        LedgerBackend::Majority => {
            let icns = u16::try_from(config.icn.addresses.len()).unwrap_or(u16::MAX);
            // Any seed will do, if it is another one for each member.
            let majority = MajorityConfig::new(icn, icns, new_incarnation(0).0);
            let storage = storage(config, icn, waker)?;
            Ok(Box::new(MajorityLedger::new(majority, storage)?))
        }
        LedgerBackend::Zookeeper => {
            let role = Role::Icn;
            let options = config.membership.zookeeper(NodeId { role, index: icn })?;
            let root = &config.membership.root;
            Ok(sheaf_zookeeper::open_ledger(&options, root, icn, waker)?)
        }
    }
}

fn storage(config: &FarmConfig, icn: u16, waker: Waker) -> Result<FileStorage, LedgerError> {
    let node = NodeId {
        role: Role::Icn,
        index: icn,
    };
    let path = path_for(&config.icn.ledger.directory, node);
    std::fs::create_dir_all(&path).map_err(|source| LedgerError::Folder {
        path: path.clone(),
        source,
    })?;
    Ok(sheaf_verdict_files::open(&path, waker)?)
}
