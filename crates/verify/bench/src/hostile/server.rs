//! The server of a row: a process with two files, and what the kernel and its page say of it.

use anyhow::Context as _;
use serde_json::Value;
use sheaf_farm::proc::{rss_bytes, usage};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Bytes of the file of honest clients, and of the one that slow readers begin to get.
pub(super) const FILE_BYTES: usize = 64_000;
const LARGE_BYTES: u64 = 1 << 30;
/// Longest time for the page of the server.
const PAGE_WITHIN: Duration = Duration::from_secs(30);

/// Process that serves; killed when dropped.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    address: SocketAddr,
    status: String,
    _folder: TempDir,
}

impl Server {
    pub(super) fn start(program: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let made = std::fs::write(folder.path().join("a"), vec![7; FILE_BYTES]);
        made.context("cannot write a file")?;
        let large = std::fs::File::create(folder.path().join("large"));
        let large = large.context("cannot write a file")?;
        large.set_len(LARGE_BYTES).context("cannot write a file")?;
        let mut child = Command::new(program)
            .args(["files", "serve", "--json", "--listen", "127.0.0.1:0"])
            .args(["--status", "127.0.0.1:0"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut line = String::new();
        let output = child.stdout.take().context("the server has no output")?;
        let read = BufReader::new(output).read_line(&mut line);
        let mut server = Self {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            status: String::new(),
            _folder: folder,
        };
        read.context("the server does not say where it listens")?;
        let line: Value = serde_json::from_str(&line).context("the server does not start")?;
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        server.address = text("address").parse().context("found no address")?;
        server.status = text("status");
        Ok(server)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Memory that the process has now.
    pub(super) fn memory_bytes(&self) -> anyhow::Result<u64> {
        rss_bytes(self.child.id()).context("the server has ended")
    }

    /// Processor time that the process has taken.
    pub(super) fn cpu_s(&self) -> anyhow::Result<f64> {
        let usage = usage(self.child.id());
        Ok(usage.context("the server has ended")?.cpu_s)
    }

    /// Counts on its page, by name and labels.
    pub(super) fn metrics(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let config = ureq::Agent::config_builder().timeout_global(Some(PAGE_WITHIN));
        let agent: ureq::Agent = config.build().into();
        let page = agent.get(format!("http://{}/metrics", self.status)).call();
        let text = page
            .context("the server has no page")?
            .body_mut()
            .read_to_string()?;
        let lines = text.lines().filter(|line| line.starts_with("file_server_"));
        Ok(lines
            .filter_map(|line| {
                let (name, value) = line.rsplit_once(' ')?;
                Some((name.to_owned(), value.parse::<f64>().ok()? as u64))
            })
            .collect())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
