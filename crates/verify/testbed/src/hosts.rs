//! Experiments, and farms by hand, on real machines: those of an inventory, reached by `ssh`.
//!
//! A [`Fleet`] is an inventory whose hosts are all connected. Everything that a host has of it lies in one folder:
//! the program, and the files of a farm or a run. Processes are known by the program that they run: whatever runs
//! `FOLDER/sheaf` belongs to it, and nothing else is ever signalled.

pub mod attend;
mod error;
mod facts;
pub mod inventory;
mod run;
mod session;
mod ssh;

use crate::IoError;
use crate::clock;
use crate::machine::Folder;
use crate::tool::{self, Missing, ToolError};
pub use error::{HostError, OpenError, PushError, SessionError};
pub use facts::Facts;
use facts::{FUNCTIONS, MARK};
pub use inventory::Inventory;
pub use run::{begin_run, end_run};
pub use session::Session;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Hosts that are asked at the same time.
const AT_ONCE: usize = 32;
/// Folder of a run on a host, below the host's folder.
const RUN: &str = "run";

/// All hosts of an inventory, connected.
#[derive(Debug)]
pub struct Fleet {
    inventory: Inventory,
    sessions: Vec<Arc<Session>>,
    /// Sockets of the connections.
    _folder: Folder,
}

/// In the provenance: which hosts an experiment was run on, if not on this machine.
pub const HOSTS: &str = "hosts";

/// Answer of a host.
pub type Answer<T> = (String, Result<T, SessionError>);

impl Fleet {
    /// Connects to all hosts.
    ///
    /// # Errors
    ///
    /// [`OpenError::Missing`] without `ssh`, and the [`HostError`] of the first host that cannot be reached.
    pub fn open(inventory: &Inventory) -> Result<Self, OpenError> {
        let (folder, answers) = connect(inventory)?;
        let sessions = answers
            .into_iter()
            .map(|(_, session)| session.map(Arc::new));
        Ok(Self {
            inventory: inventory.clone(),
            sessions: sessions.collect::<Result<_, _>>()?,
            _folder: folder,
        })
    }

    /// Returns the connections, in the order of the inventory.
    pub fn sessions(&self) -> &[Arc<Session>] {
        &self.sessions
    }

    /// Hosts.
    #[must_use]
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Facts about each host; all have to be ready for a run.
    ///
    /// # Errors
    ///
    /// The [`HostError`] of the first that is not.
    pub fn ready(&self) -> Result<Vec<Facts>, PushError> {
        let digest = digest(&crate::tool::program_to_copy()?)?;
        let facts = self.on_all(|session| {
            let facts = Facts::ask(session)?;
            facts.check_ready(session, &digest)?;
            Ok(facts)
        })?;
        Ok(facts)
    }

    /// As [`ready`](Self::ready), as it stands in the provenance of results.
    ///
    /// # Errors
    ///
    /// As [`ready`](Self::ready).
    pub fn provenance(&self) -> Result<BTreeMap<String, String>, PushError> {
        let facts = self.ready()?;
        let hosts = self.inventory.hosts.iter().zip(&facts);
        let lines = hosts.map(|(host, facts)| (format!("host {}", host.name), facts.line()));
        let venue = (HOSTS.to_owned(), self.inventory.line());
        Ok(lines.chain([venue]).collect())
    }

    /// Brings this program to all hosts that have not got it; `tell` is called with each.
    ///
    /// # Errors
    ///
    /// The first [`HostError`]. Other hosts may have got it.
    pub fn push(&self, tell: impl Fn(&str, &str) + Sync) -> Result<(), PushError> {
        let program = crate::tool::program_to_copy()?;
        let digest = digest(&program)?;
        let what = || IoError::of(format!("read {}", program.display()));
        let bytes = std::fs::metadata(&program).map_err(what())?.len();
        // The old one stays until the new one is whole.
        let mib = bytes.div_ceil(1 << 20) + 1;
        self.on_all(|session| {
            let facts = Facts::ask(session)?;
            facts.check_folder(session)?;
            let name = session.host().name.as_str();
            if facts.digest.as_deref() == Some(&digest) {
                tell(name, "has it already");
                return Ok(());
            }
            facts.check_idle(session)?;
            facts.check_space(session, mib)?;
            push_to(session, &program, &digest)?;
            tell(name, &format!("has got {mib} MiB"));
            Ok(())
        })?;
        Ok(())
    }

    /// Ends all processes at once and removes the folders; gives how many processes each host had.
    ///
    /// # Errors
    ///
    /// The first [`HostError`], after all others have been asked.
    pub fn purge(&self) -> Result<Vec<(String, u64)>, SessionError> {
        self.on_all(|session| {
            let host = session.host();
            let said = session.run("purge", &script(PURGE), &[&host.folder, MARK])?;
            Ok((host.name.clone(), said.trim().parse().unwrap_or(0)))
        })
    }

    /// Kills all that runs, and removes what a run has on the hosts.
    ///
    /// # Errors
    ///
    /// The first error, after all hosts have been asked.
    pub fn kill_all(&self) -> Result<(), SessionError> {
        self.on_all(end_run).map(drop)
    }

    /// Does `work` on all hosts, some at a time; the results in the order of the inventory.
    ///
    /// # Errors
    ///
    /// The first error of `work`, after all hosts have been asked.
    pub fn on_all<T: Send>(
        &self,
        work: impl Fn(&Session) -> Result<T, SessionError> + Sync,
    ) -> Result<Vec<T>, SessionError> {
        let sessions = self.sessions.iter().collect();
        let answers = at_once(sessions, |session: &Arc<Session>| work(session));
        answers.into_iter().collect()
    }
}

/// Returns the facts about each host of `inventory`, or why the host is unknown or not ready.
///
/// # Errors
///
/// [`OpenError::Missing`] without `ssh`.
pub fn check(inventory: &Inventory) -> Result<Vec<Answer<Facts>>, OpenError> {
    let digest = digest(&crate::tool::program_to_copy()?)?;
    let (_folder, sessions) = connect(inventory)?;
    Ok(at_once(sessions, |(name, session)| {
        let facts = session.and_then(|session| {
            let facts = Facts::ask(&session)?;
            facts.check_ready(&session, &digest)?;
            Ok(facts)
        });
        (name, facts)
    }))
}

/// Connects to all hosts; the folder holds the sockets of the connections.
fn connect(inventory: &Inventory) -> Result<(Folder, Vec<Answer<Session>>), OpenError> {
    if tool::find("ssh").is_none() {
        let text = "needs `ssh` (Debian package openssh-client)".to_owned();
        return Err(Missing(text).into());
    }
    clock::end_on_signals()?;
    let folder = Folder::make(false)?;
    let numbered: Vec<_> = inventory.hosts.iter().enumerate().collect();
    let sessions = at_once(numbered, |(index, host)| {
        let session = Session::open(host, folder.file(&format!("ssh-{index}")));
        (host.name.clone(), session)
    });
    clock::check_quit()?;
    Ok((folder, sessions))
}

/// Does `work` on all of `items`, some at a time; the results in their order.
fn at_once<I: Send, T: Send>(items: Vec<I>, work: impl Fn(I) -> T + Sync) -> Vec<T> {
    let work = &work;
    let mut results = Vec::with_capacity(items.len());
    let mut items = items.into_iter();
    while items.len() > 0 {
        let some = items.by_ref().take(AT_ONCE);
        std::thread::scope(|scope| {
            let threads: Vec<_> = some.map(|item| scope.spawn(move || work(item))).collect();
            let ended = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
            results
                .extend(ended.map(|result| result.expect("what is done on a host does not panic")));
        });
    }
    results
}

/// The SHA-256 of a file.
fn digest(path: &Path) -> Result<String, ToolError> {
    let said = tool::run("sha256sum", ["--", &path.to_string_lossy()])?;
    Ok(said.split(' ').next().unwrap_or_default().to_owned())
}

/// Returns `text` as a script with the functions `pids` and `end_all`, and `$1` as the folder.
#[must_use]
pub fn script(text: &str) -> String {
    format!("{FUNCTIONS}{text}")
}

fn push_to(session: &Session, program: &Path, digest: &str) -> Result<(), SessionError> {
    let folder = &session.host().folder;
    session.run("make its folder", MAKE, &[folder, MARK])?;
    session.copy_to(program, &format!("{folder}/sheaf.part"))?;
    session
        .run("install the program", INSTALL, &[folder, digest])
        .map(drop)
}

/// `$1` is the folder, `$2` the mark.
const MAKE: &str = r#"
set -e
[ -d "$1" ] || mkdir "$1"
: >"$1/$2"
"#;

/// `$1` is the folder, `$2` the SHA-256 that the program has to have. What does not run here is not installed.
const INSTALL: &str = r#"
set -e
cd "$1"
found=$(sha256sum <sheaf.part | cut -d ' ' -f 1)
[ "$found" = "$2" ] || { rm -f sheaf.part; echo "it came with SHA-256 $found, expected $2" >&2; exit 1; }
chmod 755 sheaf.part
said=$(./sheaf.part --version 2>&1) || { rm -f sheaf.part; echo "it does not run here: $said" >&2; exit 1; }
mv -f sheaf.part sheaf
"#;

/// `$1` is the folder, `$2` the mark. Prints how many processes there were.
const PURGE: &str = r#"
[ -e "$folder/$2" ] || { echo 0; exit 0; }
pids | grep -c .
end_all
rm -rf "$folder"
"#;
